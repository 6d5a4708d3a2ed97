//! Feeding a prompt from where a cache stands, in forward calls.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Instant;

use mlx_rs::Array;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::transforms::{async_eval, eval};

use super::{Model, Progress};
use crate::cache::Cache;
use crate::models::{Chunk, Placed, Positions};
use crate::prompt::{self, PreparedMedium, PreparedPrompt, Prompt};
use crate::reuse::media_beyond;
use crate::sequence::{Sequence, Snapshot};
use crate::{Error, Result};

/// Tokens that take no more memory than decoding steps, or hardly.
const FEW: usize = 32;

/// A prompt to feed from where a cache stands.
pub(crate) struct Run<'r> {
    pub prepared: &'r PreparedPrompt,
    pub cache: Cache,
    /// Tokens that the cache holds.
    pub start: usize,
    /// Where forward calls end beside the usual places.
    pub stops: &'r [usize],
}

/// Who watches a prompt being fed, and supplies the features of its media.
pub(crate) trait Observer {
    /// A medium's features; they need not be evaluated.
    fn features(&mut self, medium: usize) -> Result<Array>;

    /// All that were asked for are evaluated.
    fn encoded(&mut self) {}

    /// Whether the logits after so many tokens are wanted.
    fn wants_logits(&self, _end: usize) -> bool {
        false
    }

    /// After a forward call: what is to be evaluated with it.
    fn take(&mut self, _cache: &Cache) -> Result<Vec<Array>> {
        Ok(Vec::new())
    }

    /// It is evaluated.
    fn evaluated(&mut self, _cache: &Cache, _logits: Option<&Array>) {}
}

impl Model {
    /// Feeds a prompt from where the cache stands.
    pub(crate) fn run(
        &self,
        run: Run<'_>,
        observer: &mut dyn Observer,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Sequence<'_>> {
        let Run {
            prepared,
            mut cache,
            mut start,
            stops,
        } = run;
        let ids = &prepared.prompt.ids;
        self.limits().check(ids)?;
        let total = ids.len() as u64;
        let mut report = |done: usize| match progress(Progress {
            done: done as u64,
            total,
        }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Cancelled),
        };
        report(start)?;
        let started = Instant::now();
        let mut features = vec![None; prepared.media.len()];
        for medium in media_beyond(&prepared.prompt, start) {
            let Some(slot) = features.get_mut(medium) else {
                continue;
            };
            let rows = observer.features(medium)?;
            // The next is put together while the device works on this one.
            async_eval([&rows])?;
            *slot = Some(rows);
            report(start)?;
        }
        eval(features.iter().flatten())?;
        check_features(prepared, &features, start)?;
        observer.encoded();
        let encode_time = started.elapsed();

        if start > 0 {
            cache.set_rope_delta(rope_delta_after(&prepared.prompt, start));
        }
        let mut logits = None;
        for end in chunk_ends(&prepared.prompt, self.options.prefill_chunk, stops) {
            if end <= start {
                continue;
            }
            let chunk_ids: Vec<i32> = ids[start..end].iter().map(|&id| id as i32).collect();
            let chunk = Chunk {
                ids: &Array::from_slice(&chunk_ids, &[1, chunk_ids.len() as i32]),
                features: &placed(prepared, &features, start, end)?,
                groups: &groups(&prepared.prompt, start, end),
                positions: &positions_of(&prepared.prompt, start, end),
            };
            let wants_logits = end == ids.len() || observer.wants_logits(end);
            logits = self.family.forward(&chunk, &mut cache, wants_logits)?;
            // Rows are kept as they were computed, before they are quantised.
            let mut computed = observer.take(&cache)?;
            self.quantize_when_due(&mut cache)?;
            computed.extend(cache.arrays().chain(&logits).cloned());
            eval(&computed)?;
            drop(computed);
            // Chunks are larger than decoding steps: what they used is not used again. The few
            // tokens after a reused prefix are not, and what made room for it will be.
            if end - start > FEW {
                mlx_rs::memory::clear_cache()?;
            }
            cache.set_rope_delta(rope_delta_after(&prepared.prompt, end));
            observer.evaluated(&cache, logits.as_ref());
            report(end)?;
            start = end;
        }
        let logits = logits.ok_or(Error::EmptyPrompt)?;
        Ok(Sequence::new(self, cache, ids.clone(), logits, encode_time))
    }
}

/// Encodes everything, and takes snapshots.
pub(super) struct SnapshotsOnly<'m> {
    pub model: &'m Model,
    pub media: &'m [PreparedMedium],
    pub positions: &'m [usize],
    pub snapshots: Vec<Snapshot>,
}

impl Observer for SnapshotsOnly<'_> {
    fn features(&mut self, medium: usize) -> Result<Array> {
        self.model.encode(&self.media[medium])
    }

    fn wants_logits(&self, end: usize) -> bool {
        self.positions.contains(&end)
    }

    fn evaluated(&mut self, cache: &Cache, logits: Option<&Array>) {
        if let Some(logits) = logits.filter(|_| self.positions.contains(&cache.offset())) {
            self.snapshots.push(Snapshot::new(cache, logits));
        }
    }
}

/// The groups of positions in `start..end` that see each other, from `start`.
fn groups(prompt: &Prompt, start: usize, end: usize) -> Vec<(i32, i32)> {
    let groups = prompt.attention.groups().iter();
    groups
        .filter(|group| (start..end).contains(&group.start))
        .map(|group| ((group.start - start) as i32, group.len() as i32))
        .collect()
}

/// Where forward calls end: where [`Prompt::chunk_ends`] says, and at those of `wanted` where
/// a prompt may be cut.
fn chunk_ends(prompt: &Prompt, size: NonZeroUsize, wanted: &[usize]) -> Vec<usize> {
    let mut ends = prompt.chunk_ends(size);
    let inside = |&at: &usize| (1..prompt.len()).contains(&at) && prompt.can_cut_at(at);
    ends.extend(wanted.iter().copied().filter(inside));
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Where the tokens `start..end` are for rotary embeddings in three dimensions.
fn positions_of(prompt: &Prompt, start: usize, end: usize) -> Positions {
    let prompt::Positions::Mrope(mrope) = &prompt.positions else {
        return Positions::From(start as i32);
    };
    let axes = mrope.ids.each_ref().map(|axis| &axis[start..end]);
    let first = axes[0].first().copied().unwrap_or_default();
    let is_text = |axis: &&[i32]| axis.iter().copied().eq(first..first + (end - start) as i32);
    if axes.iter().all(is_text) {
        return Positions::From(first);
    }
    let shape = [3, (end - start) as i32];
    Positions::Each(Array::from_slice(&axes.concat(), &shape))
}

/// What is to be added to the index of a token after the first `end` to get its position.
fn rope_delta_after(prompt: &Prompt, end: usize) -> i32 {
    let prompt::Positions::Mrope(mrope) = &prompt.positions else {
        return 0;
    };
    let largest = mrope.ids.iter().flat_map(|axis| &axis[..end]).max();
    largest.map_or(0, |largest| largest + 1 - end as i32)
}

/// The rows of features that lie in `start..end` of the prompt.
fn placed(
    prepared: &PreparedPrompt,
    features: &[Option<Array>],
    start: usize,
    end: usize,
) -> Result<Vec<Placed>> {
    let mut placed = Vec::new();
    for span in &prepared.prompt.spans {
        let (from, to) = (span.start.max(start), span.end().min(end));
        if from < to
            && let Some(rows) = &features[span.medium]
        {
            let first = span.offset + from - span.start;
            let last = first + to - from;
            placed.push(Placed {
                start: (from - start) as i32,
                rows: rows.try_index((first as i32..last as i32, ..))?,
            });
        }
    }
    Ok(placed)
}

/// Whether every medium beyond `start` has as many rows of features as it has places in the
/// prompt: MLX checks no index.
fn check_features(
    prepared: &PreparedPrompt,
    features: &[Option<Array>],
    start: usize,
) -> Result<()> {
    let found = |medium: usize| {
        let rows = features.get(medium).and_then(Option::as_ref);
        rows.map_or(0, |rows| rows.dim(0) as usize)
    };
    let mut places = vec![0; features.len()];
    for span in &prepared.prompt.spans {
        let (expected, found) = (span.offset + span.length, found(span.medium));
        if span.end() > start && expected > found {
            return Err(Error::FeatureRows {
                kind: span.kind,
                expected,
                found,
            });
        }
        if let Some(places) = places.get_mut(span.medium) {
            *places += span.length;
        }
    }
    for (index, (medium, expected)) in prepared.media.iter().zip(places).enumerate() {
        // Those that lie in the prefix were checked when it was computed.
        let found = match &features[index] {
            Some(rows) => rows.dim(0) as usize,
            None => medium.soft_tokens(),
        };
        if expected != found {
            return Err(Error::FeatureRows {
                kind: medium.kind(),
                expected,
                found,
            });
        }
    }
    Ok(())
}
