//! Where a prompt may be cut into forward calls.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::Prompt;

impl Prompt {
    /// Whether a forward call, or what a cache holds, may end before `position`: anywhere
    /// but inside a group of positions that see each other.
    #[must_use]
    pub fn can_cut_at(&self, position: usize) -> bool {
        self.group_across(position).is_none()
    }

    /// The last place at or before `position` where [`can_cut_at`](Self::can_cut_at) holds.
    #[must_use]
    pub fn cut_at_or_before(&self, position: usize) -> usize {
        self.group_across(position)
            .map_or(position, |group| group.start)
    }

    /// The furthest that a cached prefix may reach when at most `position` positions are
    /// cached: it ends outside every group, and leaves a position to feed.
    #[must_use]
    pub fn resume_at_or_before(&self, position: usize) -> usize {
        self.cut_at_or_before(position.min(self.len().saturating_sub(1)))
    }

    /// Where forward calls of `size` positions end, the last at the prompt's end.
    ///
    /// The ends are multiples of `size` counted from the prompt's start, whatever a cache
    /// holds, so that a resumed run makes the calls of a cold one: drop the ends at or
    /// before the place of resumption. An end that would fall inside a group goes before
    /// the group, or after it if the group began the call.
    #[must_use]
    pub fn chunk_ends(&self, size: NonZeroUsize) -> Vec<usize> {
        let mut ends = Vec::with_capacity(self.len() / size + 1);
        let mut start = 0;
        while start < self.len() {
            let mut end = (start / size + 1).saturating_mul(size.get());
            if let Some(group) = self.group_across(end) {
                end = if group.start > start {
                    group.start
                } else {
                    group.end
                };
            }
            start = end.min(self.len());
            ends.push(start);
        }
        ends
    }

    /// The group with `position` inside it, neither at its start nor past its end.
    fn group_across(&self, position: usize) -> Option<&Range<usize>> {
        let groups = self.attention.groups();
        // The groups are in order: the first that ends after `position`.
        let index = groups.partition_point(|group| group.end <= position);
        groups.get(index).filter(|group| group.start < position)
    }
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "a list of one group is meant"
)]
mod tests {
    use super::*;
    use crate::Attention;

    fn prompt(length: usize, groups: &[Range<usize>]) -> Prompt {
        Prompt {
            attention: Attention::Groups(groups.to_vec()),
            ..Prompt::from_ids(vec![0; length])
        }
    }

    fn ends(length: usize, groups: &[Range<usize>], size: usize) -> Vec<usize> {
        prompt(length, groups).chunk_ends(size.try_into().unwrap())
    }

    #[test]
    fn chunks_end_at_multiples_and_never_inside_a_group() {
        assert_eq!(ends(10, &[], 4), [4, 8, 10]);
        assert_eq!(ends(8, &[], 4), [4, 8]);
        assert_eq!(ends(0, &[], 4), [0; 0]);
        // Before the group; it then begins the next call, which ends after it.
        assert_eq!(ends(10, &[3..6], 4), [3, 6, 8, 10]);
        // A group longer than a chunk is one call.
        assert_eq!(ends(20, &[2..13], 4), [2, 13, 16, 20]);
        // One that begins the call.
        assert_eq!(ends(9, &[0..6], 4), [6, 8, 9]);
        // A border between two groups is a place to cut.
        assert_eq!(ends(8, &[2..4, 4..6], 4), [4, 8]);
    }

    #[test]
    fn a_resumed_prefix_leaves_a_position() {
        let prompt = prompt(10, &[3..6]);
        assert_eq!(prompt.resume_at_or_before(10), 9);
        assert_eq!(prompt.resume_at_or_before(6), 6);
        assert_eq!(prompt.resume_at_or_before(5), 3);
        assert_eq!(prompt.resume_at_or_before(3), 3);
        assert_eq!(Prompt::default().resume_at_or_before(4), 0);
    }
}
