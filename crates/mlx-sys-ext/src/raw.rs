//! The way into mlx-c: the error handler, and handles that are freed.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Once;

use mlx_rs::Array;
use mlx_sys::mlx_array;

use crate::{Error, Result};

thread_local! {
    /// Whether this thread is inside a raw call of this crate.
    static IN_RAW_CALL: Cell<bool> = const { Cell::new(false) };
    /// What MLX said last, during such a call.
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

unsafe extern "C" {
    /// mlx-rs's handler, under the name that mlx-rs 0.33 exports it by.
    #[link_name = "default_mlx_error_handler"]
    fn mlx_rs_error_handler(message: *const c_char, data: *mut c_void);
}

/// Keeps the message of a raw call; passes any other on to mlx-rs.
extern "C" fn error_handler(message: *const c_char, data: *mut c_void) {
    if !IN_RAW_CALL.get() {
        // SAFETY: mlx-c passes on what it was called with, and mlx-rs's handler copies it.
        unsafe { mlx_rs_error_handler(message, data) };
        return;
    }
    // SAFETY: mlx-c passes a string that ends in a zero byte and lives through the call.
    let message = unsafe { CStr::from_ptr(message) }
        .to_string_lossy()
        .into_owned();
    MESSAGE.set(Some(message));
}

/// Puts our handler in place, after mlx-rs's, whose own installation happens once and would
/// otherwise come later and replace ours.
fn install_error_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Any operation makes mlx-rs install its handler; whether it succeeds is no matter.
        let _ = mlx_rs::ops::zeros::<u8>(&[0]);
        // SAFETY: the handler is a function that lives for ever; there is no data to free.
        unsafe { mlx_sys::mlx_set_error_handler(Some(error_handler), ptr::null_mut(), None) };
    });
}

/// Runs a raw call that returns 0 on success.
pub(crate) fn status(call: impl FnOnce() -> c_int) -> Result<()> {
    let (status, message) = guarded(call);
    if status == 0 {
        return Ok(());
    }
    let message = message.unwrap_or_else(|| format!("a call failed with status {status}"));
    Err(Error::Mlx { message })
}

/// Runs a raw call that returns a handle, which is null on failure.
pub(crate) fn handle(call: impl FnOnce() -> mlx_array) -> Result<Array> {
    let (handle, message) = guarded(call);
    if handle.ctx.is_null() {
        let message = message.unwrap_or_else(|| "a call gave no array".to_owned());
        return Err(Error::Mlx { message });
    }
    // SAFETY: a handle that is not null is a live array, and nothing else owns it.
    Ok(unsafe { Array::from_ptr(handle) })
}

/// Runs a raw call that writes an array to the given place.
pub(crate) fn array(call: impl FnOnce(*mut mlx_array) -> c_int) -> Result<Array> {
    // SAFETY: it makes an empty handle; see `NewArray` for its end.
    let mut new = NewArray(unsafe { mlx_sys::mlx_array_new() });
    status(|| call(&raw mut new.0))?;
    let array = std::mem::replace(
        &mut new.0,
        mlx_array {
            ctx: ptr::null_mut(),
        },
    );
    // SAFETY: after success the handle is a live array, and `new` no longer has it.
    Ok(unsafe { Array::from_ptr(array) })
}

/// An array that may be left out: the empty handle means none.
pub(crate) fn optional(array: Option<&Array>) -> mlx_array {
    array.map_or(
        mlx_array {
            ctx: ptr::null_mut(),
        },
        Array::as_ptr,
    )
}

fn guarded<T>(call: impl FnOnce() -> T) -> (T, Option<String>) {
    install_error_handler();
    let outer = IN_RAW_CALL.replace(true);
    MESSAGE.set(None);
    let result = call();
    IN_RAW_CALL.set(outer);
    (result, MESSAGE.take())
}

/// A handle that is freed unless it is taken out.
struct NewArray(mlx_array);

impl Drop for NewArray {
    fn drop(&mut self) {
        // SAFETY: freeing the empty handle does nothing; any other is ours alone.
        unsafe { mlx_sys::mlx_array_free(self.0) };
    }
}
