//! What names a model by all that its computations depend on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use mlx_sys_ext::Backend;
use sha2::{Digest, Sha256};

use crate::checkpoint::Checkpoint;
use crate::model::LoadOptions;
use crate::{Error, Result};

/// To be raised whenever this engine computes something otherwise than before.
const COMPUTATION: u32 = 1;

/// The file beside the store that remembers digests of large files.
const KNOWN: &str = "digests.txt";

/// Digests of a checkpoint's files, which take a while; the rest is mixed in on the MLX
/// thread, by [`fingerprints`](Self::fingerprints).
#[derive(Debug)]
pub(crate) struct Contents {
    /// Of weights and configuration.
    digest: [u8; 32],
    /// Of the adapter's files.
    adapter: Option<[u8; 32]>,
}

/// What keys of prompts and of features depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fingerprints {
    pub model: [u8; 32],
    pub encoders: [u8; 32],
    /// Of weights and configuration alone.
    pub checkpoint: [u8; 32],
}

impl Contents {
    /// Reads all of a checkpoint's weights, but for files whose digests are remembered in
    /// `folder`: those that still have the same inode, size and times.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn of(checkpoint: &Checkpoint, folder: &Path) -> Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(folder)
            .map_err(|source| Error::file(folder, source))?;
        let path = folder.join(KNOWN);
        let mut known = Known::read(&path);
        let mut hasher = Sha256::new();
        for file in checkpoint.weight_files()? {
            hasher.update(known.digest(&file)?);
        }
        hasher.update(checkpoint.config_bytes());
        let adapter = match checkpoint.adapter_files() {
            Some(files) => {
                let mut hasher = Sha256::new();
                for file in files {
                    hasher.update(known.digest(&file)?);
                }
                Some(hasher.finalize().into())
            }
            None => None,
        };
        // It only spares time: that it can't be kept is no reason to stop.
        if let Err(error) = known.write(&path) {
            tracing::warn!(%error, path = %path.display(), "digests are not remembered");
        }
        Ok(Self {
            digest: hasher.finalize().into(),
            adapter,
        })
    }

    /// A name that no other loaded model has, for what never leaves the process.
    pub(crate) fn unique(id: u64) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"prefill.unique.v1\0");
        hasher.update(id.to_le_bytes());
        Self {
            digest: hasher.finalize().into(),
            adapter: None,
        }
    }

    /// Mixes in how it is computed.
    ///
    /// # Errors
    /// [`Error::MlxExtension`].
    pub(crate) fn fingerprints(&self, options: &LoadOptions) -> Result<Fingerprints> {
        let backend = Backend::current()?.name();
        Ok(self.mixed(options, backend, &mlx_sys_ext::version()?))
    }

    fn mixed(&self, options: &LoadOptions, backend: &str, mlx: &str) -> Fingerprints {
        let common = |tag: &str| {
            let mut hasher = Sha256::new();
            for part in [
                tag.as_bytes(),
                &COMPUTATION.to_le_bytes(),
                &self.digest,
                self.adapter.as_ref().map_or(&[][..], |digest| &digest[..]),
                format!("{:?}", options.working_type).as_bytes(),
                backend.as_bytes(),
                mlx.as_bytes(),
                std::env::consts::ARCH.as_bytes(),
            ] {
                // So that no two lists of parts run together to the same bytes.
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            hasher
        };
        let mut model = common("prefill.model.v1");
        model.update((options.prefill_chunk.get() as u64).to_le_bytes());
        model.update(format!("{:?}", options.kv).as_bytes());
        Fingerprints {
            model: model.finalize().into(),
            encoders: common("prefill.encoders.v1").finalize().into(),
            checkpoint: self.digest,
        }
    }
}

/// Digests by file: inode, size, both times, and path say whether it is the same.
#[derive(Debug, Default)]
struct Known {
    digests: BTreeMap<PathBuf, (String, blake3::Hash)>,
    is_changed: bool,
}

impl Known {
    /// What can't be read is not known.
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let digests = text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, '\t');
            let digest = blake3::Hash::from_hex(fields.next()?).ok()?;
            let stamp = fields.next()?.to_owned();
            Some((PathBuf::from(fields.next()?), (stamp, digest)))
        });
        Self {
            digests: digests.collect(),
            is_changed: false,
        }
    }

    fn digest(&mut self, file: &Path) -> Result<[u8; 32]> {
        let failed = |source| Error::file(file, source);
        let path = fs::canonicalize(file).map_err(failed)?;
        let stamp = stamp(&path).map_err(failed)?;
        if let Some((known, digest)) = self.digests.get(&path)
            && *known == stamp
        {
            return Ok(*digest.as_bytes());
        }
        let digest = hash(&path).map_err(failed)?;
        // A path with a line break could not be read back.
        if path
            .to_str()
            .is_some_and(|path| !path.contains(['\n', '\r']))
        {
            self.digests.insert(path, (stamp, digest));
            self.is_changed = true;
        }
        Ok(*digest.as_bytes())
    }

    /// Replaces the file as a whole: another process may do the same.
    fn write(&self, path: &Path) -> io::Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        for (path, (stamp, digest)) in &self.digests {
            writeln!(file, "{}\t{stamp}\t{}", digest.to_hex(), path.display())?;
        }
        file.persist(path)?;
        Ok(())
    }
}

fn stamp(path: &Path) -> io::Result<String> {
    let meta = fs::metadata(path)?;
    Ok(format!(
        "{}:{}:{}:{}.{}:{}.{}",
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    ))
}

fn hash(path: &Path) -> io::Result<blake3::Hash> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_changes_a_result_changes_the_name() {
        use crate::cache::KvQuantization;
        use crate::model::WorkingType;

        let contents = |digest, adapter| Contents {
            digest: [digest; 32],
            adapter,
        };
        let plain = LoadOptions::default;
        let kv = |kv| plain().quantized_kv(kv);
        let first = contents(1, None).mixed(&plain(), "cpu", "0.32");
        // Weights, adapter, type, back end and version change features too.
        for other in [
            contents(2, None).mixed(&plain(), "cpu", "0.32"),
            contents(1, Some([1; 32])).mixed(&plain(), "cpu", "0.32"),
            contents(1, None).mixed(&plain().working_type(WorkingType::Bf16), "cpu", "0.32"),
            contents(1, None).mixed(&plain(), "cuda", "0.32"),
            contents(1, None).mixed(&plain(), "cpu", "0.33"),
        ] {
            assert_ne!(other.model, first.model);
            assert_ne!(other.encoders, first.encoders);
        }
        // How keys and values are kept does not.
        let mut models = vec![first.model];
        for options in [
            kv(KvQuantization::new(8)),
            kv(KvQuantization::new(4)),
            kv(KvQuantization::new(8).start(64)),
            kv(KvQuantization::new(8).group_size(32)),
            kv(KvQuantization::new(8).plain_layer(0)),
            plain().prefill_chunk(std::num::NonZeroUsize::MIN),
        ] {
            let other = contents(1, None).mixed(&options, "cpu", "0.32");
            assert_eq!(other.encoders, first.encoders);
            assert!(!models.contains(&other.model));
            models.push(other.model);
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, list) = (folder.path().join("w"), folder.path().join(KNOWN));
        fs::write(&file, b"one").unwrap();
        let mut known = Known::read(&list);
        let first = known.digest(&file).unwrap();
        assert_eq!(first, *blake3::hash(b"one").as_bytes());
        known.write(&list).unwrap();

        let mut known = Known::read(&list);
        assert_eq!(known.digest(&file).unwrap(), first);
        assert!(!known.is_changed, "it was remembered");
        // Another file under the same name.
        fs::remove_file(&file).unwrap();
        fs::write(&file, b"two").unwrap();
        assert_ne!(known.digest(&file).unwrap(), first);
        assert!(known.is_changed);
        // A list that is not one is no list.
        fs::write(&list, b"\xff\x00 not a list\nzz\t\t").unwrap();
        assert!(Known::read(&list).digests.is_empty());
    }
}
