//! The one thread that MLX belongs to.

use std::rc::Rc;
use std::sync::Mutex;

use crate::{Error, Result};

/// Who has MLX at present.
static OWNER: Mutex<Option<&'static str>> = Mutex::new(None);

/// The right to use MLX in this process, held by one thread at a time.
///
/// MLX's state is shared by a whole process, so whoever computes with it must be alone.
/// [`Engine`](crate::Engine) has a thread of its own that holds this right. A program that
/// would rather own the thread claims it here, uses [`Model`](crate::Model) directly, and
/// can't have an engine at the same time.
///
/// The right ends when this value, its clones and the models loaded with it are dropped.
///
/// ```
/// use prefill_engine::MlxThread;
///
/// let thread = MlxThread::claim()?;
/// assert!(MlxThread::claim().is_err());
/// drop(thread);
/// assert!(MlxThread::claim().is_ok());
/// # Ok::<(), prefill_engine::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MlxThread {
    // Not `Send`: the right stays on its thread.
    _claim: Rc<Claim>,
}

#[derive(Debug)]
struct Claim;

impl MlxThread {
    /// Claims MLX for the calling thread.
    ///
    /// # Errors
    /// [`Error::MlxTaken`] if it is in use, by an engine or by another claim.
    pub fn claim() -> Result<Self> {
        Self::claim_as("a thread of the program")
    }

    pub(crate) fn claim_as(name: &'static str) -> Result<Self> {
        let mut owner = lock();
        match *owner {
            Some(owner) => Err(Error::MlxTaken { owner }),
            None => {
                *owner = Some(name);
                Ok(Self {
                    _claim: Rc::new(Claim),
                })
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        *lock() = None;
    }
}

/// A panic elsewhere can't leave the name half-written.
fn lock() -> std::sync::MutexGuard<'static, Option<&'static str>> {
    OWNER
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
