//! The prompt: token ids, and where the media lie among them.

use std::fmt;

/// A kind of input other than text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// What kind of medium it is.
    pub kind: MediaKind,
    /// The first position, counted from the prompt's start.
    pub start: usize,
    /// How many positions. Never 0.
    pub length: usize,
    /// Which medium, counted among all media of the conversation in document order.
    pub medium: usize,
}

/// Token ids with media expanded, ready for a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// One id a position. Positions inside a span hold the placeholder id of its kind.
    pub ids: Vec<u32>,
    /// The runs of soft tokens, in order of position, without overlap.
    pub spans: Vec<Span>,
}
