//! A prefill that computes only what is not kept, and keeps what it computes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use mlx_rs::Array;
use mlx_rs::transforms::eval;

use super::keeping::Keeping;
use super::look_up::Lookup;
use super::marks::Mark;
use super::options::CachePolicy;
use crate::Result;
use crate::cache::Cache;
use crate::model::{Model, Observer, Progress, Run};
use crate::prompt::PreparedPrompt;
use crate::sequence::Sequence;

/// Feeds what of a prompt is not kept. On the MLX thread.
///
/// # Errors
/// Those of [`Model::prefill`].
pub(crate) fn prefill<'m>(
    model: &'m Model,
    prepared: &PreparedPrompt,
    lookup: &mut Lookup,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Sequence<'m>> {
    let resumed = lookup.resume(|| model.new_cache(), model.kv());
    let started = Instant::now();
    let reuse = Arc::clone(lookup.reuse());
    let prompt = &prepared.prompt;
    let marks = reuse.marks(prompt);
    let stops = stops(model, &marks);
    let mut feeding = Feeding {
        model,
        prepared,
        keeping: Keeping::new(&reuse, marks, resumed.position),
        encoded: Vec::new(),
        started,
        lookup,
    };
    let run = Run {
        prepared,
        start: resumed.position,
        cache: resumed.cache,
        stops: &stops,
    };
    let sequence = model.run(run, &mut feeding, progress);
    let kept_bytes = feeding.keeping.kept_bytes;
    let sequence = sequence?;
    let time = started.elapsed().saturating_sub(sequence.encode_time());
    lookup.conclude(prompt.len() - resumed.position, time, kept_bytes);
    if lookup.policy == CachePolicy::ReadWrite {
        reuse.supersede(&lookup.keys, prompt);
    }
    Ok(sequence)
}

/// Where forward calls must end for what is kept at these marks: a state is that of the last
/// token fed.
pub(super) fn stops(model: &Model, marks: &[Mark]) -> Vec<usize> {
    if model.has_states() {
        marks.iter().map(|mark| mark.position).collect()
    } else {
        Vec::new()
    }
}

/// Keeps the end of an answer, for the turn that comes after it. That it can't be kept is no
/// fault of the answer. On the MLX thread.
pub(crate) fn keep_answer(sequence: &Sequence<'_>, lookup: &mut Lookup) {
    let cache = sequence.cache();
    let known = lookup.keys.len();
    // What a step that failed leaves behind is not kept.
    let is_whole = cache.offset() == sequence.ids().len();
    if lookup.policy != CachePolicy::ReadWrite || !is_whole || cache.offset() <= known {
        return;
    }
    let span = tracing::debug_span!("keep_answer", tokens = cache.offset());
    let _entered = span.enter();
    lookup.keys.push(&sequence.ids()[known..]);
    let mut keeping = Keeping::new(lookup.reuse(), Vec::new(), known);
    let taken = keeping
        .take_answer(&lookup.keys, cache, sequence.model().kv())
        .and_then(|arrays| Ok(eval(arrays)?));
    match taken {
        Ok(()) => keeping.commit(),
        Err(error) => tracing::warn!(%error, "an answer is not kept"),
    }
    lookup.add_kept(keeping.kept_bytes);
}

/// Supplies what a prefill needs of what is kept, and keeps what it computes.
struct Feeding<'f> {
    model: &'f Model,
    prepared: &'f PreparedPrompt,
    lookup: &'f mut Lookup,
    keeping: Keeping,
    /// Media that went through their tower, by index.
    encoded: Vec<(usize, Array)>,
    started: Instant,
}

impl Observer for Feeding<'_> {
    fn features(&mut self, medium: usize) -> Result<Array> {
        let prepared = &self.prepared.media[medium];
        // The same medium may be there twice.
        let digest = prepared.digest();
        let twin = self
            .encoded
            .iter()
            .find(|(index, _)| self.prepared.media[*index].digest() == digest);
        if let Some((_, rows)) = twin {
            return Ok(rows.clone());
        }
        if let Some(rows) = self.lookup.features(prepared) {
            return Ok(rows);
        }
        let rows = self.model.encode(prepared)?;
        self.encoded.push((medium, rows.clone()));
        Ok(rows)
    }

    fn encoded(&mut self) {
        let time = self.started.elapsed();
        self.lookup
            .keep_features(self.prepared, std::mem::take(&mut self.encoded), time);
    }

    fn take(&mut self, cache: &Cache) -> Result<Vec<Array>> {
        if self.lookup.policy != CachePolicy::ReadWrite {
            return Ok(Vec::new());
        }
        let taken = self
            .keeping
            .take(&self.lookup.keys, cache, self.model.kv())
            .map(|arrays| arrays.cloned().collect());
        // That something can't be kept is no fault of the request.
        Ok(taken.unwrap_or_else(|error| {
            tracing::warn!(%error, "a part of a prompt is not kept");
            self.keeping.forget();
            Vec::new()
        }))
    }

    fn evaluated(&mut self, _: &Cache, _: Option<&Array>) {
        self.keeping.commit();
    }
}
