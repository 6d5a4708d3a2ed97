use std::fs::{File, TryLockError};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use super::{Info, Vfs, VfsFile};

const LOCK: &str = "lock";
/// The layout version of docs/format.md, section 1.
const VERSIONED: &str = "v1";
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A store's folder on disk. All files are opened relative to the folder's handle, without
/// following symbolic links; folders are made with mode 0700 and files with 0600.
#[derive(Debug)]
pub struct DiskVfs {
    root: OwnedFd,
    folder: OwnedFd,
    lock: File,
}

impl DiskVfs {
    /// Opens the folder for reading and writing; what is missing of it is made, durably.
    ///
    /// # Errors
    /// Whatever the file system reports; a symbolic link in place of a part of the store is
    /// refused.
    pub fn create(root: &Path) -> io::Result<Self> {
        make_folders(root)?;
        let root = open_root(root)?;
        match rustix::fs::mkdirat(&root, VERSIONED, Mode::RWXU) {
            Ok(()) => sync_folder(&root)?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let folder = open_folder(&root)?;
        if rustix::fs::fstat(&folder)?.st_mode & 0o077 != 0 {
            // Somebody loosened it. What is inside is private text.
            rustix::fs::fchmod(&folder, Mode::RWXU)?;
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&root, LOCK, flags, PRIVATE_FILE)?.into();
        Ok(Self { root, folder, lock })
    }

    /// Opens an existing folder for reading only. Nothing is created or changed.
    ///
    /// # Errors
    /// Whatever the file system reports, such as [`io::ErrorKind::NotFound`].
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = open_root(root)?;
        let folder = open_folder(&root)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&root, LOCK, flags, Mode::empty())?.into();
        Ok(Self { root, folder, lock })
    }
}

fn open_root(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(root, flags, Mode::empty())?)
}

fn open_folder(root: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(root, VERSIONED, flags, Mode::empty())?)
}

/// Makes the folder and its missing ancestors, each synced into its parent.
fn make_folders(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_folders(parent)?;
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => sync_folder(&open_root(parent)?),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(e) => Err(e),
    }
}

fn sync_folder(folder: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::fsync(folder)?)
}

fn names(folder: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if name != "." && name != ".." {
            names.push(name.into_owned());
        }
    }
    Ok(names)
}

/// Everything below a folder, without following links. What vanishes meanwhile counts nothing.
fn bytes_below(folder: &OwnedFd, skip: &[&str]) -> io::Result<u64> {
    let mut bytes = 0;
    for name in names(folder)?
        .iter()
        .filter(|n| !skip.contains(&n.as_str()))
    {
        let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        bytes += stat.st_blocks as u64 * 512;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(inner) = rustix::fs::openat(folder, name, flags, Mode::empty()) {
                bytes += bytes_below(&inner, &[])?;
            }
        }
    }
    Ok(bytes)
}

impl Vfs for DiskVfs {
    fn create(&self, name: &str) -> io::Result<Box<dyn VfsFile>> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.folder, name, flags, PRIVATE_FILE)?;
        Ok(Box::new(DiskFile(fd.into())))
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn VfsFile>> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        // A planted FIFO must not block the open.
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&self.folder, name, flags, Mode::empty())?;
        let file = DiskFile(fd.into());
        if !file.info()?.regular {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.folder, from, &self.folder, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        names(&self.folder)
    }

    fn info(&self, name: &str) -> io::Result<Info> {
        let s = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Info {
            len: s.st_size as u64,
            allocated: s.st_blocks as u64 * 512,
            identity: identity(s.st_ino as u64, s.st_ctime as i64, s.st_ctime_nsec as i64),
            regular: rustix::fs::FileType::from_raw_mode(s.st_mode).is_file(),
        })
    }

    fn sync_folder(&self) -> io::Result<()> {
        sync_folder(&self.folder)
    }

    fn outside_bytes(&self) -> io::Result<u64> {
        bytes_below(&self.root, &[LOCK, VERSIONED])
    }

    fn available(&self) -> io::Result<u64> {
        let s = rustix::fs::fstatvfs(&self.folder)?;
        Ok(s.f_bavail.saturating_mul(s.f_frsize))
    }

    fn try_lock(&self) -> io::Result<Option<Box<dyn Send>>> {
        // A handle of its own: locks belong to the open file, and dropping it releases them.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file: File = rustix::fs::openat(&self.root, LOCK, flags, Mode::empty())?.into();
        Ok(lock_now(&file, true)?.then(|| Box::new(file) as Box<dyn Send>))
    }

    fn changes(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let n = self.lock.read_at(&mut bytes, 0)?;
        Ok(if n == bytes.len() {
            u64::from_le_bytes(bytes)
        } else {
            0
        })
    }

    fn set_changes(&self, value: u64) -> io::Result<()> {
        self.lock.write_all_at(&value.to_le_bytes(), 0)
    }
}

fn identity(inode: u64, seconds: i64, nanos: i64) -> u128 {
    u128::from(inode) << 64 | u128::from((seconds as u64) << 30 ^ nanos as u64)
}

fn lock_now(file: &File, exclusive: bool) -> io::Result<bool> {
    let taken = if exclusive {
        file.try_lock()
    } else {
        file.try_lock_shared()
    };
    match taken {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

#[derive(Debug)]
struct DiskFile(File);

impl VfsFile for DiskFile {
    fn read_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::preadv(&self.0, into, offset)?)
    }

    fn write_at(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.0, from, offset)?)
    }

    #[cfg(target_os = "linux")]
    fn preallocate(&self, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        match fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, len) {
            Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn preallocate(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.0, flags, offset, len) {
            Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            other => Ok(other?),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn punch(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    #[cfg(target_vendor = "apple")]
    fn sync_data(&self, flush: bool) -> io::Result<()> {
        Ok(if flush {
            rustix::fs::fcntl_fullfsync(&self.0)
        } else {
            rustix::fs::fsync(&self.0)
        }?)
    }

    #[cfg(not(target_vendor = "apple"))]
    fn sync_data(&self, _flush: bool) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.0)?)
    }

    fn info(&self) -> io::Result<Info> {
        let m = self.0.metadata()?;
        Ok(Info {
            len: m.len(),
            allocated: m.blocks() * 512,
            identity: identity(m.ino(), m.ctime(), m.ctime_nsec()),
            regular: m.is_file(),
        })
    }

    fn try_lock(&self, exclusive: bool) -> io::Result<bool> {
        match lock_now(&self.0, exclusive) {
            // A file system without locks has no other process on it that could be warned.
            Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(true),
            other => other,
        }
    }
}
