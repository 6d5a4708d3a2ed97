//! Looking for tags in text that is not yet whole.

use super::AnswerFormat;

/// What text holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'t> {
    /// A tag, at this byte.
    Tag(usize, &'t str),
    /// No whole tag; what lies before this byte is certain to belong to none.
    Certain(usize),
}

/// The first tag; of two that begin at one place, the longer.
pub(super) fn first<'t>(text: &str, tags: impl Iterator<Item = &'t str> + Clone) -> Found<'t> {
    let mut from = 0;
    while let Some(at) = text[from..].find('<').map(|at| from + at) {
        let rest = &text[at..];
        let whole = tags.clone().filter(|tag| rest.starts_with(tag));
        if let Some(tag) = whole.max_by_key(|tag| tag.len()) {
            return Found::Tag(at, tag);
        }
        if tags.clone().any(|tag| tag.starts_with(rest)) {
            return Found::Certain(before_newlines(text, at));
        }
        from = at + 1;
    }
    Found::Certain(before_newlines(text, text.len()))
}

/// Up to two newlines before a tag may go with it.
fn before_newlines(text: &str, end: usize) -> usize {
    let bytes = text.as_bytes();
    let newline = |at: usize| end >= at && bytes[end - at] == b'\n';
    match (newline(1), newline(2)) {
        (true, true) => end - 2,
        (true, false) => end - 1,
        _ => end,
    }
}

/// Finds the tag that closes a call, outside of strings, over text that grows.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// Bytes that were looked at.
    at: usize,
    in_string: bool,
}

/// What begins and ends a string in Gemma's calls.
pub(super) const GEMMA_QUOTE: &str = "<|\"|>";

impl Scanner {
    /// Where the closing tag begins, if it is there.
    pub(super) fn close(&mut self, format: AnswerFormat, text: &str, close: &str) -> Option<usize> {
        let bytes = text.as_bytes();
        while self.at < bytes.len() {
            let rest = &bytes[self.at..];
            let byte = rest[0];
            let step = match format {
                AnswerFormat::QwenJson if self.in_string && byte == b'\\' => {
                    if rest.len() == 1 {
                        return None;
                    }
                    2
                }
                AnswerFormat::QwenJson if byte == b'"' => {
                    self.in_string = !self.in_string;
                    1
                }
                AnswerFormat::Gemma4 if rest.starts_with(GEMMA_QUOTE.as_bytes()) => {
                    self.in_string = !self.in_string;
                    GEMMA_QUOTE.len()
                }
                _ if byte != b'<' => 1,
                _ if !self.in_string && rest.starts_with(close.as_bytes()) => {
                    return Some(self.at);
                }
                _ if close.as_bytes().starts_with(rest)
                    || GEMMA_QUOTE.as_bytes().starts_with(rest) =>
                {
                    return None;
                }
                _ => 1,
            };
            self.at += step;
        }
        None
    }
}
