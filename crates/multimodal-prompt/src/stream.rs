//! Generated ids to streamed text.

use crate::{Result, Tokens};

/// What a decoder prints for bytes that are no UTF-8.
const REPLACEMENT: char = '\u{fffd}';

/// Ids are looked at together with at least this many before them, since a decoder may join
/// or space tokens by what precedes.
const CONTEXT: usize = 4;

/// Turns generated ids into text, piece by piece, never splitting a character.
///
/// A character may be spread over several tokens (byte fallback, byte-level BPE): such
/// the text of such tokens is held back until it is whole. The pieces, put together and followed by
/// [`finish`](Self::finish), are what [`Tokens::decode`] gives for all ids at once, as long
/// as the bytes are UTF-8.
///
/// ```no_run
/// use prefill_multimodal_prompt::{TextStream, Tokens};
///
/// let tokens = Tokens::from_folder("model".as_ref())?;
/// let mut stream = TextStream::default();
/// let mut answer = String::new();
/// for id in [105, 9731, 13] {
///     answer += &stream.push(&tokens, id)?;
/// }
/// answer += &stream.finish(&tokens)?;
/// # Ok::<(), prefill_multimodal_prompt::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TextStream {
    /// Ids whose text may still matter: some already given out, then those held back.
    ids: Vec<u32>,
    /// How many of `ids` have been given out.
    given: usize,
    /// The text of those.
    text: String,
    /// Bytes of text of the ids held back that have been given out all the same: what a token
    /// holds before the beginning of a character.
    ahead: usize,
    /// Whether special tokens are part of the text.
    special: bool,
}

impl TextStream {
    /// A stream whose text holds special tokens too, as
    /// [`AnswerParser`](crate::AnswerParser) needs them of Gemma.
    #[must_use]
    pub fn with_special_tokens() -> Self {
        Self {
            special: true,
            ..Self::default()
        }
    }

    fn decode(&self, tokens: &Tokens, ids: &[u32]) -> Result<String> {
        if self.special {
            tokens.decode_all(ids)
        } else {
            tokens.decode(ids)
        }
    }

    /// Takes one id, and gives the text that is certain now; often a word, sometimes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Tokenizer`](crate::Error::Tokenizer) if the tokenizer's decoder fails.
    pub fn push(&mut self, tokens: &Tokens, id: u32) -> Result<String> {
        self.ids.push(id);
        let all = self.decode(tokens, &self.ids)?;
        // Incomplete bytes at the end show as replacement characters: hold them back.
        let certain = all.trim_end_matches(REPLACEMENT);
        if certain.len() == all.len() {
            return self.give(tokens, all);
        }
        let more = certain
            .strip_prefix(self.text.as_str())
            .and_then(|text| text.get(self.ahead..))
            .unwrap_or_default();
        self.ahead += more.len();
        Ok(more.to_owned())
    }

    /// Gives what is still held back, incomplete bytes as U+FFFD.
    ///
    /// # Errors
    /// [`Error::Tokenizer`](crate::Error::Tokenizer) if the tokenizer's decoder fails.
    pub fn finish(&mut self, tokens: &Tokens) -> Result<String> {
        let all = self.decode(tokens, &self.ids)?;
        self.give(tokens, all)
    }

    /// The part of `all`, the text of `self.ids`, that has not been given out.
    fn give(&mut self, tokens: &Tokens, all: String) -> Result<String> {
        let held = &self.ids[self.given..];
        let text = match all.strip_prefix(self.text.as_str()) {
            Some(text) => text.to_owned(),
            // Bytes that followed have turned a whole run of byte tokens into replacement
            // characters. What was given out stands; only the rest is broken.
            None => self.decode(tokens, held)?,
        };
        let text = text.get(self.ahead..).unwrap_or_default().to_owned();
        self.ahead = 0;
        self.given = self.ids.len();
        self.text = all;
        // Not after every id, since the text of the rest must be decoded anew.
        if self.given >= 2 * CONTEXT {
            self.forget(tokens)?;
        }
        Ok(text)
    }

    /// Drops ids that no longer matter. The rest never begins inside a run of byte tokens,
    /// which a decoder reads as a whole.
    fn forget(&mut self, tokens: &Tokens) -> Result<()> {
        let is_byte = |&id: &u32| {
            let text = tokens.token(id);
            text.is_some_and(|text| text.len() == 6 && text.starts_with("<0x"))
        };
        let furthest = self.given.saturating_sub(CONTEXT);
        let start = (0..=furthest)
            .rev()
            .find(|&start| start == 0 || !is_byte(&self.ids[start]))
            .unwrap_or(0);
        self.ids.drain(..start);
        self.given -= start;
        self.text = self.decode(tokens, &self.ids)?;
        Ok(())
    }
}
