//! Markers in a rendered prompt to runs of soft tokens.
//!
//! A processor of transformers replaces each marker in the *text* and tokenises what comes
//! out, so that a timestamp may join the text before it in one token. Here a marker is
//! replaced by one stand-in token a run, the text is tokenised, and each stand-in is then
//! repeated: added tokens are never joined with anything, so the ids are the same.

mod gemma4;
mod qwen;

use std::ops::Range;

pub use gemma4::{Gemma4Medium, Gemma4Rules, Gemma4Splicer};
pub use qwen::{OuterVisionTokens, QwenMedium, QwenSplicer};

use crate::{Error, MediaKind, Result, Span, Tokens};

/// Positions that one prompt may have: more than any model takes, and what bounds the memory
/// that a medium's claim of soft tokens can ask for.
const LENGTH_LIMIT: usize = 1 << 26;

/// What stands for a kind of medium in text and ids.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marker {
    kind: MediaKind,
    /// What a template writes once a medium.
    text: &'static str,
    /// The id of each soft token.
    placeholder: u32,
}

impl Marker {
    fn new(tokens: &Tokens, kind: MediaKind, text: &'static str) -> Option<Self> {
        let placeholder = tokens.id(text)?;
        Some(Self {
            kind,
            text,
            placeholder,
        })
    }
}

/// A marker in the text.
struct Place<'m> {
    bytes: Range<usize>,
    marker: &'m Marker,
    /// Which of all media it stands for.
    medium: usize,
}

/// The markers in `text` in order, each with its medium: the next one of its kind. There must
/// be as many of each kind as there are media.
fn find_markers<'m>(
    text: &str,
    markers: &'m [Marker],
    media: &[MediaKind],
) -> Result<Vec<Place<'m>>> {
    for &kind in media {
        if !markers.iter().any(|marker| marker.kind == kind) {
            let token = format!("<|{kind}|>");
            return Err(Error::NoToken { token });
        }
    }
    let mut places = Vec::new();
    for marker in markers {
        let of_kind = |(medium, &kind)| (kind == marker.kind).then_some(medium);
        let media: Vec<usize> = media.iter().enumerate().filter_map(of_kind).collect();
        let found: Vec<usize> = text.match_indices(marker.text).map(|(at, _)| at).collect();
        if found.len() != media.len() {
            return Err(Error::MarkerCount {
                kind: marker.kind,
                markers: found.len(),
                media: media.len(),
            });
        }
        places.extend(found.into_iter().zip(media).map(|(start, medium)| Place {
            bytes: start..start + marker.text.len(),
            marker,
            medium,
        }));
    }
    places.sort_unstable_by_key(|place| place.bytes.start);
    Ok(places)
}

/// The text to tokenise, and the runs that its stand-ins hold the place of.
struct Expansion {
    text: String,
    stand_in: &'static str,
    /// What each stand-in becomes: an id and a span whose `start` is not yet known.
    runs: Vec<(u32, Span)>,
    total: usize,
}

impl Expansion {
    fn new(stand_in: &'static str, text: &str) -> Self {
        Self {
            text: String::with_capacity(text.len()),
            stand_in,
            runs: Vec::new(),
            total: 0,
        }
    }

    fn push_run(&mut self, placeholder: u32, span: Span) -> Result<()> {
        self.total = self.total.saturating_add(span.length);
        if self.total > LENGTH_LIMIT {
            return Err(Error::TooLong {
                kind: span.kind,
                medium: span.medium,
                limit: LENGTH_LIMIT,
            });
        }
        if span.length > 0 {
            self.text.push_str(self.stand_in);
            self.runs.push((placeholder, span));
        }
        Ok(())
    }

    /// Tokenises, and repeats each stand-in.
    fn finish(self, tokens: &Tokens) -> Result<(Vec<u32>, Vec<Span>)> {
        let encoded = tokens.encode(&self.text)?;
        let stand_in = tokens.id(self.stand_in);
        let is_stand_in = |&&id: &&u32| Some(id) == stand_in;
        let found = encoded.iter().filter(is_stand_in).count();
        if found != self.runs.len() {
            // The vocabulary has the marker, but text is not split at it.
            let token = self.stand_in.to_owned();
            return Err(Error::NoToken { token });
        }
        let mut ids = Vec::with_capacity(encoded.len() + self.total);
        let mut spans = Vec::with_capacity(self.runs.len());
        let mut runs = self.runs.into_iter();
        for id in encoded {
            let run = (Some(id) == stand_in).then(|| runs.next()).flatten();
            let Some((placeholder, span)) = run else {
                ids.push(id);
                continue;
            };
            let start = ids.len();
            spans.push(Span { start, ..span });
            ids.extend(std::iter::repeat_n(placeholder, span.length));
        }
        Ok((ids, spans))
    }
}

/// Refuses times that no video has.
fn check_time(medium: usize, seconds: f64) -> Result<f64> {
    // `!(a <= b)` also refuses NaN.
    if (0.0..=1e9).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(Error::Timestamp { medium, seconds })
    }
}
