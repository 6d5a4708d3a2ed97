
// Added by `cargo xtask setup`: the half-precision types and the four functions
// that mlx-rs calls (see additions.cpp).
#[repr(transparent)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct float16_t(pub u16);
pub type bfloat16_t = u16;
unsafe extern "C" {
    pub fn mlx_array_item_float16(res: *mut float16_t, arr: mlx_array) -> ::std::os::raw::c_int;
    pub fn mlx_array_data_float16(arr: mlx_array) -> *const float16_t;
    pub fn mlx_array_item_bfloat16(res: *mut bfloat16_t, arr: mlx_array) -> ::std::os::raw::c_int;
    pub fn mlx_array_data_bfloat16(arr: mlx_array) -> *const bfloat16_t;
    pub fn prefill_array_buffer(
        size: *mut usize,
        offset: *mut i64,
        arr: mlx_array,
    ) -> ::std::os::raw::c_int;
}
