//! What is kept in memory, within a budget of bytes.

use std::collections::HashMap;

use prefill_multimodal_prompt::Key;
use prefill_retention::{Adaptive, Budget, Evicted, NewEntry, Refusal};

use super::record::{New, Piece, Record, RecordKey, Role};
use super::tails::{Tail, Tails};

/// How a record in memory stands to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It will be written.
    Unwritten,
    /// The writer has it. It stays in memory meanwhile.
    Writing,
    /// It is on disk, or never goes there.
    Settled,
}

#[derive(Debug)]
struct Held {
    record: Record,
    parent: Option<RecordKey>,
    cost: f64,
    standing: Standing,
}

/// Records by name, and the books of the policy that chooses what goes.
#[derive(Debug)]
pub(crate) struct Ram {
    budget: Budget<RecordKey, Adaptive>,
    held: HashMap<RecordKey, Held>,
    pub tails: Tails,
}

impl Ram {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            budget: Budget::new(limit, Adaptive::default()),
            held: HashMap::new(),
            tails: Tails::default(),
        }
    }

    pub(crate) fn contains(&self, name: RecordKey) -> bool {
        self.held.contains_key(&name)
    }

    /// A record, which shares its arrays with what is kept. Counts as a use.
    pub(crate) fn get(&mut self, name: RecordKey) -> Option<Record> {
        let held = self.held.get(&name)?;
        self.budget.access(&name);
        Some(held.record.clone())
    }

    /// Takes a record in. What had to go for it and is not on disk comes back.
    pub(crate) fn insert(&mut self, new: New, standing: Standing) -> Vec<New> {
        let New {
            name,
            parent,
            cost,
            record,
        } = new;
        if self.held.contains_key(&name) {
            self.budget.access(&name);
            return Vec::new();
        }
        let bytes = record.bytes();
        let held = Held {
            record,
            parent,
            cost,
            standing,
        };
        let present = parent.filter(|parent| self.budget.contains(parent));
        let mut entry = NewEntry::new(bytes, cost);
        entry.parent = present.as_ref();
        match self.budget.insert(name, entry) {
            Ok(evicted) => {
                self.held.insert(name, held);
                self.drop_evicted(evicted)
            }
            Err(refusal) => {
                tracing::debug!(?name, bytes, %refusal, "not kept in memory");
                // It may still go to the disk.
                match refusal {
                    Refusal::Present => Vec::new(),
                    _ => held.into_unwritten(name).into_iter().collect(),
                }
            }
        }
    }

    /// Removes a record, with what is useless without it.
    pub(crate) fn remove(&mut self, name: RecordKey) {
        for evicted in self.budget.remove(&name) {
            self.held.remove(&evicted.key);
        }
    }

    /// Frees memory until at most `bytes` are held, or all that is left is in use. What is
    /// not on disk comes back.
    pub(crate) fn shrink_to(&mut self, bytes: u64) -> Vec<New> {
        let evicted = self.budget.evict_to(bytes).collect();
        self.drop_evicted(evicted)
    }

    /// Applies the limit again, after pins went.
    pub(crate) fn fit(&mut self) -> Vec<New> {
        self.shrink_to(self.budget.limit())
    }

    fn drop_evicted(&mut self, evicted: Vec<Evicted<RecordKey>>) -> Vec<New> {
        evicted
            .into_iter()
            .filter_map(|evicted| {
                let name = evicted.key;
                self.held.remove(&name)?.into_unwritten(name)
            })
            .collect()
    }

    /// Keeps a record from eviction until it is unpinned as often.
    pub(crate) fn pin(&mut self, name: RecordKey) -> bool {
        self.budget.pin(&name)
    }

    pub(crate) fn unpin(&mut self, name: RecordKey) {
        self.budget.unpin(&name);
    }

    /// A record that is to be written, to be handed to the writer; it then stays here until it
    /// is settled.
    pub(crate) fn begin_writing(&mut self, name: RecordKey) -> Option<New> {
        let held = self.held.get_mut(&name)?;
        if held.standing != Standing::Unwritten {
            return None;
        }
        held.standing = Standing::Writing;
        self.budget.pin(&name);
        Some(New {
            name,
            parent: held.parent,
            cost: held.cost,
            record: held.record.clone(),
        })
    }

    /// Notes that a record is written, or will not be.
    pub(crate) fn settle(&mut self, name: RecordKey) {
        if let Some(held) = self.held.get_mut(&name) {
            if held.standing == Standing::Writing {
                self.budget.unpin(&name);
            }
            held.standing = Standing::Settled;
        }
    }

    /// Records that are still to be written, parents before their children.
    pub(crate) fn unwritten(&self) -> Vec<RecordKey> {
        let mut names: Vec<(usize, RecordKey)> = self
            .held
            .iter()
            .filter(|(_, held)| held.standing == Standing::Unwritten)
            .map(|(name, held)| (held.record.about.position, *name))
            .collect();
        names.sort_by_key(|(position, name)| (*position, name.piece));
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// How often a record was used, its making included.
    pub(crate) fn uses(&self, name: RecordKey) -> u32 {
        self.budget.get(&name).map_or(0, |meta| meta.uses)
    }

    /// Notes where a prefix ends inside a block.
    pub(crate) fn note_tail(&mut self, parent: Key, key: Key, position: usize, role: Role) {
        let tail = Tail {
            key,
            position,
            role,
        };
        self.tails.insert(parent, tail);
    }

    pub(crate) fn used(&self) -> u64 {
        self.budget.used()
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn limit(&self) -> u64 {
        self.budget.limit()
    }

    /// Drops everything, whoever has a pin on it.
    pub(crate) fn clear(&mut self) {
        let limit = self.budget.limit();
        self.held.clear();
        self.budget = Budget::new(limit, Adaptive::default());
    }
}

impl Held {
    /// What is to be written of something that leaves memory. A window or a state is only worth
    /// its bytes on disk with the rows before it, which the writer sees to.
    fn into_unwritten(self, name: RecordKey) -> Option<New> {
        (self.standing == Standing::Unwritten).then_some(New {
            name,
            parent: self.parent,
            cost: self.cost,
            record: self.record,
        })
    }
}

impl Piece {
    /// What a store calls it.
    pub(crate) fn kind(self, window_arrays: usize) -> prefill_kv_store::Kind {
        match self {
            Self::Rows => prefill_kv_store::Kind::Rows,
            Self::Checkpoint if window_arrays > 0 => prefill_kv_store::Kind::Window,
            Self::Checkpoint => prefill_kv_store::Kind::State,
            Self::Features => prefill_kv_store::Kind::Features,
        }
    }
}
