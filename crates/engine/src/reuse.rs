//! What was computed once, kept in memory and on disk, and found again.
//!
//! A prompt is cut into blocks, each with a key that says all that it depends on (see
//! `prefill-multimodal-prompt`). Under the keys are kept the rows of the layers that see every
//! token; at some places also a checkpoint of the others, which have a window or a state; and
//! under keys of their own the features of media. Everything is immutable: a hit shares it.

mod daily;
mod disk;
mod feeding;
mod find;
mod fingerprint;
mod keeper;
mod keeping;
mod look_up;
mod marks;
mod options;
mod prefix_cache;
mod ram;
mod rates;
mod record;
mod report;
mod tails;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;
use prefill_multimodal_prompt::{BlockKeys, Key, KeySpace, MediaKind, Prompt, Span};

use self::disk::{Disk, Written};
pub(crate) use self::feeding::{keep_answer, prefill};
pub use self::find::Shortfall;
pub(crate) use self::fingerprint::{Contents, Fingerprints};
use self::keeper::Keeper;
pub(crate) use self::look_up::{Lookup, media_beyond};
use self::marks::{Mark, Marking};
pub use self::options::{CacheOptions, CachePolicy, DiskOptions, Gate};
pub use self::prefix_cache::{Kept, PrefixCache};
use self::ram::{Ram, Standing};
use self::rates::Rates;
use self::record::{About, New, Piece, RecordKey, Role};
pub use self::report::{CacheStats, Reused};
use crate::Result;

/// Tails that are worth no sweep.
const FEW_TAILS: usize = 4096;

/// All that is kept for one model. Any thread may look things up; arrays are only worked with
/// on the MLX thread.
#[derive(Debug)]
pub(crate) struct Reuse {
    options: CacheOptions,
    space: KeySpace,
    marking: Marking,
    /// Whether a prefix needs a checkpoint at its end.
    needs_checkpoint: bool,
    ram: Mutex<Ram>,
    disk: Option<Disk>,
    rates: Mutex<Rates>,
    stats: Mutex<CacheStats>,
    /// How many tails were left when those were forgotten of which nothing is kept.
    tails_after_sweep: AtomicUsize,
    keeper: Mutex<Option<Keeper>>,
}

impl Reuse {
    /// An empty memory, and what is on disk already. If not `behind`, only a
    /// [`write`](Self::write) writes, and what has to leave memory.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store).
    pub(crate) fn open(
        options: CacheOptions,
        fingerprints: Fingerprints,
        turn_ids: Vec<u32>,
        needs_checkpoint: bool,
        model_type: &str,
        behind: bool,
    ) -> Result<Arc<Self>> {
        let mut space = KeySpace::new(fingerprints.model).block_size(options.block_size)?;
        for kind in MediaKind::ALL {
            space = space.encoder(kind, fingerprints.encoders);
        }
        let (disk, written) = match &options.disk {
            Some(disk) => {
                let contents = Key::from(fingerprints.checkpoint).to_string();
                let namespace = format!("{model_type} {}", &contents[..16]);
                let (disk, written) = Disk::open(disk, &namespace)?;
                (Some(disk), written)
            }
            None => (None, None),
        };
        let mut ram = Ram::new(options.ram_bytes);
        if let Some(disk) = &disk {
            note_tails(disk, &mut ram);
        }
        let reuse = Arc::new(Self {
            marking: Marking {
                turn_ids,
                interval: options.block_size * options.checkpoint_blocks,
            },
            space,
            needs_checkpoint,
            ram: Mutex::new(ram),
            disk,
            rates: Mutex::default(),
            stats: Mutex::default(),
            tails_after_sweep: AtomicUsize::new(0),
            keeper: Mutex::default(),
            options,
        });
        if let Some(written) = written {
            *reuse.keeper.lock() = Some(Keeper::start(&reuse, written, behind)?);
        }
        Ok(reuse)
    }

    /// The keys of a prompt's blocks.
    ///
    /// # Errors
    /// [`Error::Prompt`](crate::Error::Prompt).
    pub(crate) fn keys(&self, prompt: &Prompt, salt: Option<&[u8]>) -> Result<BlockKeys> {
        let mut space = self.space.clone();
        if let Some(salt) = salt {
            space = space.salt(salt);
        }
        let mut prompt = prompt.clone();
        if self.options.has_blind_keys {
            for span in &mut prompt.spans {
                span.digest = [0; 32];
            }
        }
        Ok(BlockKeys::new(space, prompt)?)
    }

    pub(crate) fn marks(&self, prompt: &Prompt) -> Vec<Mark> {
        self.marking.marks(prompt)
    }

    /// Whether forward calls must end where a checkpoint is taken.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        self.needs_checkpoint
    }

    /// Whether something is in memory already.
    pub(crate) fn is_in_ram(&self, name: RecordKey) -> bool {
        self.ram.lock().contains(name)
    }

    /// Keeps what was computed: in memory, and later on disk if it is not there.
    pub(crate) fn keep(&self, new: New) {
        let writer = self.disk.as_ref().filter(|disk| disk.writes());
        let is_new = writer.is_some_and(|disk| !disk.contains(new.name));
        let standing = if is_new {
            Standing::Unwritten
        } else {
            Standing::Settled
        };
        let leaving = self.ram.lock().insert(new, standing);
        self.write_leaving(leaving);
        if is_new && let Some(keeper) = &*self.keeper.lock() {
            keeper.wake(Instant::now());
        }
    }

    /// Keeps what was read from disk.
    fn promote(&self, new: New) {
        let leaving = self.ram.lock().insert(new, Standing::Settled);
        self.write_leaving(leaving);
    }

    /// Notes that a prefix ends at `position`, inside a block.
    pub(crate) fn note_tail(&self, parent: Key, key: Key, position: usize, role: Role) {
        let mut ram = self.ram.lock();
        // What was evicted, here or on disk, leaves its name behind. Now and then they go.
        let mut tails = std::mem::take(&mut ram.tails);
        if tails.len() > self.tails_after_sweep.load(Relaxed) * 2 + FEW_TAILS {
            tails.retain(|key| {
                let name = RecordKey::rows(key);
                ram.contains(name) || self.is_on_disk(name)
            });
            self.tails_after_sweep.store(tails.len(), Relaxed);
        }
        ram.tails = tails;
        ram.note_tail(parent, key, position, role);
    }

    fn is_on_disk(&self, name: RecordKey) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.contains(name))
    }

    /// Drops the tails of a prompt's chain that the prompt's own marks supersede.
    pub(crate) fn supersede(&self, keys: &BlockKeys, prompt: &Prompt) {
        let latest = prompt.resume_at_or_before(prompt.len());
        let medium = prompt.spans.last().map(Span::end);
        let mut removed = Vec::new();
        {
            let mut ram = self.ram.lock();
            for (parent, tail) in ram.tails.superseded(keys, latest, medium) {
                ram.tails.remove(parent, tail.key);
                for name in [RecordKey::checkpoint(tail.key), RecordKey::rows(tail.key)] {
                    ram.remove(name);
                    removed.push(name);
                }
            }
        }
        if let Some(disk) = &self.disk {
            removed.retain(|name| disk.contains(*name));
            if !removed.is_empty() {
                disk.write(Vec::new(), &removed);
            }
        }
    }

    /// Frees memory until at most `bytes` are kept there. On the MLX thread.
    pub(crate) fn shrink_to(&self, bytes: u64) {
        let leaving = self.ram.lock().shrink_to(bytes);
        self.write_leaving(leaving);
    }

    /// Bytes kept in memory.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.ram.lock().used()
    }

    /// Writes all that is still to be written. On the MLX thread.
    pub(crate) fn write(&self) {
        let names = self.ram.lock().unwritten();
        let news: Vec<(New, u32)> = {
            let mut ram = self.ram.lock();
            let begun = names.into_iter().filter_map(|name| {
                let new = ram.begin_writing(name)?;
                Some((new, ram.uses(name)))
            });
            begun.collect()
        };
        self.hand_over(news);
    }

    /// What leaves memory and is not on disk is written at once.
    fn write_leaving(&self, leaving: Vec<New>) {
        // A use is counted when something is used again: what leaves has nothing to show.
        let news = leaving.into_iter().map(|new| (new, 1)).collect();
        self.hand_over(news);
    }

    fn hand_over(&self, news: Vec<(New, u32)>) {
        if news.is_empty() {
            return;
        }
        let Some(disk) = &self.disk else { return };
        let handed = disk.write(news, &[]);
        let mut stats = self.stats.lock();
        stats.dropped_bytes += handed.dropped_bytes;
        stats.queued_bytes += handed.queued_bytes;
        drop(stats);
        let mut ram = self.ram.lock();
        for name in handed.settled {
            ram.settle(name);
        }
    }

    /// Takes memory back that was lent to the writer. On the MLX thread.
    pub(crate) fn acknowledge(&self, written: &Written) {
        let Some(disk) = &self.disk else { return };
        let (names, is_written) = disk.acknowledge(written);
        {
            let mut stats = self.stats.lock();
            match &written.result {
                Ok(report) => stats.written_bytes += report.bytes_written,
                Err(_) => stats.failed_writes += 1,
            }
        }
        tracing::debug!(records = names.len(), is_written, "a batch is done");
        let leaving = {
            let mut ram = self.ram.lock();
            for name in names {
                ram.settle(name);
            }
            // Pins went: the budget holds again.
            ram.fit()
        };
        self.write_leaving(leaving);
    }

    /// Waits, on any thread but MLX's, until what was handed over is written.
    pub(crate) fn flush(&self) {
        if let Some(disk) = &self.disk {
            disk.flush();
        }
    }

    /// Waits until what was handed over is written, and takes the memory back. On the MLX
    /// thread, where nothing else is done meanwhile: for when memory is short.
    pub(crate) fn flush_here(&self) {
        self.flush();
        let written = self.keeper.lock().as_ref().map(Keeper::written);
        for written in written.into_iter().flatten() {
            self.acknowledge(&written);
        }
    }

    /// Ends the thread that writes behind, after what it was handed, and drops all memory. On
    /// the MLX thread.
    pub(crate) fn close(&self) {
        // Its receiver gives back what was lent.
        let keeper = self.keeper.lock().take();
        if let Some(keeper) = keeper {
            for written in keeper.stop() {
                self.acknowledge(&written);
            }
        }
        self.ram.lock().clear();
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let mut stats = self.stats.lock().clone();
        let ram = self.ram.lock();
        (stats.ram_bytes, stats.ram_records) = (ram.used(), ram.len());
        stats.ram_limit = ram.limit();
        if let Some(disk) = &self.disk {
            let of_store = disk.store.stats();
            stats.disk_bytes = of_store.used_bytes;
            stats.disk_records = of_store.records as usize;
        }
        stats
    }

    /// Drops what is kept in memory.
    pub(crate) fn clear_ram(&self) {
        self.ram.lock().clear();
    }
}

/// Where prefixes end inside blocks, of what is on disk.
fn note_tails(disk: &Disk, ram: &mut Ram) {
    for listed in disk.store.list() {
        let record = listed.record;
        let is_ours = record.namespace == disk.namespace.name();
        if !is_ours || record.kind != prefill_kv_store::Kind::Rows {
            continue;
        }
        if let Some(about) = About::decode(&record.metadata)
            && about.role != Role::Block
        {
            let key = Key::from(*record.key.as_bytes());
            ram.note_tail(about.before, key, about.position, about.role);
        }
    }
}

/// The rows that a record is useless without: of a checkpoint those of its own key, of rows
/// those before them.
fn parent_rows(name: RecordKey, about: &About) -> Option<RecordKey> {
    match name.piece {
        Piece::Checkpoint => Some(RecordKey::rows(name.key)),
        // The key before the first block is a root, under which nothing is kept.
        Piece::Rows => Some(RecordKey::rows(about.before)),
        Piece::Features => None,
    }
}
