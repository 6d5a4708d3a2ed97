//! The prompts of Qwen3-VL and Qwen3.5.

use std::fmt::Write;

use super::{Expansion, Marker, Place, check_time, find_markers};
use crate::{
    Attention, Error, FeatureScaling, MediaKind, Mrope, Positions, Prompt, Result, Span, Tokens,
};

/// What the splicer must know of a prepared medium.
#[derive(Debug, Clone, PartialEq)]
pub enum QwenMedium {
    /// A picture.
    Image {
        /// Frames, rows and columns of patches, before they are merged.
        grid_thw: [usize; 3],
        /// What names the prepared picture.
        digest: [u8; 32],
    },
    /// A video.
    Video {
        /// Frame groups, rows and columns of patches, before they are merged.
        grid_thw: [usize; 3],
        /// When each frame group is shown, in seconds: the mean of its first and last
        /// frame's times.
        timestamps: Vec<f64>,
        /// What names the prepared video.
        digest: [u8; 32],
    },
}

impl QwenMedium {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> MediaKind {
        match self {
            Self::Image { .. } => MediaKind::Image,
            Self::Video { .. } => MediaKind::Video,
        }
    }
}

/// What becomes of the `<|vision_start|>` and `<|vision_end|>` that a template writes round a
/// video's marker, since each frame group brings its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OuterVisionTokens {
    /// They stay, round the whole video: transformers 5.24 replaces the marker alone.
    #[default]
    Keep,
    /// They go with the marker, as in transformers 4.57 and in mlx-vlm. A marker without
    /// them is replaced alone.
    Replace,
}

const BEGIN: &str = "<|vision_start|>";
const END: &str = "<|vision_end|>";
const IMAGE: &str = "<|image_pad|>";
const VIDEO: &str = "<|video_pad|>";

/// Expands the media markers of a rendered Qwen3-VL or Qwen3.5 prompt, as transformers'
/// processor does (5.24, `processing_qwen3_vl.py`):
///
/// - a picture: one `<|image_pad|>` a soft token, inside the template's `<|vision_start|>` and
///   `<|vision_end|>`;
/// - a video: for each frame group `<x.x seconds>`, `<|vision_start|>`, one `<|video_pad|>` a
///   soft token, `<|vision_end|>`.
///
/// Positions are those of `get_rope_index`; a prompt of text alone has plain ones.
///
/// ```no_run
/// use prefill_multimodal_prompt::{Positions, QwenMedium, QwenSplicer, Tokens};
///
/// let tokens = Tokens::from_folder("model".as_ref())?;
/// let splicer = QwenSplicer::new(&tokens, 2);
/// let image = QwenMedium::Image { grid_thw: [1, 16, 24], digest: [0; 32] };
/// let text = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Who?<|im_end|>\n";
/// let prompt = splicer.splice(&tokens, text, &[image])?;
/// assert_eq!(prompt.spans[0].grid, Some([1, 8, 12]));
/// assert_eq!(prompt.positions.delta(), 12 - 96);
/// # Ok::<(), prefill_multimodal_prompt::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct QwenSplicer {
    markers: Vec<Marker>,
    merge: usize,
    outer: OuterVisionTokens,
}

impl QwenSplicer {
    /// Looks the special tokens up by their text, never by fixed ids. A tokenizer without
    /// them serves text alone. `spatial_merge_size` patches on each side make a soft token.
    #[must_use]
    pub fn new(tokens: &Tokens, spatial_merge_size: usize) -> Self {
        let brackets = tokens.id(BEGIN).and(tokens.id(END));
        let markers = [(MediaKind::Image, IMAGE), (MediaKind::Video, VIDEO)];
        let known = |&(kind, text)| brackets.and_then(|_| Marker::new(tokens, kind, text));
        Self {
            markers: markers.iter().filter_map(known).collect(),
            merge: spatial_merge_size,
            outer: OuterVisionTokens::default(),
        }
    }

    /// Another rule for the tokens round a video's marker.
    #[must_use]
    pub fn outer_vision_tokens(mut self, outer: OuterVisionTokens) -> Self {
        self.outer = outer;
        self
    }

    /// The id at each soft token of a kind, if the tokenizer has the kind's tokens.
    #[must_use]
    pub fn placeholder(&self, kind: MediaKind) -> Option<u32> {
        let marker = self.markers.iter().find(|marker| marker.kind == kind);
        marker.map(|marker| marker.placeholder)
    }

    /// Expands the markers in `text`, what the chat template rendered, and tokenises it.
    /// `media` are all the conversation's, in document order.
    ///
    /// # Errors
    /// [`Error::MarkerCount`] if there are more or fewer markers of a kind than media,
    /// [`Error::NoToken`] if the tokenizer lacks the tokens of a given kind, [`Error::Grid`],
    /// [`Error::TimestampCount`], [`Error::Timestamp`] and [`Error::TooLong`] for media that
    /// can't be.
    pub fn splice(&self, tokens: &Tokens, text: &str, media: &[QwenMedium]) -> Result<Prompt> {
        let kinds: Vec<MediaKind> = media.iter().map(QwenMedium::kind).collect();
        let places = find_markers(text, &self.markers, &kinds)?;
        let Some(stand_in) = self.markers.first() else {
            return Ok(Prompt::from_ids(tokens.encode(text)?));
        };
        let mut expansion = Expansion::new(stand_in.text, text);
        let mut copied = 0;
        for place in places {
            let (start, end) = self.replaced(text, &place);
            expansion.text.push_str(&text[copied..start]);
            let placeholder = place.marker.placeholder;
            self.expand(
                &mut expansion,
                placeholder,
                place.medium,
                &media[place.medium],
            )?;
            copied = end;
        }
        expansion.text.push_str(&text[copied..]);
        let (ids, spans) = expansion.finish(tokens)?;
        let positions = if spans.is_empty() {
            Positions::Plain
        } else {
            Positions::Mrope(Mrope::new(ids.len(), &spans))
        };
        Ok(Prompt {
            ids,
            spans,
            positions,
            attention: Attention::Causal,
            feature_scaling: FeatureScaling::AsEncoded,
        })
    }

    /// The bytes that a medium's expansion takes the place of.
    fn replaced(&self, text: &str, place: &Place<'_>) -> (usize, usize) {
        let (start, end) = (place.bytes.start, place.bytes.end);
        let replaces = self.outer == OuterVisionTokens::Replace;
        let is_video = place.marker.kind == MediaKind::Video;
        if replaces && is_video && text[..start].ends_with(BEGIN) && text[end..].starts_with(END) {
            (start - BEGIN.len(), end + END.len())
        } else {
            (start, end)
        }
    }

    fn expand(
        &self,
        expansion: &mut Expansion,
        placeholder: u32,
        medium: usize,
        what: &QwenMedium,
    ) -> Result<()> {
        let (&grid_thw, digest, times) = match what {
            QwenMedium::Image { grid_thw, digest } => (grid_thw, *digest, None),
            QwenMedium::Video {
                grid_thw,
                timestamps,
                digest,
            } => (grid_thw, *digest, Some(timestamps)),
        };
        let [groups, rows, columns] = self.merged(medium, grid_thw)?;
        let span = Span {
            kind: what.kind(),
            start: 0,
            length: groups * rows * columns,
            medium,
            offset: 0,
            digest,
            grid: Some([groups, rows, columns]),
        };
        let Some(times) = times else {
            return expansion.push_run(placeholder, span);
        };
        if times.len() != groups {
            return Err(Error::TimestampCount {
                medium,
                groups,
                timestamps: times.len(),
            });
        }
        for (group, &seconds) in times.iter().enumerate() {
            let seconds = check_time(medium, seconds)?;
            // Rust and Python both round the exact value, halves to even. Writing to a string
            // can't fail.
            let _ = write!(expansion.text, "<{seconds:.1} seconds>{BEGIN}");
            let frame = Span {
                length: rows * columns,
                offset: group * rows * columns,
                grid: Some([1, rows, columns]),
                ..span
            };
            expansion.push_run(placeholder, frame)?;
            expansion.text.push_str(END);
        }
        Ok(())
    }

    /// Soft tokens on each axis.
    fn merged(&self, medium: usize, grid: [usize; 3]) -> Result<[usize; 3]> {
        let [groups, rows, columns] = grid;
        let merge = self.merge;
        let whole = merge > 0 && rows.is_multiple_of(merge) && columns.is_multiple_of(merge);
        let bounded = groups
            .checked_mul(rows)
            .and_then(|n| n.checked_mul(columns));
        if !whole || bounded.is_none_or(|patches| patches == 0) {
            return Err(Error::Grid {
                medium,
                grid,
                merge,
            });
        }
        Ok([groups, rows / merge, columns / merge])
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_rounded_as_python_rounds_them() {
        // `f"{x:.1f}"` in CPython 3.11.
        for (seconds, text) in [
            (0.25_f64, "0.2"),
            (0.75, "0.8"),
            (0.35, "0.3"),
            (1.25, "1.2"),
            (2.5, "2.5"),
            (0.05, "0.1"),
            (0.15, "0.1"),
            (0.45, "0.5"),
            (12.349_999, "12.3"),
            (1e9, "1000000000.0"),
        ] {
            assert_eq!(format!("{seconds:.1}"), text);
        }
    }
}
