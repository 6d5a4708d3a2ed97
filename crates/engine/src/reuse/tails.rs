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

    /// Forgets those of which nothing is kept any more.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(Key) -> bool) {
        self.by_parent.retain(|_, tails| {
            tails.retain(|tail| is_kept(tail.key));
            !tails.is_empty()
        });
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_parent.values().map(Vec::len).sum()
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
}

/// The key before block `blocks`.
pub(crate) fn parent_of(keys: &BlockKeys, blocks: usize) -> Key {
    match blocks.checked_sub(1) {
        Some(before) => keys.blocks()[before],
        None => keys.root(),
    }
}

#[cfg(test)]
mod tests {
    use prefill_multimodal_prompt::{KeySpace, Prompt};

    use super::*;

    fn keys(ids: std::ops::Range<u32>) -> BlockKeys {
        let space = KeySpace::new([1; 32]).block_size(16).unwrap();
        BlockKeys::new(space, Prompt::from_ids(ids.collect())).unwrap()
    }

    fn note(tails: &mut Tails, keys: &BlockKeys, position: usize, role: Role) {
        let key = keys.at(position).unwrap();
        let tail = Tail {
            key,
            position,
            role,
        };
        tails.insert(parent_of(keys, position / 16), tail);
    }

    #[test]
    fn a_later_end_supersedes_those_of_its_own_chain() {
        let (long, other) = (keys(0..60), keys(100..160));
        let mut tails = Tails::default();
        note(&mut tails, &long, 5, Role::FirstTurn);
        note(&mut tails, &long, 9, Role::Medium);
        note(&mut tails, &long, 20, Role::Prompt);
        note(&mut tails, &long, 27, Role::Answer);
        note(&mut tails, &long, 59, Role::Prompt);
        note(&mut tails, &other, 20, Role::Prompt);
        let gone = |medium| -> Vec<usize> {
            let gone = tails.superseded(&long, 59, medium);
            let mut gone: Vec<usize> = gone.iter().map(|(_, tail)| tail.position).collect();
            gone.sort_unstable();
            gone
        };
        assert_eq!(gone(None), [20, 27]);
        assert_eq!(gone(Some(9)), [20, 27], "the medium's own end stays");
        assert_eq!(gone(Some(33)), [9, 20, 27]);
    }

    #[test]
    fn only_tails_of_the_same_ids_are_found() {
        let (long, other) = (keys(0..30), keys(0..40));
        let mut tails = Tails::default();
        note(&mut tails, &long, 20, Role::Prompt);
        note(&mut tails, &long, 29, Role::Answer);
        note(&mut tails, &long, 29, Role::Answer);
        let positions = |keys: &BlockKeys, blocks| -> Vec<usize> {
            let found = tails.of(keys, blocks);
            found.iter().map(|tail| tail.position).collect()
        };
        assert_eq!(
            positions(&other, 1),
            [29, 20],
            "the longest first, each once"
        );
        assert!(positions(&other, 0).is_empty());
        assert_eq!(positions(&keys(0..25), 1), [20]);
        let mut parted: Vec<u32> = (0..40).collect();
        parted[25] = 7;
        let space = KeySpace::new([1; 32]).block_size(16).unwrap();
        let parted = BlockKeys::new(space, Prompt::from_ids(parted)).unwrap();
        assert_eq!(positions(&parted, 1), [20]);
        tails.remove(parent_of(&long, 1), long.at(20).unwrap());
        assert!(tails.of(&parted, 1).is_empty());
        assert_eq!(tails.len(), 1);
        tails.retain(|key| key != long.at(29).unwrap());
        assert_eq!(tails.len(), 0);
    }
}
