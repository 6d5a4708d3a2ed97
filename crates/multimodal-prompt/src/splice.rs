//! Markers to soft tokens, as Gemma 4's processor does it.

use crate::{Error, MediaKind, Prompt, Result, Span, Tokens};

/// The special tokens round and for one kind of medium, by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemma4MediaTokens {
    /// Before the soft tokens (`<|image>`).
    pub begin: u32,
    /// The marker that a template writes once, and the id at each soft token (`<|image|>`).
    pub placeholder: u32,
    /// After the soft tokens (`<image|>`).
    pub end: u32,
}

/// Expands the media markers of a tokenised Gemma 4 prompt.
///
/// An image marker becomes `begin`, one placeholder a soft token, `end` (transformers
/// 5.24, `processing_gemma4.py`).
#[derive(Debug, Clone, Copy)]
pub struct Gemma4Splicer {
    image: Option<Gemma4MediaTokens>,
}

impl Gemma4Splicer {
    /// Looks the special tokens up by their text, never by fixed ids. A tokenizer without
    /// them serves text alone.
    #[must_use]
    pub fn new(tokens: &Tokens) -> Self {
        let image = || {
            Some(Gemma4MediaTokens {
                begin: tokens.id("<|image>")?,
                placeholder: tokens.id("<|image|>")?,
                end: tokens.id("<image|>")?,
            })
        };
        Self { image: image() }
    }

    /// The tokens of images, if the tokenizer has them.
    #[must_use]
    pub fn image_tokens(&self) -> Option<Gemma4MediaTokens> {
        self.image
    }

    /// Expands the markers in `ids`. `soft_tokens` gives each medium's kind and number of
    /// soft tokens, in document order.
    ///
    /// # Errors
    /// [`Error::MarkerCount`] if there are more or fewer markers than media,
    /// [`Error::NoToken`] if the tokenizer lacks the tokens of a given kind.
    pub fn splice(&self, ids: &[u32], soft_tokens: &[(MediaKind, usize)]) -> Result<Prompt> {
        for &(kind, _) in soft_tokens {
            if kind != MediaKind::Image || self.image.is_none() {
                return Err(Error::NoToken {
                    token: format!("<|{kind}|>"),
                });
            }
        }
        let Some(image) = self.image else {
            return Ok(Prompt {
                ids: ids.to_vec(),
                spans: Vec::new(),
            });
        };
        let markers = ids.iter().filter(|&&id| id == image.placeholder).count();
        let media = soft_tokens.len();
        if markers != media {
            return Err(Error::MarkerCount {
                kind: MediaKind::Image,
                markers,
                media,
            });
        }
        let total: usize = soft_tokens.iter().map(|&(_, length)| length + 1).sum();
        let mut prompt = Prompt {
            ids: Vec::with_capacity(ids.len() + total),
            spans: Vec::new(),
        };
        let mut next = soft_tokens.iter().enumerate();
        for &id in ids {
            if id != image.placeholder {
                prompt.ids.push(id);
                continue;
            }
            // As many media as markers.
            let Some((medium, &(kind, length))) = next.next() else {
                break;
            };
            prompt.ids.push(image.begin);
            let start = prompt.ids.len();
            prompt
                .ids
                .extend(std::iter::repeat_n(image.placeholder, length));
            prompt.ids.push(image.end);
            if length > 0 {
                prompt.spans.push(Span {
                    kind,
                    start,
                    length,
                    medium,
                });
            }
        }
        Ok(prompt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: Gemma4MediaTokens = Gemma4MediaTokens {
        begin: 7,
        placeholder: 9,
        end: 8,
    };
    const SPLICER: Gemma4Splicer = Gemma4Splicer { image: Some(IMAGE) };

    #[test]
    fn expands_each_marker_to_its_own_length() {
        let media = [(MediaKind::Image, 2), (MediaKind::Image, 1)];
        let prompt = SPLICER.splice(&[2, 9, 50, 9, 51], &media).unwrap();
        assert_eq!(prompt.ids, [2, 7, 9, 9, 8, 50, 7, 9, 8, 51]);
        let spans: Vec<_> = prompt
            .spans
            .iter()
            .map(|span| (span.start, span.length, span.medium))
            .collect();
        assert_eq!(spans, [(2, 2, 0), (7, 1, 1)]);
    }

    #[test]
    fn counts_must_agree() {
        let error = SPLICER
            .splice(&[9, 9], &[(MediaKind::Image, 4)])
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the prompt holds 2 image markers for 1 image inputs"
        );
    }

    #[test]
    fn a_kind_without_tokens_is_an_error() {
        let text_only = Gemma4Splicer { image: None };
        assert!(text_only.splice(&[1], &[(MediaKind::Image, 4)]).is_err());
        assert_eq!(text_only.splice(&[1, 9], &[]).unwrap().ids, [1, 9]);
        let error = SPLICER.splice(&[1], &[(MediaKind::Audio, 4)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the tokenizer has no token \"<|audio|>\""
        );
    }
}
