//! Qwen-VL images against transformers 5.24.0 on Pillow 13.0.0 and 11.3.0, torchvision and
//! mlx-vlm.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::image::resize::{Backend, PassOrder};
use prefill_media_preprocess::image::{QwenImageProcessor, Rescale};
use serde_json::{Value, json};
use support::{golden, image, sha256_f32};

fn qwen3() -> QwenImageProcessor {
    QwenImageProcessor::from_json(&json!({
        "image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor",
        "size": {"longest_edge": 16_777_216, "shortest_edge": 65_536}, "patch_size": 16,
        "temporal_patch_size": 2, "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]
    }))
    .unwrap()
}

fn qwen2() -> QwenImageProcessor {
    let config = json!({"min_pixels": 3136, "max_pixels": 1_003_520, "patch_size": 14});
    QwenImageProcessor::from_json(&config).unwrap()
}

fn check_all(file: &str, key: &str, processor: &QwenImageProcessor) {
    let goldens = golden(file);
    let mut checked = 0;
    for (name, processors) in goldens["images"].as_object().unwrap() {
        let expected = &processors[key];
        let prepared = processor.prepare(&image(name));
        if let Some(error) = expected.as_str() {
            assert!(
                prepared.is_err() || !error.contains("ratio"),
                "{name}: {error}"
            );
            continue;
        }
        let prepared = prepared.unwrap();
        let what = format!("{file}, {key}: {name}");
        assert_eq!(
            json!([prepared.num_patches(), prepared.patch_dim]),
            expected["shape"],
            "{what}"
        );
        assert_eq!(
            json!([prepared.grid_thw]),
            expected["image_grid_thw"],
            "{what}"
        );
        assert_eq!(prepared.soft_tokens * 4, prepared.num_patches(), "{what}");
        assert_eq!(
            sha256_f32(&prepared.pixel_values),
            expected["sha256_f32le"],
            "{what}"
        );
        checked += 1;
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn equals_the_pillow_class() {
    for (file, order) in [
        ("processors_13.0.0.json", PassOrder::V13),
        ("processors_11.3.0.json", PassOrder::V11),
    ] {
        check_all(file, "qwen3_pil", &qwen3().with_pass_order(order));
        check_all(file, "qwen2_pil", &qwen2().with_pass_order(order));
    }
}

#[test]
fn equals_the_torchvision_class() {
    for (key, processor) in [
        ("qwen3_torchvision", qwen3()),
        ("qwen2_torchvision", qwen2()),
    ] {
        let processor = processor.with_resize_backend(Backend::Torchvision);
        check_all(
            "processors_13.0.0.json",
            key,
            &processor.with_rescale(Rescale::Torch),
        );
    }
}

#[test]
fn equals_mlx_vlm() {
    check_all(
        "processors_13.0.0.json",
        "mlxvlm_qwen3",
        &qwen3().with_rescale(Rescale::MlxVlm),
    );
}

#[test]
fn sizes_equal_transformers() {
    let goldens = golden("sizes.json");
    for (key, processor) in [("qwen3_image", qwen3()), ("qwen2_image", qwen2())] {
        for (size, expected) in goldens[key].as_object().unwrap() {
            let (h, w) = size.split_once(',').unwrap();
            match processor.target_size(w.parse().unwrap(), h.parse().unwrap()) {
                Ok((w, h)) => assert_eq!(&json!([h, w]), expected, "{key} {size}"),
                Err(error) => assert!(expected.is_string(), "{key} {size}: {error}"),
            }
        }
    }
}

#[test]
fn ties_round_to_even_and_aspects_stop_at_200() {
    let processor = qwen3().with_pixel_bounds(1, 1 << 28).unwrap();
    assert_eq!(processor.target_size(80, 144).unwrap(), (64, 128));
    assert_eq!(processor.target_size(48, 112).unwrap(), (64, 128));
    assert!(processor.target_size(200 * 32, 32).is_ok());
    let error = processor.target_size(201 * 32, 32).unwrap_err();
    assert!(
        matches!(
            error,
            Error::ImageSize {
                width: 6432,
                height: 32,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn pixel_bounds_come_from_the_checkpoint_or_not_at_all() {
    let read = |value: Value| QwenImageProcessor::from_json(&value);
    assert!(matches!(
        read(json!({"patch_size": 16})),
        Err(Error::ConfigMissing { .. })
    ));
    let half = json!({"size": {"shortest_edge": 3136}});
    assert!(matches!(
        read(half),
        Err(Error::ConfigMissing {
            key: "size.longest_edge"
        })
    ));
    let odd = json!({"size": {"height": 224, "width": 224}});
    assert!(read(odd).is_err());
    let unknown = json!({"min_pixels": 1, "max_pixels": 2, "window_size": 112});
    assert!(matches!(read(unknown), Err(Error::ConfigUnknown { .. })));
    let large = json!({"min_pixels": 1, "max_pixels": 2, "merge_size": 1_000_000});
    assert!(matches!(read(large), Err(Error::ConfigValue { .. })));
    assert!(qwen3().with_pixel_bounds(5, 4).is_err());
}
