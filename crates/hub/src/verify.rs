//! Whether a file is what the hub says.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::info::{FileInfo, Hash};
use crate::{Error, Result};

/// Reads a file once, and compares its length and hash.
///
/// # Errors
/// [`Error::Length`], [`Error::Hash`], [`Error::Io`].
pub(crate) fn verify(path: &Path, file: &FileInfo) -> Result<()> {
    let mut reader = File::open(path).map_err(Error::io(path))?;
    let found = reader.metadata().map_err(Error::io(path))?.len();
    if found != file.length {
        return Err(Error::Length {
            file: file.name.clone(),
            expected: file.length,
            found,
        });
    }
    let found = match &file.hash {
        Hash::Sha256(_) => digest(Sha256::new(), &mut reader),
        Hash::Git(_) => {
            // How Git names a blob.
            let mut hasher = Sha1::new();
            hasher.update(format!("blob {}\0", file.length));
            digest(hasher, &mut reader)
        }
    }
    .map_err(Error::io(path))?;
    if found != file.hash.text() {
        return Err(Error::Hash {
            file: file.name.clone(),
            expected: file.hash.text().to_owned(),
            found,
        });
    }
    Ok(())
}

fn digest(mut hasher: impl Digest, reader: &mut impl Read) -> std::io::Result<String> {
    let mut buffer = vec![0; 1 << 20];
    loop {
        match reader.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    let hash = hasher.finalize();
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    let digits = hash.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    Ok(digits.map(digit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hashes_are_the_hubs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "hello\n").unwrap();
        let file = |hash| FileInfo {
            name: "file".to_owned(),
            length: 6,
            hash,
        };
        // `git hash-object` and `sha256sum` of the same bytes.
        let git = Hash::Git("ce013625030ba8dba906f756967f9e9ca394464a".to_owned());
        verify(&path, &file(git)).unwrap();
        let sha = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        verify(&path, &file(Hash::Sha256(sha.to_owned()))).unwrap();
        let wrong = Hash::Sha256(sha.replace('5', "6"));
        assert!(matches!(
            verify(&path, &file(wrong)),
            Err(Error::Hash { .. })
        ));
        std::fs::write(&path, "hello").unwrap();
        let sha = Hash::Sha256(sha.to_owned());
        assert!(matches!(
            verify(&path, &file(sha)),
            Err(Error::Length {
                expected: 6,
                found: 5,
                ..
            })
        ));
    }
}
