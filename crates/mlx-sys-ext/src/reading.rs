//! Arrays that MLX reads out of memory as it reads a file's.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{ptr, thread};

use mlx_rs::{Array, Dtype, Stream};
use mlx_sys::{mlx_io_reader, mlx_io_vtable, mlx_map_string_to_array, mlx_map_string_to_string};

use crate::managed::{check_bytes, expected_bytes};
use crate::{Backend, Error, Result, raw};

/// The name of the one tensor in what MLX reads.
const NAME: &std::ffi::CStr = c"array";
/// Bytes that are worth a thread to copy.
const WORTH_A_THREAD: usize = 1 << 20;
const MAX_THREADS: usize = 4;

/// Makes an array that is not evaluated yet, whose bytes MLX takes from `owner` when it is:
/// the elements row by row, in little-endian order. `owner` is dropped after that.
///
/// On CUDA the bytes go to the device's own memory in one copy, where
/// [`array_from_owner`](crate::array_from_owner) has them in memory that host and device share,
/// and that moves page by page when the device first needs it. Elsewhere it takes a copy, and
/// nothing is gained.
///
/// ```
/// use mlx_rs::Dtype;
/// use mlx_sys_ext::array_read_from;
///
/// let bytes: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// assert_eq!(array_read_from(bytes, &[2], Dtype::Float32)?.as_slice::<f32>(), [1.5, -2.0]);
/// # Ok::<(), mlx_sys_ext::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] for a negative extent, [`Error::Length`] if `owner` has another number
/// of bytes than `shape` and `dtype` ask for, [`Error::Bool`] for a byte that is no boolean,
/// [`Error::Mlx`] for `Float64`, which MLX does not read.
pub fn array_read_from<T>(owner: T, shape: &[i32], dtype: Dtype) -> Result<Array>
where
    T: AsRef<[u8]> + Send + Sync + 'static,
{
    check_bytes(owner.as_ref(), shape, dtype)?;
    let source = Box::into_raw(Box::new(Source {
        header: header(shape, dtype)?,
        owner,
        position: AtomicUsize::new(0),
    }));
    let table = mlx_io_vtable {
        is_open: Some(always),
        good: Some(always),
        tell: Some(tell::<T>),
        seek: Some(seek::<T>),
        read: Some(read::<T>),
        read_at_offset: Some(read_at::<T>),
        write: Some(write),
        label: Some(label),
        free: Some(free::<T>),
    };
    // Only CUDA reads on its device.
    let stream = match Backend::current()? {
        Backend::Cuda => Stream::thread_local_or_default(),
        Backend::Cpu | Backend::Metal => Stream::cpu(),
    };
    // SAFETY: the functions of the table take what `source` is, from any thread, until MLX
    // calls `free` with it, once; and these make empty maps, which `Drop` frees.
    let mut loaded = unsafe {
        Loaded {
            reader: mlx_sys::mlx_io_reader_new(source.cast(), table),
            arrays: mlx_sys::mlx_map_string_to_array_new(),
            metadata: mlx_sys::mlx_map_string_to_string_new(),
        }
    };
    // SAFETY: all handles are live.
    raw::status(|| unsafe {
        mlx_sys::mlx_load_safetensors_reader(
            &raw mut loaded.arrays,
            &raw mut loaded.metadata,
            loaded.reader,
            stream.as_ptr(),
        )
    })?;
    // SAFETY: the map is live, and the name ends in a zero byte.
    raw::array(|place| unsafe {
        mlx_sys::mlx_map_string_to_array_get(place, loaded.arrays, NAME.as_ptr())
    })
}

/// A safetensors file in memory, of one tensor.
struct Source<T> {
    header: Vec<u8>,
    owner: T,
    position: AtomicUsize,
}

impl<T: AsRef<[u8]>> Source<T> {
    fn len(&self) -> usize {
        self.header.len() + self.owner.as_ref().len()
    }

    /// Copies `count` bytes from `position` on. Gives how many there were.
    ///
    /// # Safety
    /// `to` must be good for writes of `count` bytes.
    unsafe fn copy(&self, to: *mut u8, count: usize, position: usize) -> usize {
        let (mut to, mut copied) = (to, 0);
        let mut begin = position;
        for part in [self.header.as_slice(), self.owner.as_ref()] {
            let from = part.get(begin..).unwrap_or_default();
            let n = from.len().min(count - copied);
            // SAFETY: `n` is no more than is left of `count`, and `from` has as many.
            unsafe { copy_parallel(&from[..n], to) };
            // SAFETY: see above.
            to = unsafe { to.add(n) };
            copied += n;
            begin = begin.saturating_sub(part.len());
        }
        copied
    }
}

/// Memory that is written in parts by several threads.
struct Target(*mut u8);

// SAFETY: each thread writes a part of its own.
unsafe impl Send for Target {}

/// Copies on several threads what is long: most of the time goes into the system giving pages
/// to memory that nobody touched before.
///
/// # Safety
/// `to` must be good for writes of as many bytes as `from` has.
unsafe fn copy_parallel(from: &[u8], to: *mut u8) {
    let threads = (from.len() / WORTH_A_THREAD).clamp(1, MAX_THREADS);
    let part = from.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let mut parts = from.chunks(part).enumerate();
        let first = parts.next();
        for (index, bytes) in parts {
            // SAFETY: the part lies inside what `to` is good for.
            let target = Target(unsafe { to.add(index * part) });
            let copy = move || {
                let Target(to) = { target };
                // SAFETY: see above; memory that MLX just allocated overlaps nothing.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            };
            scope.spawn(copy);
        }
        if let Some((_, bytes)) = first {
            // SAFETY: as for the others.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        }
    });
}

/// A safetensors header: its length as u64, little endian, then JSON.
fn header(shape: &[i32], dtype: Dtype) -> Result<Vec<u8>> {
    let name = match dtype {
        Dtype::Bool => "BOOL",
        Dtype::Uint8 => "U8",
        Dtype::Int8 => "I8",
        Dtype::Uint16 => "U16",
        Dtype::Int16 => "I16",
        Dtype::Float16 => "F16",
        Dtype::Bfloat16 => "BF16",
        Dtype::Uint32 => "U32",
        Dtype::Int32 => "I32",
        Dtype::Float32 => "F32",
        Dtype::Uint64 => "U64",
        Dtype::Int64 => "I64",
        Dtype::Complex64 => "C64",
        Dtype::Float64 => {
            return Err(Error::Mlx {
                message: "arrays of Float64 are not read".to_owned(),
            });
        }
    };
    let bytes = expected_bytes(shape, dtype)?;
    let name_of = NAME.to_string_lossy();
    let json = format!(
        r#"{{"{name_of}":{{"dtype":"{name}","shape":{shape:?},"data_offsets":[0,{bytes}]}}}}"#
    );
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json.as_bytes());
    Ok(header)
}

/// Handles of one load.
struct Loaded {
    reader: mlx_io_reader,
    arrays: mlx_map_string_to_array,
    metadata: mlx_map_string_to_string,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the handles are ours alone. MLX holds what it still needs of the reader.
        unsafe {
            mlx_sys::mlx_io_reader_free(self.reader);
            mlx_sys::mlx_map_string_to_array_free(self.arrays);
            mlx_sys::mlx_map_string_to_string_free(self.metadata);
        }
    }
}

unsafe extern "C" fn always(_: *mut c_void) -> bool {
    true
}

unsafe extern "C" fn tell<T: AsRef<[u8]>>(source: *mut c_void) -> usize {
    // SAFETY: MLX passes what it was given, while it lives.
    let source = unsafe { &*source.cast::<Source<T>>() };
    source.position.load(Relaxed)
}

unsafe extern "C" fn seek<T: AsRef<[u8]>>(source: *mut c_void, by: i64, whence: c_int) -> c_int {
    // SAFETY: as in `tell`.
    let source = unsafe { &*source.cast::<Source<T>>() };
    let base = match whence {
        0 => 0,
        1 => source.position.load(Relaxed),
        _ => source.len(),
    };
    let Some(position) = isize::try_from(by)
        .ok()
        .and_then(|by| base.checked_add_signed(by))
    else {
        return -1;
    };
    source.position.store(position, Relaxed);
    0
}

unsafe extern "C" fn read<T: AsRef<[u8]>>(
    source: *mut c_void,
    to: *mut c_char,
    count: usize,
) -> usize {
    // SAFETY: as in `tell`.
    let source = unsafe { &*source.cast::<Source<T>>() };
    let position = source.position.load(Relaxed);
    // SAFETY: MLX gives memory for `count` bytes.
    let copied = unsafe { source.copy(to.cast(), count, position) };
    source.position.store(position + copied, Relaxed);
    copied
}

unsafe extern "C" fn read_at<T: AsRef<[u8]>>(
    source: *mut c_void,
    to: *mut c_char,
    count: usize,
    position: usize,
) -> usize {
    // SAFETY: as in `tell`.
    let source = unsafe { &*source.cast::<Source<T>>() };
    // SAFETY: MLX gives memory for `count` bytes.
    unsafe { source.copy(to.cast(), count, position) }
}

/// Nothing is ever written to what is read.
unsafe extern "C" fn write(_: *mut c_void, _: *const c_char, _: usize) -> usize {
    0
}

unsafe extern "C" fn label(_: *mut c_void) -> *const c_char {
    c"memory".as_ptr()
}

unsafe extern "C" fn free<T>(source: *mut c_void) {
    // SAFETY: MLX passes what `Box::into_raw` gave, once.
    drop(unsafe { Box::from_raw(source.cast::<Source<T>>()) });
}
