//! Memory of a fixed size: layers that fold all tokens so far into one state.

use mlx_rs::Array;

use super::{Cache, LayerCache};
use crate::{Error, Result};

/// What one layer keeps of the tokens so far. It is a function of all of them, so it can't
/// be cut back to fewer; only a [`Snapshot`] leads back.
#[derive(Debug, Clone, Default)]
pub(crate) struct StateCache {
    state: Option<State>,
}

/// Arrays of a gated delta layer.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// The convolution's last inputs, `[1, kernel - 1, channels]`.
    pub inputs: Array,
    /// `[1, value heads, value size, key size]`, f32.
    pub memory: Array,
}

impl StateCache {
    /// The state after the tokens so far, if there were any.
    pub(crate) fn get(&self) -> Option<&State> {
        self.state.as_ref()
    }

    pub(crate) fn set(&mut self, state: State) {
        self.state = Some(state);
    }

    /// Every array that the next call will read.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.state
            .iter()
            .flat_map(|state| [&state.inputs, &state.memory])
    }
}

/// Everything but keys and values that a cache had after so many tokens, to go back to. The
/// arrays are shared with the cache, which never writes into them.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    position: usize,
    states: Vec<StateCache>,
    rope_delta: i32,
}

impl Snapshot {
    /// Tokens that had been fed.
    pub(crate) fn position(&self) -> usize {
        self.position
    }
}

impl Cache {
    /// Whether rows can be cut off at the end: not where a layer's memory is a state.
    pub(crate) fn is_trimmable(&self) -> bool {
        self.states.is_empty() && self.layers.iter().all(LayerCache::is_trimmable)
    }

    /// What leads back to here once more tokens have been fed.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            position: self.offset(),
            states: self.states.clone(),
            rope_delta: self.rope_delta,
        }
    }

    /// Goes back to a snapshot of this cache.
    ///
    /// # Errors
    /// [`Error::NotRestorable`] if the cache has fewer tokens than the snapshot, or rows
    /// that it needs are gone.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        let (position, tokens) = (snapshot.position, self.offset());
        let fits = position <= tokens
            && snapshot.states.len() == self.states.len()
            && self.layers.iter().all(LayerCache::is_trimmable);
        if !fits {
            return Err(Error::NotRestorable { position, tokens });
        }
        for layer in &mut self.layers {
            layer.trim_to(position as i32);
        }
        self.states.clone_from(&snapshot.states);
        self.rope_delta = snapshot.rope_delta;
        Ok(())
    }
}
