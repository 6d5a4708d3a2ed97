//! What is kept of a computation, and the names it is found by.

use mlx_rs::Array;
use prefill_kv_store as store;
use prefill_multimodal_prompt::Key;
use sha2::{Digest, Sha256};

/// Which kind of thing is kept under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Piece {
    /// Keys and values of the layers that see every token: those of a block, or of what lies
    /// after the last full block.
    Rows,
    /// What the other layers need to go on from here: rows of a window, or states.
    Checkpoint,
    /// A medium's features.
    Features,
}

/// Names a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RecordKey {
    pub key: Key,
    pub piece: Piece,
}

impl RecordKey {
    pub(crate) fn rows(key: Key) -> Self {
        Self::of(key, Piece::Rows)
    }

    pub(crate) fn checkpoint(key: Key) -> Self {
        Self::of(key, Piece::Checkpoint)
    }

    pub(crate) fn features(key: Key) -> Self {
        Self::of(key, Piece::Features)
    }

    fn of(key: Key, piece: Piece) -> Self {
        Self { key, piece }
    }

    /// The key in a store: the prompt's own, but for checkpoints, which lie beside the rows of
    /// the same key.
    pub(crate) fn stored(self) -> store::Key {
        match self.piece {
            Piece::Rows | Piece::Features => store::Key::new(self.key.into()),
            Piece::Checkpoint => {
                let mut hasher = Sha256::new();
                hasher.update(b"prefill.checkpoint.v1\0");
                hasher.update(self.key.as_bytes());
                store::Key::new(hasher.finalize().into())
            }
        }
    }
}

/// Why a place was chosen to end what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// A full block's end, or a checkpoint every so many blocks.
    Block,
    /// The end of the first turn, which is the system prompt's where there is one.
    FirstTurn,
    /// The end of the last medium.
    Medium,
    /// The last place of a prompt from which it can be resumed.
    Prompt,
    /// The end of an answer.
    Answer,
}

impl Role {
    const ALL: [Self; 5] = [
        Self::Block,
        Self::FirstTurn,
        Self::Medium,
        Self::Prompt,
        Self::Answer,
    ];
}

/// What is said of a record beside its arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct About {
    pub role: Role,
    /// Tokens up to the record's end.
    pub position: usize,
    /// Whether rows are quantised, of layers that can be.
    pub is_quantized: bool,
    /// How many of the arrays are rows of a window; the others are states.
    pub window_arrays: usize,
    /// The key of the full block before it, or the root of all keys.
    pub before: Key,
}

impl About {
    /// Of a medium's features, which are found by `key`.
    pub(crate) fn features(key: Key) -> Self {
        Self {
            role: Role::Block,
            position: 0,
            is_quantized: false,
            window_arrays: 0,
            before: key,
        }
    }

    /// Version, role and form as bytes, position as u64, arrays as u32, little endian, and
    /// the key before.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![1, self.role as u8, u8::from(self.is_quantized)];
        bytes.extend((self.position as u64).to_le_bytes());
        bytes.extend((self.window_arrays as u32).to_le_bytes());
        bytes.extend(self.before.as_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 47] = bytes.try_into().ok()?;
        let [1, role, is_quantized @ (0 | 1), rest @ ..] = *bytes else {
            return None;
        };
        let (position, rest) = rest.split_at(8);
        let (arrays, before) = rest.split_at(4);
        let position = u64::from_le_bytes(position.try_into().ok()?);
        Some(Self {
            role: *Role::ALL.get(usize::from(role))?,
            position: position.try_into().ok()?,
            is_quantized: is_quantized == 1,
            window_arrays: u32::from_le_bytes(arrays.try_into().ok()?) as usize,
            before: Key::from(<[u8; 32]>::try_from(before).ok()?),
        })
    }
}

/// Something that is kept.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub about: About,
    /// Evaluated, and in memory of their own.
    pub arrays: Vec<Array>,
}

impl Record {
    pub(crate) fn bytes(&self) -> u64 {
        self.arrays.iter().map(|array| array.nbytes() as u64).sum()
    }
}

/// A record on its way into memory.
#[derive(Debug, Clone)]
pub(crate) struct New {
    pub name: RecordKey,
    /// The rows that it is useless without.
    pub parent: Option<RecordKey>,
    /// Tokens whose computation it spares.
    pub cost: f64,
    pub record: Record,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_record_is_read_back() {
        for role in Role::ALL {
            let about = About {
                role,
                position: 70_000,
                is_quantized: role == Role::Answer,
                window_arrays: 12,
                before: Key::from([9; 32]),
            };
            let bytes = about.encode();
            assert_eq!(About::decode(&bytes), Some(about));
            assert_eq!(About::decode(&bytes[1..]), None);
            for (at, wrong) in [(0, 2), (1, 5), (2, 2)] {
                let mut bytes = bytes.clone();
                bytes[at] = wrong;
                assert_eq!(About::decode(&bytes), None);
            }
        }
    }
}
