//! What the hub says of a model.

use serde::Deserialize;

use crate::{Error, RepoId, Result};

/// Files of one model that are taken at most.
const MOST_FILES: usize = 10_000;

/// A revision of a model: its commit and the files of its checkpoint.
#[derive(Debug)]
pub(crate) struct Info {
    pub commit: String,
    pub files: Vec<FileInfo>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileInfo {
    /// Its name in the top folder.
    pub name: String,
    pub length: u64,
    pub hash: Hash,
}

/// What names a file's contents, and its blob in the cache; lowercase hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hash {
    /// The SHA-1 of a Git blob.
    Git(String),
    /// The SHA-256 of a large file.
    Sha256(String),
}

impl Hash {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Git(text) | Self::Sha256(text) => text,
        }
    }
}

#[derive(Deserialize)]
struct RawInfo {
    sha: String,
    siblings: Vec<RawFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawFile {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<RawLfs>,
}

#[derive(Deserialize)]
struct RawLfs {
    #[serde(alias = "oid")]
    sha256: String,
    size: u64,
}

impl Info {
    /// Reads the answer of `/api/models/{id}/revision/main?blobs=true`, which came from `url`.
    pub(crate) fn parse(text: &str, id: &RepoId, url: &str) -> Result<Self> {
        let wrong = |fact: String| Error::Info {
            url: url.to_owned(),
            fact,
        };
        let raw: RawInfo = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if !is_hex(&raw.sha, 40) {
            return Err(wrong(format!("{:?} is no commit", raw.sha)));
        }
        if raw.siblings.len() > MOST_FILES {
            return Err(wrong(format!(
                "{} files, at most {MOST_FILES}",
                raw.siblings.len()
            )));
        }
        let mut files = Vec::new();
        for file in raw.siblings {
            if !is_wanted(&file.rfilename) {
                continue;
            }
            let name = file.rfilename;
            let (length, hash) = match (file.lfs, file.size, file.blob_id) {
                (Some(lfs), ..) => (lfs.size, Hash::Sha256(lfs.sha256)),
                (None, Some(size), Some(blob)) => (size, Hash::Git(blob)),
                _ => return Err(wrong(format!("{name} has neither length nor hash"))),
            };
            let digits = if matches!(hash, Hash::Git(_)) { 40 } else { 64 };
            if !is_hex(hash.text(), digits) {
                return Err(wrong(format!("{:?} is no hash of {name}", hash.text())));
            }
            files.push(FileInfo { name, length, hash });
        }
        let has = |end: &str| files.iter().any(|file| file.name.ends_with(end));
        if !has(".safetensors") || !has("config.json") {
            return Err(Error::NoCheckpoint { id: id.to_string() });
        }
        // Small ones first: what is wrong with a checkpoint shows before gigabytes are loaded.
        files.sort_by(|a, b| a.length.cmp(&b.length).then(a.name.cmp(&b.name)));
        Ok(Self {
            commit: raw.sha,
            files,
        })
    }
}

/// Whether a file is part of a checkpoint: in the top folder, under a plain name.
fn is_wanted(name: &str) -> bool {
    let is_plain = !name.starts_with('.') && !name.contains(['/', '\\', ':', '\0']);
    let ends = [".safetensors", ".json", ".jinja"];
    is_plain && ends.iter().any(|end| name.ends_with(end))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Info> {
        Info::parse(text, &RepoId::parse("org/name")?, "url")
    }

    fn info(files: &str) -> String {
        format!(r#"{{"sha": "{}", "siblings": [{files}]}}"#, "a".repeat(40))
    }

    fn small(name: &str) -> String {
        let blob = "b".repeat(40);
        format!(r#"{{"rfilename": "{name}", "size": 5, "blobId": "{blob}"}}"#)
    }

    fn large(name: &str) -> String {
        let sha = "c".repeat(64);
        format!(r#"{{"rfilename": "{name}", "size": 9, "lfs": {{"sha256": "{sha}", "size": 9}}}}"#)
    }

    #[test]
    fn only_the_files_of_a_checkpoint_are_taken() {
        let names = [
            "config.json",
            "README.md",
            "x/config.json",
            "../a.json",
            ".hidden.json",
        ];
        let mut files: Vec<String> = names.iter().map(|name| small(name)).collect();
        files.push(large("model.safetensors"));
        files.push(large("pytorch_model.bin"));
        let info = parse(&info(&files.join(","))).unwrap();
        let names: Vec<&str> = info.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["config.json", "model.safetensors"]);
        assert_eq!(info.files[1].hash, Hash::Sha256("c".repeat(64)));
    }

    #[test]
    fn what_is_not_as_it_should_be_is_an_error() {
        assert!(matches!(parse("{"), Err(Error::Info { .. })));
        let without = info(&small("config.json"));
        assert!(matches!(parse(&without), Err(Error::NoCheckpoint { .. })));
        let both = [small("config.json"), large("model.safetensors")].join(",");
        let no_commit = info(&both).replace(&"a".repeat(40), "../main");
        assert!(matches!(parse(&no_commit), Err(Error::Info { .. })));
        let bad_hash = info(&both).replace(&"c".repeat(64), "../../x");
        assert!(matches!(parse(&bad_hash), Err(Error::Info { .. })));
        let no_hash = info(&both).replace("blobId", "other");
        assert!(matches!(parse(&no_hash), Err(Error::Info { .. })));
    }
}
