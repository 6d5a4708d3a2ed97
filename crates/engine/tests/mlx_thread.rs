//! A program that owns its MLX thread. Alone in its process, since no runtime thread may
//! have been there before.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use prefill_engine::{Engine, Error, MlxThread};
use prefill_test_support::assets_dir;

#[test]
fn a_program_that_owns_mlx_has_no_engine() {
    let thread = MlxThread::claim().unwrap();
    let refused = Engine::builder(assets_dir().join("demo-model")).build();
    assert!(matches!(refused, Err(Error::MlxTaken { .. })));
    drop(thread);
    Engine::builder(assets_dir().join("demo-model"))
        .build()
        .unwrap();
}
