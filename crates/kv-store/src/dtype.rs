use std::fmt;

/// The element type of a tensor. The store never interprets elements: it needs their size, and
/// keeps the type so that a reader gets back what was written.
///
/// ```
/// use prefill_kv_store::DType;
/// assert_eq!(DType::Bf16.size(), 2);
/// assert_eq!(DType::from_code(12), Some(DType::Bf16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum DType {
    /// One byte, 0 or 1.
    Bool = 0,
    /// Unsigned 8-bit integer.
    U8 = 1,
    /// Unsigned 16-bit integer.
    U16 = 2,
    /// Unsigned 32-bit integer; also the packed words of quantised tensors.
    U32 = 3,
    /// Unsigned 64-bit integer.
    U64 = 4,
    /// Signed 8-bit integer.
    I8 = 5,
    /// Signed 16-bit integer.
    I16 = 6,
    /// Signed 32-bit integer.
    I32 = 7,
    /// Signed 64-bit integer.
    I64 = 8,
    /// IEEE half precision.
    F16 = 9,
    /// IEEE single precision.
    F32 = 10,
    /// IEEE double precision.
    F64 = 11,
    /// The upper half of an IEEE single.
    Bf16 = 12,
    /// Two IEEE singles.
    Complex64 = 13,
}

impl DType {
    /// Every dtype, in the order of its code.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
        Self::Complex64,
    ];

    /// The size of one element in bytes: 1, 2, 4 or 8.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Complex64 => 8,
        }
    }

    /// The code that stands for it in a file (docs/format.md, section 5).
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The dtype with that code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The short name that tables show, such as `bf16`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bf16 => "bf16",
            Self::Complex64 => "complex64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::DType;

    #[test]
    fn codes_round_trip_and_end() {
        for (i, d) in DType::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(d.code()), i);
            assert_eq!(DType::from_code(d.code()), Some(d));
        }
        assert_eq!(DType::from_code(14), None);
    }
}
