use std::fmt;

/// The 32-byte key of a record. It says exactly what the record depends on; the store compares
/// it and nothing else.
///
/// ```
/// use prefill_kv_store::Key;
/// let key = Key::new([7; 32]);
/// assert_eq!(key.to_string().len(), 64);
/// assert_eq!(Key::parse(&key.to_string()), Some(key));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// A key of these bytes, commonly a hash.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the 64 hexadecimal digits that `Display` writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        parse_hex(text, &mut bytes).then_some(Self(bytes))
    }

    /// Where the record of a snapshot of this name is found.
    pub(crate) fn of_snapshot(name: &str) -> Self {
        Self(blake3::derive_key(
            "prefill-kv-store 2026-11-29 snapshot name v1",
            name.as_bytes(),
        ))
    }
}

impl From<[u8; 32]> for Key {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(")?;
        write_hex(&self.0[..6], f)?;
        f.write_str("..)")
    }
}

/// What a record is, so that a tool can tell records apart and a caller restores each by what it
/// needs. The store treats the first four alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// K and V rows of full-attention layers, addressed by position.
    Rows = 1,
    /// The last rows of sliding-window layers.
    Window = 2,
    /// A checkpoint of layers that can't be sliced.
    State = 3,
    /// Encoder features of one medium.
    Features = 4,
    /// A block found by its content. Only the store makes them, for snapshots.
    Content = 5,
    /// The table of a snapshot. Only the store makes them.
    Snapshot = 6,
}

impl Kind {
    /// The code in a file.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind with that code, if there is one.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Rows,
            2 => Self::Window,
            3 => Self::State,
            4 => Self::Features,
            5 => Self::Content,
            6 => Self::Snapshot,
            _ => return None,
        })
    }

    /// The short name that tables show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Window => "window",
            Self::State => "state",
            Self::Features => "features",
            Self::Content => "content",
            Self::Snapshot => "snapshot",
        }
    }

    /// Whether a caller may put records of this kind.
    pub(crate) const fn is_callers(self) -> bool {
        !matches!(self, Self::Content | Self::Snapshot)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

pub(crate) fn write_hex(bytes: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

/// Fills `out` from exactly twice as many lower-case hexadecimal digits.
pub(crate) fn parse_hex(text: &str, out: &mut [u8]) -> bool {
    let digits = text.as_bytes();
    let value = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    if digits.len() != out.len() * 2 {
        return false;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else {
            return false;
        };
        *byte = high << 4 | low;
    }
    true
}
