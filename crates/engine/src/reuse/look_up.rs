//! What a request finds: looked up on its own thread, taken over on MLX's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx_rs::Array;
use mlx_rs::transforms::eval;
use prefill_multimodal_prompt::{BlockKeys, Key, Prompt};

use super::disk::{Disk, Read, is_damage};
use super::find::{Found, Shortfall, longest};
use super::options::{CachePolicy, Gate};
use super::record::{About, New, Record, RecordKey};
use super::report::Reused;
use super::{Reuse, parent_rows};
use crate::Result;
use crate::cache::{Cache, KvQuantization, Part, Prefix};
use crate::prompt::{PreparedMedium, PreparedPrompt};

/// What is there for one request.
#[derive(Debug)]
pub(crate) struct Lookup {
    reuse: Arc<Reuse>,
    pub keys: BlockKeys,
    pub policy: CachePolicy,
    /// Read from disk, not yet arrays.
    read: HashMap<RecordKey, Read>,
    /// Read from disk, as arrays.
    restored: HashMap<RecordKey, Record>,
    /// In memory, and kept there for this request.
    pinned: Vec<RecordKey>,
    shortfall: Option<Shortfall>,
    reused: Reused,
}

/// Where a prefill begins.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub cache: Cache,
    pub position: usize,
}

impl Reuse {
    /// Finds the longest prefix of a prompt that can be resumed, and the features of the media
    /// beyond it. Reads what is on disk only. On the caller's thread.
    ///
    /// # Errors
    /// [`Error::Prompt`](crate::Error::Prompt) for a prompt that has no keys.
    pub(crate) fn look_up(
        self: &Arc<Self>,
        prompt: &Prompt,
        media: &[PreparedMedium],
        salt: Option<&[u8]>,
        policy: CachePolicy,
    ) -> Result<Lookup> {
        let span = tracing::debug_span!("look_up", tokens = prompt.len());
        let _entered = span.enter();
        let mut lookup = Lookup {
            reuse: Arc::clone(self),
            keys: self.keys(prompt, salt)?,
            policy,
            read: HashMap::new(),
            restored: HashMap::new(),
            pinned: Vec::new(),
            shortfall: None,
            reused: Reused::default(),
        };
        if policy == CachePolicy::Bypass {
            lookup.shortfall = Some(Shortfall::NotAsked);
            return Ok(lookup);
        }
        let position = lookup.find_prefix();
        lookup.find_features(media, position);
        Ok(lookup)
    }

    fn longest(&self, keys: &BlockKeys, has: impl Fn(RecordKey, bool) -> bool) -> Found {
        let ram = self.ram.lock();
        longest(keys, &ram.tails, self.needs_checkpoint, |name| {
            has(name, ram.contains(name))
        })
    }
}

impl Lookup {
    /// Reads what leads to the longest prefix and is not in memory. Gives its length.
    fn find_prefix(&mut self) -> usize {
        let reuse = Arc::clone(&self.reuse);
        let in_ram = reuse.longest(&self.keys, |_, in_ram| in_ram);
        // Pinned before anything is read, so that it is still there afterwards.
        self.pin(in_ram.records());
        let mut position = in_ram.position;
        if let Some(disk) = &reuse.disk {
            let mut bad = HashSet::new();
            loop {
                let on_both = reuse.longest(&self.keys, |name, in_ram| {
                    in_ram || (!bad.contains(&name) && disk.contains(name))
                });
                if on_both.position <= in_ram.position {
                    break;
                }
                self.pin(on_both.records());
                let absent: Vec<RecordKey> = {
                    let ram = reuse.ram.lock();
                    on_both
                        .records()
                        .filter(|name| !ram.contains(*name))
                        .collect()
                };
                let more = on_both.position - in_ram.position;
                if !self.is_worth_reading(disk, &absent, more, |rates| rates.prefill) {
                    self.shortfall = Some(Shortfall::NotWorthReading);
                    break;
                }
                match self.read(disk, &absent) {
                    Ok(()) => {
                        position = on_both.position;
                        break;
                    }
                    // One is gone or damaged. So may the others be, and what is not noticed
                    // now would be found, and cost as much, again.
                    Err(name) => {
                        bad.insert(name);
                        bad.extend(absent.into_iter().filter(|name| !disk.is_sound(*name)));
                    }
                }
            }
        }
        position
    }

    /// Reads the features of media that reach beyond the first `position` tokens.
    fn find_features(&mut self, media: &[PreparedMedium], position: usize) {
        let reuse = Arc::clone(&self.reuse);
        let mut names: Vec<(RecordKey, usize)> = Vec::new();
        for medium in media_beyond(self.keys.prompt(), position) {
            if let Some(medium) = media.get(medium)
                && let Some(key) = self.encoder_key(medium)
            {
                names.push((RecordKey::features(key), medium.soft_tokens()));
            }
        }
        self.pin(names.iter().map(|(name, _)| *name));
        let Some(disk) = &reuse.disk else { return };
        for (name, soft_tokens) in names {
            let is_known = self.read.contains_key(&name) || reuse.ram.lock().contains(name);
            if !is_known
                && disk.contains(name)
                && self.is_worth_reading(disk, &[name], soft_tokens, |rates| rates.encode)
            {
                // What can't be read is encoded.
                let _ = self.read(disk, &[name]);
            }
        }
    }

    fn is_worth_reading(
        &self,
        disk: &Disk,
        names: &[RecordKey],
        units: usize,
        computing: impl Fn(&super::Rates) -> super::rates::Rate,
    ) -> bool {
        if self.reuse.options.gate == Gate::Open {
            return true;
        }
        let bytes = names.iter().filter_map(|name| disk.bytes_of(*name)).sum();
        let mut rates = self.reuse.rates.lock();
        let computing = computing(&rates);
        rates.is_worth_reading(bytes, units as u64, computing)
    }

    /// # Errors
    /// The first that can't be had.
    fn read(&mut self, disk: &Disk, names: &[RecordKey]) -> Result<(), RecordKey> {
        let started = Instant::now();
        match disk.read(names) {
            Ok(read) => {
                let bytes = read.iter().map(Read::bytes).sum();
                self.reused.restored_bytes += bytes;
                self.reuse.rates.lock().read.note(bytes, started.elapsed());
                self.read.extend(names.iter().copied().zip(read));
                Ok(())
            }
            Err(failure) => {
                let (name, error) = *failure;
                self.reuse.stats.lock().faults += 1;
                if is_damage(&error) {
                    self.shortfall = Some(Shortfall::Damaged);
                }
                Err(name)
            }
        }
    }

    /// Keeps those that are in memory there until this request is done.
    fn pin(&mut self, names: impl Iterator<Item = RecordKey>) {
        let mut ram = self.reuse.ram.lock();
        self.pinned.extend(names.filter(|name| ram.pin(*name)));
    }

    /// The key of a medium's features.
    pub(crate) fn encoder_key(&self, medium: &PreparedMedium) -> Option<Key> {
        let space = self.keys.space();
        // Of the medium itself: features are not where blind keys are blind.
        space.encoder_key(medium.kind(), &medium.digest().0)
    }

    /// A cache that holds as much of the prompt as there is. What was computed since the
    /// look-up counts. On the MLX thread.
    pub(crate) fn resume(
        &mut self,
        new_cache: impl Fn() -> Cache,
        kv: Option<&KvQuantization>,
    ) -> Resumed {
        let span = tracing::debug_span!("resume");
        let _entered = span.enter();
        let cold = |cache| Resumed { cache, position: 0 };
        if self.policy == CachePolicy::Bypass {
            return cold(new_cache());
        }
        self.take_in();
        let found = {
            let restored = &self.restored;
            let has = |name, in_ram| in_ram || restored.contains_key(&name);
            self.reuse.longest(&self.keys, has)
        };
        if found.shortfall.is_none() {
            self.shortfall = None;
        }
        self.shortfall = self.shortfall.or(found.shortfall);
        if found.position == 0 {
            return cold(new_cache());
        }
        match self.lead(&found, new_cache(), kv) {
            Ok(resumed) => resumed,
            Err(error) => {
                tracing::warn!(%error, "what was kept of a prompt does not fit it");
                self.reuse.stats.lock().faults += 1;
                self.shortfall = Some(Shortfall::Damaged);
                (self.reused.ram_tokens, self.reused.disk_tokens) = (0, 0);
                cold(new_cache())
            }
        }
    }

    /// Makes arrays of what was read, and keeps them in memory.
    fn take_in(&mut self) {
        for (name, read) in self.read.drain() {
            match read.into_record() {
                Ok(record) => {
                    self.restored.insert(name, record);
                }
                Err(error) => {
                    tracing::warn!(?name, %error, "a kept record is not what it should be");
                    self.reuse.stats.lock().faults += 1;
                }
            }
        }
        let arrays = self.restored.values().flat_map(|record| &record.arrays);
        if let Err(error) = eval(arrays) {
            tracing::warn!(%error, "what was read does not reach the device");
            self.reuse.stats.lock().faults += 1;
            self.restored.clear();
        }
        let mut names: Vec<_> = self.restored.keys().copied().collect();
        // Parents before their children.
        names.sort_by_key(|name| (self.restored[name].about.position, name.piece));
        for name in names {
            let record = self.restored[&name].clone();
            self.reuse.promote(New {
                name,
                parent: parent_rows(name, &record.about),
                cost: cost_of(&record, self.keys.space().positions_per_block().get()),
                record,
            });
        }
    }

    fn lead(
        &mut self,
        found: &Found,
        mut cache: Cache,
        kv: Option<&KvQuantization>,
    ) -> Result<Resumed> {
        let mut prefix = Prefix {
            position: found.position,
            ..Prefix::default()
        };
        for &(name, from, to) in &found.rows {
            let (record, is_restored) = self.record(name)?;
            if is_restored {
                self.reused.disk_tokens += to - from;
            } else {
                self.reused.ram_tokens += to - from;
            }
            prefix
                .rows
                .push(part(record.about.is_quantized, record.arrays));
        }
        if let Some(name) = found.checkpoint {
            let (record, _) = self.record(name)?;
            let windows = record.about.window_arrays.min(record.arrays.len());
            let (window, states) = record.arrays.split_at(windows);
            if !window.is_empty() {
                prefix.window = Some(part(record.about.is_quantized, window.to_vec()));
            }
            prefix.states = states.to_vec();
        }
        cache.resume(&prefix, kv)?;
        eval(cache.arrays())?;
        Ok(Resumed {
            cache,
            position: found.position,
        })
    }

    /// A record, and whether it came from disk for this request.
    fn record(&self, name: RecordKey) -> Result<(Record, bool)> {
        if let Some(record) = self.restored.get(&name) {
            return Ok((record.clone(), true));
        }
        let record = self.reuse.ram.lock().get(name);
        let record = record.ok_or_else(|| crate::Error::CachedPart {
            fact: "it vanished".to_owned(),
        })?;
        Ok((record, false))
    }

    /// A medium's features, if they are kept. On the MLX thread.
    pub(crate) fn features(&mut self, medium: &PreparedMedium) -> Option<Array> {
        if self.policy == CachePolicy::Bypass {
            return None;
        }
        let name = RecordKey::features(self.encoder_key(medium)?);
        let (record, is_restored) = self.record(name).ok()?;
        let [rows] = record.arrays.as_slice() else {
            return None;
        };
        if rows.ndim() != 2 || rows.dim(0) as usize != medium.soft_tokens() {
            return None;
        }
        if is_restored {
            self.reused.disk_media += 1;
        } else {
            self.reused.ram_media += 1;
        }
        Some(rows.clone())
    }

    /// Keeps the features of media that went through their tower, which took so long.
    pub(crate) fn keep_features(
        &mut self,
        prepared: &PreparedPrompt,
        encoded: Vec<(usize, Array)>,
        time: Duration,
    ) {
        self.reused.encoded_media = encoded.len();
        let media = || encoded.iter().map(|(index, _)| &prepared.media[*index]);
        let soft_tokens: usize = media().map(PreparedMedium::soft_tokens).sum();
        self.reuse
            .rates
            .lock()
            .encode
            .note(soft_tokens as u64, time);
        if self.policy != CachePolicy::ReadWrite {
            return;
        }
        for (index, rows) in encoded {
            let medium = &prepared.media[index];
            if let Some(key) = self.encoder_key(medium)
                && rows.size() > 0
            {
                let record = Record {
                    about: About::features(key),
                    arrays: vec![rows],
                };
                self.reused.kept_bytes += record.bytes();
                self.reuse.keep(New {
                    name: RecordKey::features(key),
                    parent: None,
                    cost: medium.soft_tokens() as f64,
                    record,
                });
            }
        }
    }

    /// The prompt is fed: `computed` tokens in that time.
    pub(crate) fn conclude(&mut self, computed: usize, time: Duration, kept_bytes: u64) {
        self.reused.kept_bytes += kept_bytes;
        self.reused.shortfall = self.shortfall;
        let prompt = self.keys.prompt();
        let beyond = media_beyond(prompt, prompt.len() - computed).len();
        self.reused.media_in_prefix = media_beyond(prompt, 0).len() - beyond;
        // Few tokens take as long as one call does, and say nothing of many.
        if computed >= self.keys.space().positions_per_block().get() {
            self.reuse.rates.lock().prefill.note(computed as u64, time);
        }
        let mut stats = self.reuse.stats.lock();
        stats.restored_bytes += self.reused.restored_bytes;
        stats.ram_tokens += self.reused.ram_tokens as u64;
        stats.disk_tokens += self.reused.disk_tokens as u64;
        stats.computed_tokens += computed as u64;
        stats.reused_media += (self.reused.ram_media + self.reused.disk_media) as u64;
        stats.encoded_media += self.reused.encoded_media as u64;
    }

    pub(crate) fn add_kept(&mut self, bytes: u64) {
        self.reused.kept_bytes += bytes;
    }

    /// What was reused so far.
    pub(crate) fn reused(&self) -> Reused {
        self.reused
    }

    pub(crate) fn reuse(&self) -> &Arc<Reuse> {
        &self.reuse
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        let mut ram = self.reuse.ram.lock();
        for name in self.pinned.drain(..) {
            ram.unpin(name);
        }
    }
}

/// Media of which some soft token lies beyond the first `position`, each once.
pub(crate) fn media_beyond(prompt: &Prompt, position: usize) -> Vec<usize> {
    let spans = prompt.spans.iter().filter(|span| span.end() > position);
    let mut media: Vec<usize> = spans.map(|span| span.medium).collect();
    media.dedup();
    media
}

fn part(is_quantized: bool, arrays: Vec<Array>) -> Part {
    Part {
        arrays,
        is_quantized,
    }
}

/// Tokens that a restored record spares: those of its block, up to its end.
fn cost_of(record: &Record, block: usize) -> f64 {
    let position = record.about.position;
    let in_block = position % block;
    (if in_block == 0 { block } else { in_block }) as f64
}
