//! The prompt: token ids, where the media lie among them, positions and attention.

mod chunks;
mod positions;

use std::fmt;
use std::ops::Range;

pub use positions::{Mrope, Positions};

/// A kind of input other than text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MediaKind {
    /// A still picture.
    Image,
    /// A clip of sound.
    Audio,
    /// Moving pictures.
    Video,
}

impl MediaKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Image, Self::Audio, Self::Video];

    /// The name that message parts and JSON reports use: `image`, `audio`, `video`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }
}

impl fmt::Display for MediaKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A run of soft tokens: positions whose embeddings come from a medium.
///
/// An image or a clip of sound has one span; a video has one for each of its frames (Gemma)
/// or frame groups (Qwen).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// What kind of medium it is.
    pub kind: MediaKind,
    /// The first position, counted from the prompt's start.
    pub start: usize,
    /// How many positions. Never 0.
    pub length: usize,
    /// Which medium, counted among all media of the conversation in document order.
    pub medium: usize,
    /// Which row of the medium's features the first position takes: the soft tokens of the
    /// medium that lie in earlier spans.
    pub offset: usize,
    /// What names the prepared medium: the SHA-256 that `prefill-media-preprocess` gives.
    pub digest: [u8; 32],
    /// Frames, rows and columns of soft tokens, where positions depend on them (Qwen);
    /// their product is `length`.
    pub grid: Option<[usize; 3]>,
}

impl Span {
    /// One past the last position.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start.saturating_add(self.length)
    }

    /// The positions.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.end()
    }
}

/// Which positions a position may attend to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attention {
    /// To itself and those before it, within the window of a sliding layer.
    #[default]
    Causal,
    /// Causal, and in sliding layers also to the later positions of its own group:
    /// `(causal or same group) and query - key < window`. Full layers stay causal.
    ///
    /// This is transformers' `create_masks_for_vision_model` (5.24, `modeling_gemma4.py`),
    /// for models whose `use_bidirectional_attention` is `"vision"`.
    Groups(
        /// In order of position, without overlap, none empty.
        Vec<Range<usize>>,
    ),
}

impl Attention {
    /// The groups, none if attention is causal.
    #[must_use]
    pub fn groups(&self) -> &[Range<usize>] {
        match self {
            Self::Causal => &[],
            Self::Groups(groups) => groups,
        }
    }
}

/// What becomes of a medium's features before they take the place of embeddings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FeatureScaling {
    /// Nothing: they enter beside embeddings that are already scaled, as in transformers.
    #[default]
    AsEncoded,
    /// They are cast to the embeddings' type, divided by the embedding scale, and scaled
    /// again together with the text: mlx-bun's rule, which differs by a rounding.
    ThroughEmbeddingScale,
}

/// Token ids with media expanded, ready for a model.
///
/// ```
/// use prefill_multimodal_prompt::{Attention, MediaKind, Prompt, Span};
///
/// let span = Span { kind: MediaKind::Image, start: 2, length: 3, medium: 0, offset: 0,
///                   digest: [7; 32], grid: None };
/// let prompt = Prompt {
///     ids: vec![2, 5, 9, 9, 9, 6, 11],
///     spans: vec![span],
///     attention: Attention::Groups(vec![span.range()]),
///     ..Prompt::default()
/// };
/// assert_eq!(prompt.per_layer_ids(0), [2, 5, 0, 0, 0, 6, 11]);
/// assert!(prompt.can_cut_at(2) && !prompt.can_cut_at(3));
/// assert_eq!(prompt.chunk_ends(4.try_into()?), [2, 5, 7]);
/// # Ok::<(), std::num::TryFromIntError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// One id a position. Positions inside a span hold the placeholder id of its kind.
    pub ids: Vec<u32>,
    /// The runs of soft tokens, in order of position, without overlap.
    pub spans: Vec<Span>,
    /// What rotary embeddings are given.
    pub positions: Positions,
    /// Which positions see each other.
    pub attention: Attention,
    /// What becomes of the media's features.
    pub feature_scaling: FeatureScaling,
}

impl Prompt {
    /// A prompt of text alone.
    #[must_use]
    pub fn from_ids(ids: Vec<u32>) -> Self {
        Self {
            ids,
            ..Self::default()
        }
    }

    /// How many positions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The ids with those of soft tokens replaced by `pad`, for the lookup of per-layer
    /// embeddings: Gemma replaces them by the padding id (0).
    #[must_use]
    pub fn per_layer_ids(&self, pad: u32) -> Vec<u32> {
        let mut ids = self.ids.clone();
        for span in &self.spans {
            if let Some(run) = ids.get_mut(span.range()) {
                run.fill(pad);
            }
        }
        ids
    }
}
