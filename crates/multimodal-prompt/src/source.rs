//! Where media come from.

use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;

/// Where a medium's bytes are to come from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediaSource {
    /// A file of this machine, named by the caller.
    Path(PathBuf),
    /// The file's bytes.
    Bytes(Vec<u8>),
    /// A part that named no source, such as `{"type": "image"}`: the caller supplies
    /// it, in document order.
    Unnamed,
}

impl From<PathBuf> for MediaSource {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&str> for MediaSource {
    fn from(path: &str) -> Self {
        Self::Path(path.into())
    }
}

impl From<Vec<u8>> for MediaSource {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Bytes that a `data:` URL or an inline clip may have.
const INLINE_LIMIT: usize = 64 << 20;

pub(crate) fn resolve(reference: &str) -> Result<MediaSource, String> {
    if let Some(rest) = reference.strip_prefix("data:") {
        let data = rest.split_once(";base64,").map(|(_, data)| data);
        return decode(data.ok_or("is a data: URL that is not in base64")?).map(MediaSource::Bytes);
    }
    if let Some(rest) = reference.strip_prefix("file://") {
        let path = rest.strip_prefix("localhost").unwrap_or(rest);
        if !path.starts_with('/') {
            return Err(format!("names a file of another machine: {reference}"));
        }
        let path = percent_decode_str(path).decode_utf8();
        let path = path.map_err(|_| "is a file: URL that is no UTF-8")?;
        return Ok(MediaSource::Path(path.as_ref().into()));
    }
    match reference.split_once("://") {
        Some((scheme, _)) => Err(format!(
            "of the scheme {scheme:?} is not supported: give a file"
        )),
        None => Ok(MediaSource::Path(reference.into())),
    }
}

/// The bytes of base64, whose size is known before they are made.
pub(crate) fn decode(data: &str) -> Result<Vec<u8>, String> {
    let size = data.len() / 4 * 3;
    if size > INLINE_LIMIT {
        return Err(format!(
            "has {size} bytes inline, over the limit of {INLINE_LIMIT}"
        ));
    }
    let bytes = BASE64_STANDARD.decode(data);
    bytes.map_err(|error| format!("has broken base64: {error}"))
}
