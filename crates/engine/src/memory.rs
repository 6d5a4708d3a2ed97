//! One budget for all that MLX holds in this process.

use mlx_rs::memory::{active_memory, cache_memory, clear_cache, set_cache_limit};

use crate::{Error, Result};

/// The budget, on the MLX thread.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    limit: Option<usize>,
}

impl Memory {
    /// Sets the budget in bytes. MLX's cache of freed buffers may take a quarter of it.
    pub(crate) fn set_limit(&mut self, bytes: usize) -> Result<()> {
        set_cache_limit(bytes / 4)?;
        self.limit = Some(bytes);
        Ok(())
    }

    /// Bytes that are left, if there is a budget.
    pub(crate) fn room(&self) -> Result<Option<usize>> {
        let Some(limit) = self.limit else {
            return Ok(None);
        };
        Ok(Some(limit.saturating_sub(active_memory()?)))
    }

    /// Sees to it that `needed` more bytes fit, and empties the cache of freed buffers if
    /// they would not beside it.
    ///
    /// # Errors
    /// [`Error::Memory`] if they do not fit.
    pub(crate) fn make_room(&self, needed: usize) -> Result<()> {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        let in_use = active_memory()?;
        if in_use.saturating_add(needed) > limit {
            return Err(Error::Memory {
                needed,
                in_use,
                limit,
            });
        }
        if in_use + needed + cache_memory()? > limit {
            clear_cache()?;
        }
        Ok(())
    }
}
