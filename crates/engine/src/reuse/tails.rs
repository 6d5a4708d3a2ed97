//! Where prefixes end that end inside a block.

use std::collections::HashMap;

use prefill_multimodal_prompt::{BlockKeys, Key};

use super::record::Role;

/// The end of a prefix inside a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    pub key: Key,
    pub position: usize,
    pub role: Role,
}

/// Tails by the block (or root) before them.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    by_parent: HashMap<Key, Vec<Tail>>,
}

impl Tails {
    pub(crate) fn insert(&mut self, parent: Key, tail: Tail) {
        let tails = self.by_parent.entry(parent).or_default();
        if tails.iter().all(|other| other.key != tail.key) {
            tails.push(tail);
        }
    }

    pub(crate) fn remove(&mut self, parent: Key, key: Key) {
        if let Some(tails) = self.by_parent.get_mut(&parent) {
            tails.retain(|tail| tail.key != key);
            if tails.is_empty() {
                self.by_parent.remove(&parent);
            }
        }
    }

    /// The tails after `blocks` full blocks of a prompt that it goes on with, the longest
    /// first.
    pub(crate) fn of(&self, keys: &BlockKeys, blocks: usize) -> Vec<Tail> {
        let parent = parent_of(keys, blocks);
        let size = keys.space().positions_per_block().get();
        let mut tails: Vec<Tail> = self
            .by_parent
            .get(&parent)
            .into_iter()
            .flatten()
            .filter(|tail| (blocks * size..(blocks + 1) * size).contains(&tail.position))
            .filter(|tail| keys.at(tail.position) == Some(tail.key))
            .copied()
            .collect();
        tails.sort_by_key(|tail| std::cmp::Reverse(tail.position));
        tails
    }

    /// The tails of a prompt's own chain that nothing needs any more once its end `latest` is
    /// kept: those of earlier prompts and answers, and, with a later medium at `medium`, of
    /// earlier media. Each with the key before it.
    pub(crate) fn superseded(
        &self,
        keys: &BlockKeys,
        latest: usize,
        medium: Option<usize>,
    ) -> Vec<(Key, Tail)> {
        let size = keys.space().positions_per_block().get();
        (0..=latest / size)
            .flat_map(|blocks| {
                let parent = parent_of(keys, blocks);
                self.of(keys, blocks)
                    .into_iter()
                    .map(move |tail| (parent, tail))
            })
            .filter(|(_, tail)| match tail.role {
                Role::Block | Role::FirstTurn => false,
                Role::Medium => medium.is_some_and(|medium| tail.position < medium),
                Role::Prompt | Role::Answer => tail.position < latest,
            })
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_parent.values().map(Vec::len).sum()
    }
}

/// The key before block `blocks`.
pub(crate) fn parent_of(keys: &BlockKeys, blocks: usize) -> Key {
    match blocks.checked_sub(1) {
        Some(before) => keys.blocks()[before],
        None => keys.root(),
    }
}
