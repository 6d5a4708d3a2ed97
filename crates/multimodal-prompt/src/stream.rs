//! Generated ids to streamed text.

use crate::{Result, Tokens};

/// What a decoder prints for bytes that are no UTF-8.
const REPLACEMENT: char = '\u{fffd}';

/// Ids are looked at together with up to this many before them, since a decoder may join
/// or space tokens by what precedes.
const CONTEXT: usize = 8;

/// Turns generated ids into text, piece by piece, never splitting a character.
///
/// A character may be spread over several tokens (byte fallback, byte-level BPE): such
/// tokens are held back until it is whole. The pieces, put together and followed by
/// [`finish`](Self::finish), are what [`Tokens::decode`] gives for all ids at once.
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
}

impl TextStream {
    /// Takes one id, and gives the text that is certain now; often a word, sometimes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Tokenizer`](crate::Error::Tokenizer) if the tokenizer's decoder fails.
    pub fn push(&mut self, tokens: &Tokens, id: u32) -> Result<String> {
        self.ids.push(id);
        let (before, all) = self.texts(tokens)?;
        // Incomplete bytes at the end show as replacement characters: hold them back.
        if all.ends_with(REPLACEMENT) || all.len() <= before.len() {
            return Ok(String::new());
        }
        Ok(self.give(&before, &all))
    }

    /// Gives what is still held back, incomplete bytes as U+FFFD.
    ///
    /// # Errors
    /// [`Error::Tokenizer`](crate::Error::Tokenizer) if the tokenizer's decoder fails.
    pub fn finish(&mut self, tokens: &Tokens) -> Result<String> {
        let (before, all) = self.texts(tokens)?;
        Ok(self.give(&before, &all))
    }

    /// The text of what has been given out, and that of everything.
    fn texts(&self, tokens: &Tokens) -> Result<(String, String)> {
        Ok((
            tokens.decode(&self.ids[..self.given])?,
            tokens.decode(&self.ids)?,
        ))
    }

    fn give(&mut self, before: &str, all: &str) -> String {
        // A decoder only appends, so `before` is a prefix; if one does not, nothing that
        // was given out can be taken back, and the rest follows by length.
        let text = all.get(before.len()..).unwrap_or_default().to_owned();
        self.given = self.ids.len();
        let kept = self.given.min(CONTEXT);
        self.ids.drain(..self.given - kept);
        self.given = kept;
        text
    }
}
