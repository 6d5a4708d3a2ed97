//! The header of a safetensors file, checked before MLX reads the data.
//!
//! A file is a length (u64, little endian), a JSON header of that length, and the data.
//! Each entry of the header gives a tensor's type, shape and byte range in the data.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::{Error, Result};

/// The longest header that the reference implementation accepts.
const HEADER_LIMIT: u64 = 100_000_000;

/// What a header says of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub dtype: String,
    pub shape: Vec<i32>,
    pub bytes: u64,
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Reads and checks the header: every tensor lies inside the file and is as long as its
/// type and shape say.
pub(crate) fn entries(path: &Path) -> Result<BTreeMap<String, Entry>> {
    let file = File::open(path).map_err(|source| Error::file(path, source))?;
    let metadata = file.metadata();
    let length = metadata.map_err(|source| Error::file(path, source))?.len();
    read(file, length).map_err(|fact| Error::bad_file(path, fact))
}

/// Reads the header of a file of `length` bytes. No more is allocated than the file has.
pub(crate) fn read(mut file: impl Read, length: u64) -> Result<BTreeMap<String, Entry>, String> {
    let too_short = |_| format!("{length} bytes are too few for a safetensors file");
    let mut prefix = [0; 8];
    file.read_exact(&mut prefix).map_err(too_short)?;
    let header_length = u64::from_le_bytes(prefix);
    let rest = length.saturating_sub(8);
    if header_length > HEADER_LIMIT || header_length > rest {
        return Err(format!(
            "a header of {header_length} bytes in a file of {length}"
        ));
    }
    // The limit is far below any platform's address space.
    let mut header = vec![0; header_length as usize];
    file.read_exact(&mut header).map_err(too_short)?;
    parse(&header, rest - header_length)
}

fn parse(header: &[u8], data_length: u64) -> Result<BTreeMap<String, Entry>, String> {
    let header: BTreeMap<String, Value> =
        serde_json::from_slice(header).map_err(|error| format!("a broken header: {error}"))?;
    let mut entries = BTreeMap::new();
    for (name, value) in header {
        if name == "__metadata__" {
            continue;
        }
        let raw: RawEntry = serde_json::from_value(value)
            .map_err(|error| format!("tensor {name}: a broken entry: {error}"))?;
        let (start, end) = raw.data_offsets;
        if start > end || end > data_length {
            return Err(format!(
                "tensor {name} lies at {start}..{end} of {data_length} bytes: is the file cut off?"
            ));
        }
        let size = element_size(&raw.dtype)
            .ok_or_else(|| format!("tensor {name} has the unknown type {}", raw.dtype))?;
        let expected = raw
            .shape
            .iter()
            .try_fold(size, |product, &extent| product.checked_mul(extent));
        if expected != Some(end - start) {
            return Err(format!(
                "tensor {name} is {} {:?} in {} bytes",
                raw.dtype,
                raw.shape,
                end - start
            ));
        }
        let shape = raw
            .shape
            .iter()
            .map(|&extent| i32::try_from(extent).ok())
            .collect::<Option<Vec<i32>>>()
            .ok_or_else(|| format!("tensor {name} has an extent over {}", i32::MAX))?;
        entries.insert(
            name,
            Entry {
                dtype: raw.dtype,
                shape,
                bytes: end - start,
            },
        );
    }
    Ok(entries)
}

/// Bytes of one element.
fn element_size(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 1,
        "U16" | "I16" | "F16" | "BF16" => 2,
        "U32" | "I32" | "F32" => 4,
        "U64" | "I64" | "F64" | "C64" => 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(header: &str, data_length: u64) -> String {
        parse(header.as_bytes(), data_length).unwrap_err()
    }

    #[test]
    fn reads_types_shapes_and_ignores_metadata() {
        let header = r#"{"__metadata__": {"format": "pt"},
            "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
            "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]}}"#;
        let entries = parse(header.as_bytes(), 16).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            entries["a"],
            Entry {
                dtype: "BF16".into(),
                shape: vec![2, 3],
                bytes: 12
            }
        );
        assert!(entries["b"].shape.is_empty());
    }

    #[test]
    fn every_lie_is_an_error() {
        let entry = |shape: &str, from: u64, to: u64| {
            format!(
                r#"{{"t": {{"dtype": "F32", "shape": {shape}, "data_offsets": [{from}, {to}]}}}}"#
            )
        };
        assert!(fact(&entry("[2]", 0, 8), 7).contains("cut off"));
        assert!(fact(&entry("[2]", 8, 0), 8).contains("8..0"));
        assert!(fact(&entry("[3]", 0, 8), 8).contains("[3] in 8 bytes"));
        assert!(fact(&entry("[4294967296, 4294967296]", 0, 0), 8).contains("in 0 bytes"));
        assert!(fact(&entry("[-1]", 0, 8), 8).contains("broken entry"));
        assert!(
            fact(
                r#"{"t": {"dtype": "Q9", "shape": [], "data_offsets": [0, 0]}}"#,
                0
            )
            .contains("Q9")
        );
        assert!(fact("[", 0).contains("broken header"));
    }

    #[test]
    fn a_header_longer_than_the_file_allocates_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        for bytes in [
            &u64::MAX.to_le_bytes()[..],
            &[1, 2, 3][..],
            &(HEADER_LIMIT).to_le_bytes()[..],
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert!(matches!(entries(&path), Err(Error::BadFile { .. })));
        }
    }
}
