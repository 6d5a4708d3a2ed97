//! The bytes that keys are hashes of: see the parent module for their layout.

use std::ops::Range;

use sha2::{Digest, Sha256};

use super::Key;
use crate::{FeatureScaling, MediaKind, Positions, Prompt};

const MEDIA: u8 = 1;
const GROUP: u8 = 2;
const SHIFTED: u8 = 3;
const PLACED: u8 = 4;

/// Fingerprints by kind.
type Encoders = [Option<[u8; 32]>; MediaKind::ALL.len()];

/// Bytes to hash in one go.
#[derive(Debug, Clone, Default)]
pub(super) struct Hashed(Vec<u8>);

impl Hashed {
    pub(super) fn new(tag: &[u8]) -> Self {
        Self(tag.to_vec())
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    pub(super) fn key(&self) -> Key {
        Key(Sha256::digest(&self.0).into())
    }

    pub(super) fn finish(self) -> Key {
        self.key()
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u32(&mut self, value: usize) {
        self.bytes(&(value as u32).to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: usize) {
        self.bytes(&(value as u64).to_le_bytes());
    }

    pub(super) fn salt(&mut self, salt: Option<&[u8]>) {
        self.0.push(u8::from(salt.is_some()));
        if let Some(salt) = salt {
            self.u64(salt.len());
            self.bytes(salt);
        }
    }

    /// All of a block (`tag` 1) or a tail (2).
    pub(super) fn run(
        &mut self,
        parent: &Key,
        tag: u8,
        encoders: &Encoders,
        prompt: &Prompt,
        range: Range<usize>,
    ) {
        self.clear();
        self.bytes(parent.as_bytes());
        self.0.push(tag);
        self.u32(range.len());
        self.words(&prompt.ids[range.clone()], u32::to_le_bytes);
        self.extras(encoders, prompt, range);
    }

    /// What the positions depend on beside their ids and what precedes them.
    pub(super) fn extras(&mut self, encoders: &Encoders, prompt: &Prompt, range: Range<usize>) {
        let spans = &prompt.spans;
        let first = spans.partition_point(|span| span.end() <= range.start);
        let spans = spans[first..].iter().take_while(|s| s.start < range.end);
        for span in spans.clone() {
            let part = self.part(MEDIA, &span.range(), &range);
            self.0.push(match span.kind {
                MediaKind::Image => 1,
                MediaKind::Audio => 2,
                MediaKind::Video => 3,
            });
            self.bytes(&span.digest);
            self.bytes(&encoders[span.kind as usize].unwrap_or_default());
            self.u64(span.offset + (part.start - span.start));
            self.0.push(match prompt.feature_scaling {
                FeatureScaling::AsEncoded => 0,
                FeatureScaling::ThroughEmbeddingScale => 1,
            });
        }
        let groups = prompt.attention.groups();
        let first = groups.partition_point(|group| group.end <= range.start);
        for group in groups[first..].iter().take_while(|g| g.start < range.end) {
            let part = self.part(GROUP, group, &range);
            self.u64(part.start - group.start);
            self.u64(group.len());
        }
        if let Positions::Mrope(mrope) = &prompt.positions {
            let mut text = range.start;
            for span in spans {
                let (start, end) = (span.start.max(range.start), span.end().min(range.end));
                self.text_positions(&mrope.ids, text..start, range.start);
                self.placed(&mrope.ids, start..end, range.start);
                text = end;
            }
            self.text_positions(&mrope.ids, text..range.end, range.start);
        }
    }

    /// The head of an extra: the part of `whole` that lies in `range`, which it gives.
    fn part(&mut self, tag: u8, whole: &Range<usize>, range: &Range<usize>) -> Range<usize> {
        let part = whole.start.max(range.start)..whole.end.min(range.end);
        self.head(tag, &part, range.start);
        part
    }

    fn head(&mut self, tag: u8, part: &Range<usize>, from: usize) {
        self.0.push(tag);
        self.u32(part.start - from);
        self.u32(part.len());
    }

    /// Text has positions that count up by one, on all axes alike.
    fn text_positions(&mut self, axes: &[Vec<i32>; 3], part: Range<usize>, from: usize) {
        if part.is_empty() {
            return;
        }
        let first = axes[0][part.start];
        // All compared and none branched on: this runs over every position of a prompt.
        let counts_up = |axis: &Vec<i32>| {
            let mut expected = first;
            let differences = axis[part.clone()].iter().fold(0, |differences, &position| {
                let difference = position ^ expected;
                expected = expected.wrapping_add(1);
                differences | difference
            });
            differences == 0
        };
        if !axes.iter().all(counts_up) {
            self.placed(axes, part, from);
            return;
        }
        let delta = i64::from(first) - part.start as i64;
        if delta != 0 {
            self.head(SHIFTED, &part, from);
            self.bytes(&delta.to_le_bytes());
        }
    }

    fn placed(&mut self, axes: &[Vec<i32>; 3], part: Range<usize>, from: usize) {
        self.head(PLACED, &part, from);
        for axis in axes {
            self.words(&axis[part.clone()], i32::to_le_bytes);
        }
    }

    fn words<T: Copy>(&mut self, words: &[T], bytes_of: impl Fn(T) -> [u8; 4]) {
        let start = self.0.len();
        self.0.resize(start + 4 * words.len(), 0);
        for (bytes, &word) in self.0[start..].chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&bytes_of(word));
        }
    }
}
