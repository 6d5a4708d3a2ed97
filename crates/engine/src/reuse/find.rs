//! The longest prefix of a prompt that can be resumed.

use prefill_multimodal_prompt::BlockKeys;

use super::record::RecordKey;
use super::tails::Tails;

/// What leads to a position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Tokens that need not be computed.
    pub position: usize,
    /// Rows from the first token on, each with where it begins and ends.
    pub rows: Vec<(RecordKey, usize, usize)>,
    /// What the layers need that have no rows of all tokens.
    pub checkpoint: Option<RecordKey>,
    pub shortfall: Option<Shortfall>,
}

/// Why no more of a prompt was reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shortfall {
    /// The tokens that follow were never kept, or are no longer.
    NotStored,
    /// They are kept, but nothing from which layers could go on that have a window or a state.
    NoCheckpoint,
    /// What was kept on disk can no longer be read, or is damaged.
    Damaged,
    /// To read it would have taken longer than to compute it.
    NotWorthReading,
    /// The request did not want it.
    NotAsked,
}

impl Found {
    /// Every record.
    pub(crate) fn records(&self) -> impl Iterator<Item = RecordKey> + '_ {
        let rows = self.rows.iter().map(|(name, ..)| *name);
        rows.chain(self.checkpoint)
    }
}

/// Finds it among what `has`. Models whose layers can't all be cut to a prefix need a
/// checkpoint at the very position.
pub(crate) fn longest(
    keys: &BlockKeys,
    tails: &Tails,
    needs_checkpoint: bool,
    has: impl Fn(RecordKey) -> bool,
) -> Found {
    let prompt = keys.prompt();
    let size = keys.space().positions_per_block().get();
    let limit = prompt.resume_at_or_before(prompt.len());
    let blocks = keys.blocks();
    let present = blocks[..limit / size]
        .iter()
        .take_while(|key| has(RecordKey::rows(**key)))
        .count();
    let checkpoint = |key| {
        let name = RecordKey::checkpoint(key);
        match needs_checkpoint {
            true if has(name) => Some(Some(name)),
            true => None,
            false => Some(None),
        }
    };
    let rows_of = |count: usize| -> Vec<(RecordKey, usize, usize)> {
        let rows = blocks[..count].iter().enumerate();
        rows.map(|(index, key)| (RecordKey::rows(*key), index * size, (index + 1) * size))
            .collect()
    };
    let mut found = Found::default();
    'search: for count in (0..=present).rev() {
        let end = count * size;
        for tail in tails.of(keys, count) {
            let name = RecordKey::rows(tail.key);
            if tail.position > limit || !has(name) {
                continue;
            }
            if let Some(checkpoint) = checkpoint(tail.key) {
                found.position = tail.position;
                found.rows = rows_of(count);
                found.rows.push((name, end, tail.position));
                found.checkpoint = checkpoint;
                break 'search;
            }
        }
        if count > 0
            && prompt.can_cut_at(end)
            && let Some(checkpoint) = checkpoint(blocks[count - 1])
        {
            found.position = end;
            found.rows = rows_of(count);
            found.checkpoint = checkpoint;
            break;
        }
    }
    found.shortfall = if found.position == limit {
        None
    } else if found.position < present * size {
        Some(Shortfall::NoCheckpoint)
    } else {
        Some(Shortfall::NotStored)
    };
    found
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use prefill_multimodal_prompt::{KeySpace, Prompt};
    use proptest::prelude::*;

    use super::super::record::Role;
    use super::super::tails::{Tail, parent_of};
    use super::*;

    const SIZE: usize = 16;

    fn keys(length: usize) -> BlockKeys {
        let space = KeySpace::new([1; 32]).block_size(SIZE).unwrap();
        let prompt = Prompt::from_ids((0..length as u32).collect());
        BlockKeys::new(space, prompt).unwrap()
    }

    /// What a store holds after some positions were kept.
    fn kept(keys: &BlockKeys, positions: &[usize]) -> (Tails, Vec<RecordKey>) {
        let mut tails = Tails::default();
        let mut names = Vec::new();
        for &position in positions {
            let key = keys.at(position).unwrap();
            names.push(RecordKey::rows(key));
            names.push(RecordKey::checkpoint(key));
            if !position.is_multiple_of(SIZE) {
                let tail = Tail {
                    key,
                    position,
                    role: Role::Prompt,
                };
                tails.insert(parent_of(keys, position / SIZE), tail);
            }
        }
        (tails, names)
    }

    proptest! {
        /// Whatever is gone, what is found is whole, ends where it may, and is the longest.
        #[test]
        fn what_is_found_is_whole(
            length in 1_usize..90,
            ends in prop::collection::vec(1_usize..90, 0..6),
            gone in prop::collection::hash_set(0_usize..24, 0..6),
            needs_checkpoint: bool,
        ) {
            let keys = keys(length);
            let mut positions: Vec<usize> = (1..=length / SIZE).map(|block| block * SIZE).collect();
            positions.extend(ends.into_iter().filter(|&end| end <= length));
            positions.sort_unstable();
            positions.dedup();
            let (tails, names) = kept(&keys, &positions);
            let present: HashSet<RecordKey> = names
                .into_iter()
                .enumerate()
                .filter(|(index, _)| !gone.contains(index))
                .map(|(_, name)| name)
                .collect();
            let has = |name: RecordKey| present.contains(&name);
            let found = longest(&keys, &tails, needs_checkpoint, has);

            // By trying every position.
            let resumable = |position: usize| {
                let key = keys.at(position).unwrap();
                let blocks = &keys.blocks()[..position / SIZE];
                blocks.iter().all(|key| has(RecordKey::rows(*key)))
                    && (position.is_multiple_of(SIZE) || has(RecordKey::rows(key)))
                    && (!needs_checkpoint || has(RecordKey::checkpoint(key)))
            };
            let best = positions
                .iter()
                .copied()
                .filter(|&position| position < length && resumable(position))
                .max()
                .unwrap_or(0);
            prop_assert_eq!(found.position, best);
            let mut end = 0;
            for &(name, from, to) in &found.rows {
                prop_assert!(has(name) && from == end && to > from);
                end = to;
            }
            prop_assert_eq!(end, found.position);
            prop_assert_eq!(found.checkpoint.is_some(), needs_checkpoint && best > 0);
            prop_assert_eq!(found.shortfall.is_none(), best == length - 1);
        }
    }
}
