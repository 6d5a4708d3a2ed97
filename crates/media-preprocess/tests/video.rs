//! Videos against transformers 5.24.0.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::image::resize::PassOrder;
use prefill_media_preprocess::image::{DecodeOptions, Limits, RgbImage, decode};
use prefill_media_preprocess::video::{
    Animation, FrameList, FrameSource, Gemma4VideoProcessor, QwenVideoProcessor, VideoRules,
};
use serde_json::{Value, json};
use support::{golden, golden_path, input, sha256, sha256_f32, synth};

fn qwen(extra: &Value) -> QwenVideoProcessor {
    let mut config = json!({
        "video_processor_type": "Qwen3VLVideoProcessor", "patch_size": 16,
        "size": {"shortest_edge": 4096, "longest_edge": 25_165_824}
    });
    config
        .as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    QwenVideoProcessor::from_json(&config).unwrap()
}

fn synthetic(frames: u32, width: u32, height: u32, fps: Option<f64>) -> FrameList {
    let frames = (0..frames)
        .map(|i| RgbImage::new(width, height, synth(width, height, 10 + i)).unwrap())
        .collect();
    FrameList::new(frames, fps)
}

#[test]
fn qwen_equals_transformers() {
    let goldens = golden("processors_13.0.0.json");
    let processor = qwen(&json!({"do_sample_frames": false}));
    for (frames, w, h) in [(2, 96, 64), (3, 100, 70), (5, 64, 64)] {
        let expected = &goldens["videos"][format!("t{frames}_{w}x{h}_seed10+i")];
        let prepared = processor
            .prepare(&mut synthetic(frames, w, h, None))
            .unwrap();
        assert_eq!(
            json!([prepared.num_patches(), prepared.patch_dim]),
            expected["shape"]
        );
        assert_eq!(json!([prepared.grid_thw]), expected["video_grid_thw"]);
        assert_eq!(
            sha256_f32(&prepared.pixel_values),
            expected["sha256_f32le"],
            "{frames}"
        );
    }
}

#[test]
fn qwen_sizes_equal_transformers() {
    let goldens = golden("sizes.json");
    let processor = qwen(&json!({}));
    let mut checked = 0;
    for (size, by_frames) in goldens["qwen3_video"].as_object().unwrap() {
        let (h, w) = size.split_once(',').unwrap();
        let (w, h) = (w.parse().unwrap(), h.parse().unwrap());
        for (frames, expected) in by_frames.as_object().unwrap() {
            match processor.target_size(frames.parse().unwrap(), w, h) {
                Ok((w, h)) => assert_eq!(&json!([h, w]), expected, "{frames} of {size}"),
                Err(error) => assert!(expected.is_string(), "{frames} of {size}: {error}"),
            }
            checked += 1;
        }
    }
    assert!(checked > 900);
}

/// Everything that `tests/reference/image/video_cases.py` asked of transformers.
#[test]
fn sampling_times_and_patches_equal_transformers() {
    let goldens = golden("video_cases.json");
    for case in goldens["gemma4"].as_array().unwrap() {
        let number = |key: &str| case[key].as_u64().unwrap() as u32;
        let processor =
            Gemma4VideoProcessor::from_json(&json!({"num_frames": case["num_frames"]})).unwrap();
        let mut video = synthetic(
            number("total"),
            number("width"),
            number("height"),
            case["fps"].as_f64(),
        );
        let prepared = processor.prepare(&mut video).unwrap();
        assert_eq!(json!(prepared.indices), case["indices"], "{case}");
        assert_eq!(
            json!(prepared.soft_tokens_per_frame),
            case["soft_tokens"],
            "{case}"
        );
        let texts: Vec<_> = (0..prepared.num_frames)
            .map(|i| prepared.timestamp_text(i))
            .collect();
        assert_eq!(json!(texts), case["timestamps"], "{case}");
        let (pixels, positions) = prepared.padded();
        assert_eq!(positions.len(), prepared.num_frames * prepared.max_patches);
        assert_eq!(sha256_f32(&pixels), case["sha256_f32le"], "{case}");
    }
    for case in goldens["qwen"].as_array().unwrap() {
        let number = |key: &str| case[key].as_u64().unwrap() as u32;
        let processor = qwen(&case["config"]);
        let mut video = synthetic(
            number("total"),
            number("width"),
            number("height"),
            case["fps"].as_f64(),
        );
        let prepared = processor.prepare(&mut video).unwrap();
        assert_eq!(json!(prepared.indices), case["indices"], "{case}");
        assert_eq!(json!(prepared.grid_thw), case["grid"], "{case}");
        let texts: Vec<_> = (0..prepared.grid_thw[0])
            .map(|i| prepared.timestamp_text(i))
            .collect();
        assert_eq!(json!(texts), case["timestamps"], "{case}");
        assert_eq!(
            sha256_f32(&prepared.pixel_values),
            case["sha256_f32le"],
            "{case}"
        );
    }
    for case in goldens["mlx_vlm"].as_array().unwrap() {
        let number = |key: &str| case[key].as_u64().unwrap() as u32;
        let rules = VideoRules::MlxVlm(PassOrder::V13);
        let mut video = synthetic(number("total"), number("width"), number("height"), None);
        let (pixels, what) = if case["family"] == "gemma4" {
            let processor = Gemma4VideoProcessor::from_json(&json!({"num_frames": 4})).unwrap();
            (
                processor
                    .with_rules(rules)
                    .prepare(&mut video)
                    .unwrap()
                    .padded()
                    .0,
                "gemma4",
            )
        } else {
            let processor = qwen(&json!({"do_sample_frames": false})).with_rules(rules);
            let prepared = processor.prepare(&mut video).unwrap();
            assert_eq!(json!(prepared.grid_thw), case["grid"], "{case}");
            (prepared.pixel_values, "qwen")
        };
        assert_eq!(sha256_f32(&pixels), case["sha256_f32le"], "{what}: {case}");
    }
}

#[test]
fn tenths_of_seconds_round_like_python() {
    let halves: Vec<String> = [0.25_f64, 0.75, 0.05, 0.15, 2.5, 1.25]
        .iter()
        .map(|t| format!("{t:.1}"))
        .collect();
    assert_eq!(halves, ["0.2", "0.8", "0.1", "0.1", "2.5", "1.2"]);
}

#[test]
fn unfit_videos_are_refused() {
    let gemma = Gemma4VideoProcessor::from_json(&json!({"num_frames": 4})).unwrap();
    let error = gemma.prepare(&mut synthetic(3, 32, 32, None)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooFewFrames {
                found: 3,
                wanted: 4
            }
        ),
        "{error}"
    );
    let all = qwen(&json!({"do_sample_frames": false}));
    let error = all.prepare(&mut synthetic(1, 64, 64, None)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooFewFrames {
                found: 1,
                wanted: 2
            }
        ),
        "{error}"
    );
    let mixed = vec![
        RgbImage::new(64, 64, synth(64, 64, 1)).unwrap(),
        RgbImage::new(64, 32, synth(64, 32, 1)).unwrap(),
    ];
    let error = all.prepare(&mut FrameList::new(mixed, None)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::FrameSize {
                expected: (64, 64),
                found: (64, 32)
            }
        ),
        "{error}"
    );
    let flat = RgbImage::new(1, 1, vec![0; 3]).unwrap();
    let many = FrameList::new(vec![flat; 5000], None);
    let every = Gemma4VideoProcessor::from_json(&json!({"do_sample_frames": false})).unwrap();
    let error = every.prepare(&mut many.clone()).unwrap_err();
    assert!(matches!(error, Error::Limit { found: 5000, .. }), "{error}");
    for bad in [
        json!({"video_processor_type": "Qwen2VLVideoProcessor"}),
        json!({"num_frames": 8}),
        json!({"do_center_crop": true}),
        json!({"skip_every": 2}),
    ] {
        let mut config = json!({"size": {"shortest_edge": 1, "longest_edge": 2}});
        config
            .as_object_mut()
            .unwrap()
            .extend(bad.as_object().unwrap().clone());
        assert!(QwenVideoProcessor::from_json(&config).is_err(), "{bad}");
    }
}

#[test]
fn animations_are_videos_that_can_be_rewound() {
    for name in ["anim.gif", "anim.png", "anim.webp"] {
        let mut video = Animation::new(input(name), Limits::default()).unwrap();
        assert_eq!(video.num_frames(), 2, "{name}");
        let second = video.frame(1).unwrap();
        let first = video.frame(0).unwrap();
        assert_ne!(first, second, "{name}");
        let mut seen = Vec::new();
        video
            .visit(&[0, 0, 1, 1], &mut |frame| {
                seen.push(frame);
                Ok(())
            })
            .unwrap();
        assert_eq!(
            seen,
            [&first, &first, &second, &second].map(Clone::clone),
            "{name}"
        );
        assert!(matches!(
            video.frame(2),
            Err(Error::FrameIndex {
                index: 2,
                frames: 2
            })
        ));
    }
    assert!(Animation::new(input("j420.jpg"), Limits::default()).is_err());
}

#[test]
fn animation_frames_equal_pillow() {
    let goldens = golden("animations/animations.json");
    for (name, frames) in goldens.as_object().unwrap() {
        let bytes = std::fs::read(golden_path("animations").join(name)).unwrap();
        let mut video = Animation::new(bytes, Limits::default()).unwrap();
        let got: Vec<_> = (0..video.num_frames())
            .map(|i| sha256(video.frame(i).unwrap().data()))
            .collect();
        // The WebP decoder's own blending: see the next test.
        let exact = if name == "opaque.webp" { 1 } else { got.len() };
        assert_eq!(
            json!(got[..exact]),
            json!(frames.as_array().unwrap()[..exact]),
            "{name}"
        );
        assert_eq!(got.len(), frames.as_array().unwrap().len(), "{name}");
        if !name.starts_with("apart") && video.num_frames() == 4 {
            assert!(
                (video.fps().unwrap() - 10.0).abs() < 1e-9,
                "{name}: {:?}",
                video.fps()
            );
        }
    }
    assert_eq!(goldens.as_object().unwrap().len(), 25);
}

#[test]
fn blended_webp_frames_are_within_one_level_of_pillow() {
    let read = |name: &str| std::fs::read(golden_path("animations").join(name)).unwrap();
    let mut video = Animation::new(read("opaque.webp"), Limits::default()).unwrap();
    let expected = decode(&read("opaque.webp.1.png"), &DecodeOptions::default()).unwrap();
    let got = video.frame(1).unwrap();
    let worst = got
        .data()
        .iter()
        .zip(expected.data())
        .map(|(a, b)| a.abs_diff(*b))
        .max();
    assert_eq!(worst, Some(1));
}
