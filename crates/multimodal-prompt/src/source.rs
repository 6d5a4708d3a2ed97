//! Where media come from.

use std::path::{Path, PathBuf};

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
    /// An `http:` or `https:` URL, yet to be fetched.
    Url(String),
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

impl From<&Path> for MediaSource {
    fn from(path: &Path) -> Self {
        Self::Path(path.into())
    }
}

impl From<String> for MediaSource {
    fn from(path: String) -> Self {
        Self::Path(path.into())
    }
}

impl From<&[u8]> for MediaSource {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<Vec<u8>> for MediaSource {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// What a reference names; of a `data:` URL, the bytes, at most `limit`.
pub(crate) fn resolve(reference: &str, limit: usize) -> Result<MediaSource, String> {
    let scheme = |name: &str| {
        let head = reference.get(..name.len())?;
        (head.eq_ignore_ascii_case(name)).then(|| &reference[name.len()..])
    };
    if let Some(rest) = scheme("data:") {
        let data = rest.split_once(";base64,").map(|(_, data)| data);
        let data = data.ok_or("is a data: URL that is not in base64")?;
        return decode(data, limit).map(MediaSource::Bytes);
    }
    if let Some(rest) = scheme("file://") {
        let path = rest.strip_prefix("localhost").unwrap_or(rest);
        if !path.starts_with('/') {
            return Err(format!("names a file of another machine: {reference}"));
        }
        let path = percent_decode_str(path).decode_utf8();
        let path = path.map_err(|_| "is a file: URL that is no UTF-8")?;
        return Ok(MediaSource::Path(path.as_ref().into()));
    }
    if scheme("http://").or_else(|| scheme("https://")).is_some() {
        return Ok(MediaSource::Url(reference.to_owned()));
    }
    match reference.split_once("://") {
        Some((scheme, _)) => Err(format!(
            "of the scheme {scheme:?} is not supported: give a file"
        )),
        None => Ok(MediaSource::Path(reference.into())),
    }
}

/// The bytes of base64, whose number is known, and held against `limit`, before they are made.
pub(crate) fn decode(data: &str, limit: usize) -> Result<Vec<u8>, String> {
    let padding = data.bytes().rev().take_while(|&byte| byte == b'=').count();
    let size = (data.len() - padding) * 3 / 4;
    if size > limit {
        return Err(format!(
            "has {size} bytes inline, over the limit of {limit}"
        ));
    }
    let bytes = BASE64_STANDARD.decode(data);
    bytes.map_err(|error| format!("has broken base64: {error}"))
}
