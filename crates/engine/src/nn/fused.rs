//! Elementwise functions that a GPU computes in one kernel.
//!
//! MLX fuses them when a function is compiled. On its CPU build that would need a C++
//! compiler at run time, and there the operations run one by one.

use std::cell::RefCell;
use std::sync::OnceLock;

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::tanh;
use mlx_rs::transforms::compile::compile;
use mlx_sys_ext::Backend;

use super::{gelu_tanh, scalar_like, silu};
use crate::Result;

/// `gelu(gate) * up`, by the tanh form of GELU.
pub(crate) fn gated_gelu(gate: &Array, up: &Array) -> Result<Array> {
    thread_local!(static FUSED: Slot = const { RefCell::new(None) });
    let plain = |gate: &Array, up: &Array| -> Result<Array> { Ok(gelu_tanh(gate)?.multiply(up)?) };
    FUSED.with(|slot| binary(slot, plain, gate, up))
}

/// `silu(gate) * up`.
pub(crate) fn gated_silu(gate: &Array, up: &Array) -> Result<Array> {
    thread_local!(static FUSED: Slot = const { RefCell::new(None) });
    let plain = |gate: &Array, up: &Array| -> Result<Array> { Ok(silu(gate)?.multiply(up)?) };
    FUSED.with(|slot| binary(slot, plain, gate, up))
}

/// `c tanh(x / c)`.
pub(crate) fn soft_cap(x: &Array, cap: f32) -> Result<Array> {
    thread_local!(static FUSED: Slot = const { RefCell::new(None) });
    let plain =
        |x: &Array, cap: &Array| -> Result<Array> { Ok(tanh(x.divide(cap)?)?.multiply(cap)?) };
    FUSED.with(|slot| binary(slot, plain, x, &scalar_like(cap, x)?))
}

/// A function of several arrays, compiled.
type FusedSeveral = Box<dyn for<'a> FnMut(&'a [Array]) -> Result<Vec<Array>, Exception>>;

/// Where a thread keeps one.
pub(crate) type SeveralSlot = RefCell<Option<FusedSeveral>>;

/// What `plain` computes of `inputs`, its elementwise runs in one kernel each where a GPU
/// computes. `plain` may depend on nothing else: it is traced once for inputs of such shapes.
pub(crate) fn fuse_several<const INPUTS: usize, const OUTPUTS: usize>(
    slot: &SeveralSlot,
    plain: fn(&[Array; INPUTS]) -> Result<[Array; OUTPUTS]>,
    inputs: &[Array; INPUTS],
) -> Result<[Array; OUTPUTS]> {
    if fuses() {
        compiled(slot, plain, inputs)
    } else {
        plain(inputs)
    }
}

fn compiled<const INPUTS: usize, const OUTPUTS: usize>(
    slot: &SeveralSlot,
    plain: fn(&[Array; INPUTS]) -> Result<[Array; OUTPUTS]>,
    inputs: &[Array; INPUTS],
) -> Result<[Array; OUTPUTS]> {
    let mut slot = slot.borrow_mut();
    let fused = slot.get_or_insert_with(|| {
        let traced = move |inputs: &[Array]| -> Result<Vec<Array>, Exception> {
            let count = |_| Exception::custom("another number of inputs than was traced");
            let inputs: &[Array; INPUTS] = inputs.try_into().map_err(count)?;
            let outputs = plain(inputs).map_err(|error| Exception::custom(error.to_string()))?;
            Ok(outputs.into())
        };
        Box::new(compile(traced, false))
    });
    let count = |_| Exception::custom("another number of outputs than was traced");
    Ok(fused(inputs)?.try_into().map_err(count)?)
}

/// [`fuse_several`] as a GPU has it, for tests on a CPU, which need a C++ compiler.
#[cfg(test)]
pub(crate) fn fuse_on_any_device<const INPUTS: usize, const OUTPUTS: usize>(
    plain: fn(&[Array; INPUTS]) -> Result<[Array; OUTPUTS]>,
    inputs: &[Array; INPUTS],
) -> Result<[Array; OUTPUTS]> {
    compiled(&RefCell::new(None), plain, inputs)
}

/// A function of two arrays, compiled.
type Fused = Box<dyn for<'a> FnMut((&'a Array, &'a Array)) -> Result<Array, Exception>>;

/// Where a thread keeps one, since compiling again would trace again.
type Slot = RefCell<Option<Fused>>;

fn binary(
    slot: &Slot,
    plain: impl Fn(&Array, &Array) -> Result<Array> + 'static,
    a: &Array,
    b: &Array,
) -> Result<Array> {
    if !fuses() {
        return plain(a, b);
    }
    let mut slot = slot.borrow_mut();
    let fused = slot.get_or_insert_with(|| {
        let traced = move |(a, b): (&Array, &Array)| {
            plain(a, b).map_err(|error| Exception::custom(error.to_string()))
        };
        Box::new(compile(traced, true))
    });
    Ok(fused((a, b))?)
}

/// Whether this process computes on a GPU.
fn fuses() -> bool {
    static FUSES: OnceLock<bool> = OnceLock::new();
    *FUSES.get_or_init(|| Backend::current().is_ok_and(|backend| backend != Backend::Cpu))
}
