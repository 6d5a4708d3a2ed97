//! What MLX runs on.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;

use mlx_rs::DeviceType;
use mlx_sys::{mlx_device, mlx_device_info, mlx_string, mlx_vector_string};

use crate::raw;
use crate::{Error, Result};

/// The kind of MLX build that this process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The processor alone.
    Cpu,
    /// Apple's GPUs.
    Metal,
    /// NVIDIA's GPUs.
    Cuda,
}

impl Backend {
    /// The back end with a GPU, if this build has one and it is there; the processor's
    /// otherwise.
    ///
    /// # Errors
    /// [`Error::Mlx`].
    pub fn current() -> Result<Self> {
        let available = |call: unsafe extern "C" fn(*mut bool) -> i32| -> Result<bool> {
            let mut available = false;
            // SAFETY: the place is ours, and the call only writes to it.
            raw::status(|| unsafe { call(&raw mut available) })?;
            Ok(available)
        };
        Ok(if available(mlx_sys::mlx_metal_is_available)? {
            Self::Metal
        } else if available(mlx_sys::mlx_cuda_is_available)? {
            Self::Cuda
        } else {
            Self::Cpu
        })
    }

    /// `cpu`, `metal` or `cuda`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Metal => "metal",
            Self::Cuda => "cuda",
        }
    }
}

/// MLX's version, such as `0.32.2`.
///
/// ```
/// assert!(mlx_sys_ext::version()?.starts_with("0.32."));
/// # Ok::<(), mlx_sys_ext::Error>(())
/// ```
///
/// # Errors
/// [`Error::Mlx`].
pub fn version() -> Result<String> {
    // SAFETY: it makes an empty string, which `Drop` frees.
    let mut text = Text(unsafe { mlx_sys::mlx_string_new() });
    // SAFETY: the place is a live string.
    raw::status(|| unsafe { mlx_sys::mlx_version(&raw mut text.0) })?;
    // SAFETY: the string is live, and holds zero-terminated text until it is freed.
    Ok(unsafe { text_of(mlx_sys::mlx_string_data(text.0)) })
}

/// How many devices of a kind there are.
///
/// # Errors
/// [`Error::Mlx`].
pub fn device_count(kind: DeviceType) -> Result<usize> {
    let mut count = 0;
    // SAFETY: the place is ours.
    raw::status(|| unsafe { mlx_sys::mlx_device_count(&raw mut count, kind.into()) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Whether the device of that kind and number can be used.
///
/// # Errors
/// [`Error::Mlx`].
pub fn is_device_available(kind: DeviceType, index: i32) -> Result<bool> {
    let device = Device::new(kind, index);
    let mut available = false;
    // SAFETY: the device is live, and the place is ours.
    raw::status(|| unsafe { mlx_sys::mlx_device_is_available(&raw mut available, device.0) })?;
    Ok(available)
}

/// One fact about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceInfoValue {
    /// A name.
    Text(String),
    /// A number, such as bytes of memory.
    Size(usize),
}

/// What a back end says of a device: `device_name`, `architecture` and others by back end.
pub type DeviceInfo = BTreeMap<String, DeviceInfoValue>;

/// What is known of a device.
///
/// # Errors
/// [`Error::Mlx`] if there is no such device.
pub fn device_info(kind: DeviceType, index: i32) -> Result<DeviceInfo> {
    let device = Device::new(kind, index);
    // SAFETY: it makes an empty record, which `Drop` frees.
    let mut info = Info(unsafe { mlx_sys::mlx_device_info_new() });
    // SAFETY: both are live.
    raw::status(|| unsafe { mlx_sys::mlx_device_info_get(&raw mut info.0, device.0) })?;
    // SAFETY: it makes an empty list, which `Drop` frees.
    let mut keys = Texts(unsafe { mlx_sys::mlx_vector_string_new() });
    // SAFETY: both are live.
    raw::status(|| unsafe { mlx_sys::mlx_device_info_get_keys(&raw mut keys.0, info.0) })?;
    // SAFETY: the list is live.
    let count = unsafe { mlx_sys::mlx_vector_string_size(keys.0) };
    let mut facts = DeviceInfo::new();
    for index in 0..count {
        let mut key: *mut c_char = ptr::null_mut();
        // SAFETY: the list is live and the index inside it; the text is the list's.
        raw::status(|| unsafe { mlx_sys::mlx_vector_string_get(&raw mut key, keys.0, index) })?;
        // SAFETY: the list holds zero-terminated text for as long as it lives.
        let key = unsafe { text_of(key) };
        let value = info.value(&key)?;
        facts.insert(key, value);
    }
    Ok(facts)
}

/// # Safety
/// `text` is null or points to zero-terminated text that lives through the call.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

struct Text(mlx_string);

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: the string is ours alone.
        unsafe { mlx_sys::mlx_string_free(self.0) };
    }
}

struct Texts(mlx_vector_string);

impl Drop for Texts {
    fn drop(&mut self) {
        // SAFETY: the list is ours alone.
        unsafe { mlx_sys::mlx_vector_string_free(self.0) };
    }
}

struct Device(mlx_device);

impl Device {
    fn new(kind: DeviceType, index: i32) -> Self {
        // SAFETY: it makes a device's name, not the device; `Drop` frees it.
        Self(unsafe { mlx_sys::mlx_device_new_type(kind.into(), index) })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the device's name is ours alone.
        unsafe { mlx_sys::mlx_device_free(self.0) };
    }
}

struct Info(mlx_device_info);

impl Info {
    fn value(&self, key: &str) -> Result<DeviceInfoValue> {
        let key = CString::new(key).map_err(|error| Error::Mlx {
            message: error.to_string(),
        })?;
        let mut is_text = false;
        // SAFETY: the record is live, the key is zero-terminated, the place is ours.
        raw::status(|| unsafe {
            mlx_sys::mlx_device_info_is_string(&raw mut is_text, self.0, key.as_ptr())
        })?;
        if is_text {
            let mut text = ptr::null();
            // SAFETY: as above.
            raw::status(|| unsafe {
                mlx_sys::mlx_device_info_get_string(&raw mut text, self.0, key.as_ptr())
            })?;
            // SAFETY: the text is the record's, which lives.
            return Ok(DeviceInfoValue::Text(unsafe { text_of(text) }));
        }
        let mut size = 0;
        // SAFETY: as above.
        raw::status(|| unsafe {
            mlx_sys::mlx_device_info_get_size(&raw mut size, self.0, key.as_ptr())
        })?;
        Ok(DeviceInfoValue::Size(size))
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the record is ours alone.
        unsafe { mlx_sys::mlx_device_info_free(self.0) };
    }
}
