//! Gemma 4 against the image processors of transformers 5.24.0 on Pillow 13.0.0 and 11.3.0.

mod support;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::image::gemma4::SOFT_TOKEN_BUDGETS;
use prefill_media_preprocess::image::resize::PassOrder;
use prefill_media_preprocess::image::{Gemma4Image, Gemma4ImageProcessor, Gemma4Layout, Rescale};
use serde_json::{Value, json};
use support::{golden, image, sha256_f32, sha256_i32};

fn check(prepared: &Gemma4Image, expected: &Value, what: &str) {
    let (pixels, positions) = prepared.padded();
    assert_eq!(
        json!([1, positions.len(), prepared.patch_dim()]),
        expected["shape"],
        "{what}: shape"
    );
    assert_eq!(
        sha256_i32(positions.as_flattened()),
        expected["sha256_positions_i32le"],
        "{what}"
    );
    assert_eq!(
        json!([prepared.soft_tokens]),
        expected["num_soft_tokens_per_image"],
        "{what}"
    );
    for (at, value) in expected["samples"].as_object().unwrap() {
        let at: usize = at.parse().unwrap();
        assert_eq!(
            f64::from(pixels[at]),
            value.as_f64().unwrap(),
            "{what}: value {at}"
        );
    }
    assert_eq!(
        sha256_f32(&pixels),
        expected["sha256_f32le"],
        "{what}: pixels"
    );
}

fn check_all(file: &str, order: PassOrder) {
    let goldens = golden(file);
    let mut checked = 0;
    for (name, processors) in goldens["images"].as_object().unwrap() {
        let image = image(name);
        for (key, layout) in [
            ("pil", Gemma4Layout::Tower),
            ("unified_pilpixels", Gemma4Layout::Unified),
        ] {
            for budget in [70, 280] {
                let expected = &processors[format!("gemma4_{key}_{budget}")];
                let processor = Gemma4ImageProcessor::default()
                    .with_max_soft_tokens(budget)
                    .unwrap()
                    .with_layout(layout)
                    .with_pass_order(order);
                let what = format!("{file}: {name}, {key} {budget}");
                check(&processor.prepare(&image).unwrap(), expected, &what);
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 12 * 4);
}

#[test]
fn equals_the_pillow_class_on_pillow_13() {
    check_all("processors_13.0.0.json", PassOrder::V13);
}

#[test]
fn equals_the_pillow_class_on_pillow_11() {
    check_all("processors_11.3.0.json", PassOrder::V11);
}

#[test]
fn sizes_equal_transformers_for_every_budget() {
    let goldens = golden("sizes.json");
    let mut checked = 0;
    for (size, targets) in goldens["gemma4"].as_object().unwrap() {
        let (h, w) = size.split_once(',').unwrap();
        for budget in SOFT_TOKEN_BUDGETS {
            let processor = Gemma4ImageProcessor::default()
                .with_max_soft_tokens(budget)
                .unwrap();
            let got = processor.target_size(w.parse().unwrap(), h.parse().unwrap());
            let expected = &targets[budget.to_string()];
            match got {
                Ok((w, h)) => assert_eq!(&json!([h, w]), expected, "{size} at {budget}"),
                Err(error) => assert!(expected.is_string(), "{size} at {budget}: {error}"),
            }
            checked += 1;
        }
    }
    assert!(checked >= 158 * 5);
}

#[test]
fn the_digest_names_what_the_encoder_is_given() {
    let image = image("photo_161x123.png");
    let base = Gemma4ImageProcessor::default();
    let digest = |p: &Gemma4ImageProcessor| p.prepare(&image).unwrap().digest;
    assert_eq!(
        digest(&base),
        digest(&base.clone().with_pass_order(PassOrder::V11))
    );
    let others = [
        base.clone().with_max_soft_tokens(70).unwrap(),
        base.clone().with_layout(Gemma4Layout::Unified),
        base.clone().with_rescale(Rescale::Torch),
    ];
    for other in &others {
        assert_ne!(digest(&base), digest(other));
    }
}

#[test]
fn configurations_are_followed_or_refused() {
    let read = |value: Value| Gemma4ImageProcessor::from_json(&value);
    let full = json!({
        "processor_class": "Gemma4Processor",
        "image_seq_length": 70,
        "image_processor": {
            "image_processor_type": "Gemma4ImageProcessor", "do_convert_rgb": true,
            "do_normalize": false, "do_rescale": true, "do_resize": true,
            "image_mean": [0.0, 0.0, 0.0], "image_std": [1.0, 1.0, 1.0],
            "max_soft_tokens": 70, "patch_size": 16, "pooling_kernel_size": 3, "resample": 3,
            "rescale_factor": 0.003_921_568_627_450_98, "image_seq_length": 280
        },
        "video_processor": {"anything": 1}
    });
    let processor = read(full.clone()).unwrap();
    assert_eq!(
        processor,
        Gemma4ImageProcessor::default()
            .with_max_soft_tokens(70)
            .unwrap()
    );
    assert_eq!(read(full["image_processor"].clone()).unwrap(), processor);

    let unified =
        json!({"image_processor_type": "Gemma4UnifiedImageProcessorFast", "model_patch_size": 48});
    assert_eq!(read(unified).unwrap().layout(), Gemma4Layout::Unified);

    let refused = |value: Value| read(value).unwrap_err();
    assert!(matches!(
        refused(json!({"sharpen": 2})),
        Error::ConfigUnknown { .. }
    ));
    for bad in [
        json!({"max_soft_tokens": 100}),
        json!({"max_soft_tokens": -70}),
        json!({"resample": 9}),
        json!({"image_processor_type": "Qwen2VLImageProcessor"}),
        json!({"do_center_crop": true}),
        json!({"do_convert_rgb": false}),
        json!({"model_patch_size": 32}),
        json!({"size": {"height": 224, "width": 224}}),
        json!({"image_mean": [0.0, 0.0]}),
        json!({"patch_size": 100_000, "pooling_kernel_size": 100_000}),
        json!({"image_processor": 3}),
        json!([1, 2]),
    ] {
        assert!(
            matches!(refused(bad.clone()), Error::ConfigValue { .. }),
            "{bad}"
        );
    }
}

#[test]
fn without_resizing_only_whole_blocks_within_the_budget_pass() {
    let config = json!({"do_resize": false, "max_soft_tokens": 70});
    let processor = Gemma4ImageProcessor::from_json(&config).unwrap();
    let prepared = processor.prepare(&image("synth:96x48:1")).unwrap();
    assert_eq!(
        (prepared.rows, prepared.columns, prepared.soft_tokens),
        (3, 6, 2)
    );
    for name in ["synth:96x49:1", "synth:480x384:1"] {
        let error = processor.prepare(&image(name)).unwrap_err();
        assert!(matches!(error, Error::ImageSize { .. }), "{error}");
    }
}
