//! What the store asks of a file system, so that a store can live in memory, and so that tests
//! can make every call fail.

mod disk;
mod memory;

use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut};

pub use disk::DiskVfs;
pub use memory::MemoryVfs;

/// The longest list of slices that one vectored call is given (`IOV_MAX` on Linux and macOS).
pub const MAX_SLICES: usize = 1024;

/// The folder of one store: flat, with the files of docs/format.md, section 1.
///
/// An implementation must make [`Vfs::rename`] atomic, and must not report success of a sync
/// before what it covers survives a power cut.
pub trait Vfs: Send + Sync + Debug {
    /// Creates a file that must not exist, for reading and writing.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn create(&self, name: &str) -> io::Result<Box<dyn VfsFile>>;

    /// Opens an existing file; symbolic links are refused.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn VfsFile>>;

    /// Replaces `to` by `from`, atomically.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names in the folder, in any order.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn list(&self) -> io::Result<Vec<String>>;

    /// What is known of a file without opening it; symbolic links are not followed.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn info(&self, name: &str) -> io::Result<Info>;

    /// Makes creations, renames and removals durable.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn sync_folder(&self) -> io::Result<()>;

    /// Bytes beside the store's own folder in the root that the limit is to cover.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn outside_bytes(&self) -> io::Result<u64>;

    /// Bytes that the file system could still take.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn available(&self) -> io::Result<u64>;

    /// Takes the writers' lock if nobody holds it; dropping the guard releases it.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn try_lock(&self) -> io::Result<Option<Box<dyn Send>>>;

    /// The change counter.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn changes(&self) -> io::Result<u64>;

    /// Sets the change counter. Only called while the lock is held.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn set_changes(&self, value: u64) -> io::Result<()>;
}

/// An open file.
pub trait VfsFile: Send + Sync + Debug {
    /// Reads into the slices, from `offset`; returns how many bytes, 0 only at the end.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn read_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize>;

    /// Writes the slices from `offset`; returns how many bytes, perhaps fewer than given.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn write_at(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Reserves space, so that a full disk is reported before the data is written. May do nothing.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn preallocate(&self, len: u64) -> io::Result<()>;

    /// Gives the space of a range back, which then reads as zeros. The length stays.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the file system can't.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Shortens the file.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Makes the data durable. Where a file system tells handing it to the drive from emptying
    /// the drive's cache, only a `flush` does the latter, for all that was handed over before.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn sync_data(&self, flush: bool) -> io::Result<()>;

    /// What is known of the file.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn info(&self) -> io::Result<Info>;

    /// Takes a shared or an exclusive lock until the file is dropped, if no other handle forbids.
    ///
    /// # Errors
    /// Whatever the file system reports.
    fn try_lock(&self, exclusive: bool) -> io::Result<bool>;
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Its length in bytes.
    pub len: u64,
    /// The bytes that it occupies: holes are not counted.
    pub allocated: u64,
    /// A number that differs between a file and the one that replaces it under the same name.
    pub identity: u128,
    /// Whether it is a regular file.
    pub regular: bool,
}

/// Writes all slices from `offset`, however the file system divides them.
pub(crate) fn write_all(
    file: &dyn VfsFile,
    mut slices: &mut [IoSlice<'_>],
    mut offset: u64,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let n = slices.len().min(MAX_SLICES);
        match file.write_at(&slices[..n], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut slices, written);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Fills all slices from `offset`; the end of the file before that is an error.
pub(crate) fn read_all(
    file: &dyn VfsFile,
    mut slices: &mut [IoSliceMut<'_>],
    mut offset: u64,
) -> io::Result<()> {
    IoSliceMut::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let n = slices.len().min(MAX_SLICES);
        match file.read_at(&mut slices[..n], offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                offset += read as u64;
                IoSliceMut::advance_slices(&mut slices, read);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A whole small file, at most `limit` bytes.
pub(crate) fn read_file(file: &dyn VfsFile, limit: u64) -> io::Result<Vec<u8>> {
    let len = file.info()?.len;
    if len > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; len as usize];
    read_all(file, &mut [IoSliceMut::new(&mut bytes)], 0)?;
    Ok(bytes)
}
