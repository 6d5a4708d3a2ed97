//! Gemma 4's prompts, with towers (E2B, E4B, 26B, 31B) and without (unified 12B).

use std::fmt::Write;

use serde_json::Value;

use super::{Expansion, Marker, check_time, find_markers};
use crate::{Attention, FeatureScaling, MediaKind, Positions, Prompt, Result, Span, Tokens};

/// What the splicer must know of a prepared medium.
#[derive(Debug, Clone, PartialEq)]
pub enum Gemma4Medium {
    /// A picture.
    Image {
        /// Rows of features.
        soft_tokens: usize,
        /// What names the prepared picture.
        digest: [u8; 32],
    },
    /// A clip of sound.
    Audio {
        /// Rows of features: what remains of the valid frames after the tower's two halvings,
        /// or, in the unified model, the frames themselves.
        soft_tokens: usize,
        /// What names the prepared clip.
        digest: [u8; 32],
    },
    /// A video.
    Video {
        /// Rows of features of one frame.
        soft_tokens_per_frame: usize,
        /// When each frame is shown, in seconds: its index in the source over the source's
        /// rate.
        timestamps: Vec<f64>,
        /// What names the prepared video.
        digest: [u8; 32],
    },
}

impl Gemma4Medium {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> MediaKind {
        match self {
            Self::Image { .. } => MediaKind::Image,
            Self::Audio { .. } => MediaKind::Audio,
            Self::Video { .. } => MediaKind::Video,
        }
    }

    fn digest(&self) -> [u8; 32] {
        match *self {
            Self::Image { digest, .. }
            | Self::Audio { digest, .. }
            | Self::Video { digest, .. } => digest,
        }
    }
}

/// Whose rules a prompt follows where implementations differ, and which of them the
/// checkpoint asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gemma4Rules {
    /// Causal everywhere: `use_bidirectional_attention` is null (E2B, E4B).
    #[default]
    Causal,
    /// The tokens of one picture or frame see each other, as transformers has it:
    /// `use_bidirectional_attention` is `"vision"` (12B, 26B, 31B).
    Vision,
    /// As mlx-bun does it: like [`Vision`](Self::Vision), but causal everywhere when the
    /// prompt holds any sound, and features are divided by the embedding scale. To
    /// reproduce its answers; an earlier block's key then depends on whether sound follows.
    MlxBun,
}

impl Gemma4Rules {
    /// The rules that a `config.json` asks for. Where `use_bidirectional_attention` is not
    /// stated, transformers' defaults hold: `"vision"` in the unified model, null in others.
    #[must_use]
    pub fn from_config(config: &Value) -> Self {
        let text = config.get("text_config").unwrap_or(config);
        let is_unified = || {
            let model_type = text.get("model_type").and_then(Value::as_str);
            model_type == Some("gemma4_unified_text")
        };
        let vision = match text.get("use_bidirectional_attention") {
            None => is_unified(),
            Some(stated) => stated == "vision",
        };
        if vision { Self::Vision } else { Self::Causal }
    }
}

/// The tokens round a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Brackets {
    begin: &'static str,
    end: &'static str,
}

const VISION: Brackets = Brackets {
    begin: "<|image>",
    end: "<image|>",
};
const AUDIO: Brackets = Brackets {
    begin: "<|audio>",
    end: "<audio|>",
};

/// Expands the media markers of a rendered Gemma 4 prompt, as transformers' processors do
/// (5.24, `processing_gemma4.py`, `processing_gemma4_unified.py`):
///
/// - a picture: `<|image>`, one `<|image|>` a soft token, `<image|>`;
/// - a clip: `<|audio>`, one `<|audio|>` a soft token, `<audio|>`;
/// - a video: for each frame its time as `mm:ss`, a space, `<|image>`, one `<|video|>` a soft
///   token, `<image|>`; a space between frames.
///
/// ```no_run
/// use prefill_multimodal_prompt::{Gemma4Medium, Gemma4Rules, Gemma4Splicer, Tokens};
///
/// let tokens = Tokens::from_folder("model".as_ref())?;
/// let splicer = Gemma4Splicer::new(&tokens, Gemma4Rules::Causal);
/// let image = Gemma4Medium::Image { soft_tokens: 256, digest: [0; 32] };
/// let prompt = splicer.splice(&tokens, "<bos><|turn>user\n<|image|>Who?<turn|>\n", &[image])?;
/// assert_eq!(prompt.spans[0].length, 256);
/// # Ok::<(), prefill_multimodal_prompt::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gemma4Splicer {
    markers: Vec<Marker>,
    rules: Gemma4Rules,
}

impl Gemma4Splicer {
    /// Looks the special tokens up by their text, never by fixed ids. A tokenizer without
    /// them serves text alone.
    #[must_use]
    pub fn new(tokens: &Tokens, rules: Gemma4Rules) -> Self {
        let markers = [
            (MediaKind::Image, "<|image|>", VISION),
            (MediaKind::Audio, "<|audio|>", AUDIO),
            (MediaKind::Video, "<|video|>", VISION),
        ];
        let known = |&(kind, text, brackets): &(MediaKind, &'static str, Brackets)| {
            tokens.id(brackets.begin)?;
            tokens.id(brackets.end)?;
            Marker::new(tokens, kind, text)
        };
        Self {
            markers: markers.iter().filter_map(known).collect(),
            rules,
        }
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
    /// [`Error::MarkerCount`](crate::Error::MarkerCount) if there are more or fewer markers
    /// of a kind than media, [`Error::NoToken`](crate::Error::NoToken) if the tokenizer lacks
    /// the tokens of a given kind, [`Error::Timestamp`](crate::Error::Timestamp) and
    /// [`Error::TooLong`](crate::Error::TooLong) for media that can't be.
    pub fn splice(&self, tokens: &Tokens, text: &str, media: &[Gemma4Medium]) -> Result<Prompt> {
        let kinds: Vec<MediaKind> = media.iter().map(Gemma4Medium::kind).collect();
        let places = find_markers(text, &self.markers, &kinds)?;
        let Some(stand_in) = self.markers.first() else {
            return Ok(Prompt::from_ids(tokens.encode(text)?));
        };
        let mut expansion = Expansion::new(stand_in.text, text);
        let mut copied = 0;
        for place in places {
            expansion.text.push_str(&text[copied..place.bytes.start]);
            let medium = &media[place.medium];
            let span = Span {
                kind: medium.kind(),
                start: 0,
                length: 0,
                medium: place.medium,
                offset: 0,
                digest: medium.digest(),
                grid: None,
            };
            expand(&mut expansion, place.marker.placeholder, span, medium)?;
            copied = place.bytes.end;
        }
        expansion.text.push_str(&text[copied..]);
        let (ids, spans) = expansion.finish(tokens)?;
        let has_sound = kinds.contains(&MediaKind::Audio);
        Ok(Prompt {
            attention: self.attention(&spans, has_sound),
            ids,
            spans,
            positions: Positions::Plain,
            feature_scaling: match self.rules {
                Gemma4Rules::MlxBun => FeatureScaling::ThroughEmbeddingScale,
                _ => FeatureScaling::AsEncoded,
            },
        })
    }

    /// A group a picture or frame: what transformers' `get_block_sequence_ids_for_mask` makes
    /// of runs of image and video tokens, which the tokens round them keep apart.
    fn attention(&self, spans: &[Span], has_sound: bool) -> Attention {
        match self.rules {
            Gemma4Rules::Causal => return Attention::Causal,
            Gemma4Rules::MlxBun if has_sound => return Attention::Causal,
            _ => {}
        }
        let groups: Vec<_> = spans
            .iter()
            .filter(|span| span.kind != MediaKind::Audio)
            .map(Span::range)
            .collect();
        if groups.is_empty() {
            Attention::Causal
        } else {
            Attention::Groups(groups)
        }
    }
}

/// What takes the place of one marker.
fn expand(
    expansion: &mut Expansion,
    placeholder: u32,
    span: Span,
    what: &Gemma4Medium,
) -> Result<()> {
    let run = |expansion: &mut Expansion, brackets: Brackets, length: usize, offset: usize| {
        expansion.text.push_str(brackets.begin);
        expansion.push_run(
            placeholder,
            Span {
                length,
                offset,
                ..span
            },
        )?;
        expansion.text.push_str(brackets.end);
        Ok(())
    };
    match *what {
        Gemma4Medium::Image { soft_tokens, .. } => run(expansion, VISION, soft_tokens, 0),
        Gemma4Medium::Audio { soft_tokens, .. } => run(expansion, AUDIO, soft_tokens, 0),
        Gemma4Medium::Video {
            soft_tokens_per_frame: length,
            ref timestamps,
            ..
        } => {
            for (frame, &seconds) in timestamps.iter().enumerate() {
                let seconds = check_time(span.medium, seconds)?;
                let separator = if frame > 0 { " " } else { "" };
                // Writing to a string can't fail.
                let _ = write!(expansion.text, "{separator}{} ", minutes(seconds));
                run(expansion, VISION, length, frame.saturating_mul(length))?;
            }
            Ok(())
        }
    }
}

/// Minutes and seconds of a time, both cut off: Python's `int(s // 60)` and `int(s % 60)`.
fn minutes(seconds: f64) -> String {
    let rest = seconds % 60.0;
    // CPython's float floor division: an exact multiple over 60, rounded to an integer.
    let whole = ((seconds - rest) / 60.0).round();
    format!("{:02}:{:02}", whole as u64, rest as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_the_configurations() {
        use serde_json::json;
        let unified = "gemma4_unified_text";
        for (text_config, rules) in [
            (json!({"model_type": unified}), Gemma4Rules::Vision),
            (
                json!({"model_type": unified, "use_bidirectional_attention": null}),
                Gemma4Rules::Causal,
            ),
            (json!({"model_type": "gemma4_text"}), Gemma4Rules::Causal),
            (
                json!({"use_bidirectional_attention": "vision"}),
                Gemma4Rules::Vision,
            ),
        ] {
            let config = json!({ "text_config": text_config });
            assert_eq!(Gemma4Rules::from_config(&config), rules);
        }
    }

    #[test]
    fn times_are_cut_off_as_python_cuts_them() {
        for (seconds, text) in [
            (0.0, "00:00"),
            (0.999, "00:00"),
            (59.999, "00:59"),
            (60.0, "01:00"),
            (65.5, "01:05"),
            (3599.99, "59:59"),
            (6000.0, "100:00"),
        ] {
            assert_eq!(minutes(seconds), text);
        }
    }
}
