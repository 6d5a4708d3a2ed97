//! Asking work to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the requests that it was given to, from any thread, also during prefill. Clones are
/// the same token.
///
/// ```
/// use prefill_engine::CancelToken;
///
/// let token = CancelToken::new();
/// let elsewhere = token.clone(); // such as in a signal handler
/// elsewhere.cancel();
/// assert!(token.is_cancelled());
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that nobody has cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the work at its next step. Only sets a flag, so that a signal handler may call it.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
