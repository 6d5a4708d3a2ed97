//! 200 greedy ids as mlx-lm and mlx-vlm write them, also with weights quantised here.
//!
//! `tests/reference/make_greedy_goldens.py` made the goldens: the peers read the files of
//! `quantize`, and the margin between the best two logits is real at every step.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod parity_support;

use parity_support::{check_greedy, load};
use prefill_engine::{
    Checkpoint, MlxThread, QuantizationMode, QuantizeOptions, WorkingType, quantize_checkpoint,
};
use prefill_test_support::{Checkpoint as Tiny, Golden};

/// A hundred times what right implementations differ by, in logits.
const MARGIN: f64 = 5e-3;

/// How the weights of a golden are quantised; the script asks the same.
fn quantization(weights: &str) -> Option<QuantizeOptions> {
    let affine = |bits| QuantizationMode::affine(32, bits).unwrap();
    let options = QuantizeOptions::new;
    match weights {
        "f32" => None,
        "affine4" => Some(options(affine(4))),
        "mixed" => Some(options(affine(4)).with("*.down_proj", Some(affine(8)))),
        "mxfp4" => Some(options(QuantizationMode::mxfp4())),
        "nvfp4" => Some(options(QuantizationMode::nvfp4())),
        other => panic!("no such weights: {other}"),
    }
}

fn check(case: &str) {
    let golden = Golden::read("greedy", case).unwrap();
    let setting = |name: &str| golden.document()[name].as_str().unwrap();
    let margin = golden.document()["smallest_margin"].as_f64().unwrap();
    assert!(margin >= MARGIN, "{margin} may be decided by rounding");
    let mut folder = Tiny::named(setting("model")).unwrap().build().unwrap();
    if let Some(options) = quantization(setting("weights")) {
        let thread = MlxThread::claim().unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let output = tempfile::tempdir().unwrap();
        quantize_checkpoint(&thread, &checkpoint, output.path(), &options, &mut |_| {}).unwrap();
        folder = output;
    }
    assert_eq!(golden.greedy_ids().len(), 200);
    let loaded = load(folder.path(), &golden, WorkingType::AsStored);
    assert_eq!(loaded.prepared.prompt.ids, golden.prompt_ids());
    check_greedy(&loaded, &golden);
}

/// One test a case, named after the golden.
macro_rules! cases {
    ($($test:ident: $case:literal),+ $(,)?) => {
        $(
            #[test]
            fn $test() {
                check($case);
            }
        )+

        #[test]
        fn every_golden_has_its_test() {
            let mut tested = [$($case),+];
            tested.sort_unstable();
            assert_eq!(Golden::cases("greedy").unwrap(), tested);
        }
    };
}

cases!(
    gemma3_text: "gemma3_text-f32",
    gemma3_text_affine4: "gemma3_text-affine4",
    gemma3_text_mixed: "gemma3_text-mixed",
    gemma3_text_mxfp4: "gemma3_text-mxfp4",
    gemma4_e2b: "gemma4_e2b-f32",
    gemma4_e2b_affine4: "gemma4_e2b-affine4",
    gemma4_e2b_image: "gemma4_e2b-f32-image",
    gemma4_e2b_affine4_image: "gemma4_e2b-affine4-image",
    gemma4_26b: "gemma4_26b-f32",
    gemma4_26b_affine4: "gemma4_26b-affine4",
    qwen3: "qwen3-f32",
    qwen3_affine4: "qwen3-affine4",
    qwen3_nvfp4: "qwen3-nvfp4",
    qwen3_vl_image: "qwen3_vl-f32-image",
    qwen3_vl_affine4_image: "qwen3_vl-affine4-image",
    qwen3_5: "qwen3_5-f32",
    qwen3_5_affine4: "qwen3_5-affine4",
    qwen3_5_image: "qwen3_5-f32-image",
    qwen3_5_affine4_image: "qwen3_5-affine4-image",
    qwen3_5_moe: "qwen3_5_moe-f32",
    qwen3_5_moe_affine4: "qwen3_5_moe-affine4",
);
