//! What was reused, and what is kept.

use super::find::Shortfall;

/// What an answer took from what was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reused {
    /// Tokens of the prompt whose computation was found in memory.
    pub ram_tokens: usize,
    /// Tokens of the prompt whose computation was read from disk.
    pub disk_tokens: usize,
    /// Media whose features were not needed, since the prompt's prefix holds them.
    pub media_in_prefix: usize,
    /// Media whose features were found in memory.
    pub ram_media: usize,
    /// Media whose features were read from disk.
    pub disk_media: usize,
    /// Media that went through their tower.
    pub encoded_media: usize,
    /// Bytes read from disk and verified.
    pub restored_bytes: u64,
    /// Bytes of what was computed and is kept.
    pub kept_bytes: u64,
    /// Why the prompt was not reused up to its last token, if it was not.
    pub shortfall: Option<Shortfall>,
}

impl Reused {
    /// Tokens of the prompt that were not computed again.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.ram_tokens + self.disk_tokens
    }
}

/// What an engine keeps, and what its disk has seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes kept in memory.
    pub ram_bytes: u64,
    /// The most bytes kept there.
    pub ram_limit: u64,
    /// Records in memory.
    pub ram_records: usize,
    /// Bytes of the folder, of all models.
    pub disk_bytes: u64,
    /// Records in the folder, of all models.
    pub disk_records: usize,
    /// Bytes handed to the writer.
    pub queued_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes not written, since the queue was full.
    pub dropped_bytes: u64,
    /// Batches that could not be written.
    pub failed_writes: u64,
    /// Bytes read from disk and verified.
    pub restored_bytes: u64,
    /// Tokens of prompts whose computation was found in memory.
    pub ram_tokens: u64,
    /// Tokens of prompts whose computation was read from disk.
    pub disk_tokens: u64,
    /// Tokens of prompts that were computed.
    pub computed_tokens: u64,
    /// Media whose features were found, in memory or on disk.
    pub reused_media: u64,
    /// Media that went through a tower.
    pub encoded_media: u64,
    /// Records on disk that were damaged or vanished, and were computed instead.
    pub faults: u64,
}
