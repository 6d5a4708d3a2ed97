//! Text to token ids and back.

use std::path::Path;

use tokenizers::Tokenizer;

use crate::{Error, Result};

/// A checkpoint's tokenizer (`tokenizer.json`).
#[derive(Debug)]
pub struct Tokens {
    tokenizer: Tokenizer,
}

impl Tokens {
    /// Reads the tokenizer of a checkpoint's folder.
    ///
    /// # Errors
    /// [`Error::File`] if `tokenizer.json` can't be read, [`Error::BadFile`] if it is no
    /// tokenizer.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let bytes = std::fs::read(&path).map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
        Self::from_bytes(&bytes).map_err(|error| Error::BadFile {
            path,
            fact: error.to_string(),
        })
    }

    /// Reads a tokenizer from the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if it is no tokenizer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(tokenizer_error)?;
        // A prompt is never cut or padded behind its caller's back.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(tokenizer_error)?;
        Ok(Self { tokenizer })
    }

    /// The ids of a text whose special tokens are written out, as chat templates write
    /// them: none are added, so `<bos>` is not doubled.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the text can't be encoded.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self
            .tokenizer
            .encode_fast(text, false)
            .map_err(tokenizer_error)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `ids`, special tokens left out. Bytes that are no UTF-8 come out as
    /// U+FFFD.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer.decode(ids, true).map_err(tokenizer_error)
    }

    /// The text of `ids`, special tokens written out.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the tokenizer's decoder fails.
    pub fn decode_all(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer.decode(ids, false).map_err(tokenizer_error)
    }

    /// The id of one token, special or not, by its exact text.
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// The exact text of one token.
    #[must_use]
    pub fn token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    /// The size of the vocabulary, added tokens included.
    #[must_use]
    pub fn vocabulary_size(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn tokenizer_error(error: tokenizers::Error) -> Error {
    Error::Tokenizer(error.to_string())
}
