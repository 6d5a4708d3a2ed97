//! Resizing against Pillow 13.0.0, 12.3.0 and 11.3.0.

mod support;

use prefill_media_preprocess::image::resize::{ImageView, PassOrder, Resizer};
use support::{golden, image, sha256, synth};

fn check(version: &str, pass_order: PassOrder) {
    let goldens = golden(&format!("resize_{version}.json"));
    let cases = goldens["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 71);
    for case in cases {
        let number = |key: &str| case[key].as_u64().unwrap() as u32;
        let (w, h) = (number("w"), number("h"));
        let pixels = match case["kind"].as_str().unwrap() {
            "hash" => synth(w, h, 1),
            "binary" => synth(w, h, 1).iter().map(|v| (v & 1) * 255).collect(),
            file => image(file).into_data(),
        };
        let source = ImageView::new(w, h, 3, &pixels).unwrap();
        let resizer = Resizer {
            pass_order,
            ..Resizer::default()
        };
        let out = resizer
            .resize(source, number("out_w"), number("out_h"))
            .unwrap();
        assert_eq!(sha256(&out), case["sha256"], "Pillow {version}: {case}");
    }
}

#[test]
fn bicubic_equals_pillow_13() {
    check("13.0.0", PassOrder::V13);
}

#[test]
fn bicubic_equals_pillow_12_3() {
    check("12.3.0", PassOrder::V12);
}

#[test]
fn bicubic_equals_pillow_11() {
    check("11.3.0", PassOrder::V11);
}
