//! Qwen2-VL's videos against transformers 5.24.0: what
//! `tests/reference/image/qwen2_video_cases.py` asked of it.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use std::path::Path;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::image::RgbImage;
use prefill_media_preprocess::video::{FrameList, FrameSource, Qwen2VideoProcessor};
use serde_json::{Value, json};
use support::{golden, sha256_f32, synth};

fn processor(extra: &Value) -> Qwen2VideoProcessor {
    let mut config = json!({"size": {"shortest_edge": 6272, "longest_edge": 100_352}});
    let more = extra.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(more);
    Qwen2VideoProcessor::from_json(&config).unwrap()
}

fn number(case: &Value, key: &str) -> u32 {
    u32::try_from(case[key].as_u64().unwrap()).unwrap()
}

fn synthetic(frames: u32, width: u32, height: u32, fps: Option<f64>) -> FrameList {
    let frames = (0..frames)
        .map(|i| RgbImage::new(width, height, synth(width, height, 10 + i)).unwrap())
        .collect();
    FrameList::new(frames, fps)
}

#[test]
fn videos_equal_transformers() {
    let goldens = golden("qwen2_video_cases.json");
    let cases = goldens["videos"].as_array().unwrap();
    assert_eq!(cases.len(), 14);
    for case in cases {
        let (total, w, h) = (
            number(case, "total"),
            number(case, "width"),
            number(case, "height"),
        );
        let mut video = synthetic(total, w, h, case["fps"].as_f64());
        let prepared = processor(&case["config"]).prepare(&mut video).unwrap();
        assert_eq!(json!(prepared.indices), case["indices"], "{case}");
        assert_eq!(json!(prepared.grid_thw), case["grid"], "{case}");
        let shape = json!([prepared.num_patches(), prepared.patch_dim]);
        assert_eq!(shape, case["shape"], "{case}");
        let seconds = json!(prepared.seconds_per_group);
        assert_eq!(seconds, case["seconds_per_group"], "{case}");
        let sha = sha256_f32(&prepared.pixel_values);
        assert_eq!(sha, case["sha256_f32le"], "{case}");
    }
}

/// Only says how many frames there are.
struct Counted {
    frames: usize,
    fps: Option<f64>,
    asked: Vec<usize>,
}

impl FrameSource for Counted {
    fn num_frames(&self) -> usize {
        self.frames
    }

    fn fps(&self) -> Option<f64> {
        self.fps
    }

    fn frame(&mut self, index: usize) -> Result<RgbImage, Error> {
        self.asked.push(index);
        RgbImage::new(28, 28, vec![0; 28 * 28 * 3])
    }
}

#[test]
fn samplings_equal_transformers() {
    let goldens = golden("qwen2_video_cases.json");
    let (mut sampled, mut refused) = (0, 0);
    for case in goldens["samplings"].as_array().unwrap() {
        let mut config = case["config"].clone();
        config["do_sample_frames"] = json!(true);
        config["size"] = json!({"shortest_edge": 1, "longest_edge": 784});
        let frames = number(case, "total") as usize;
        let mut source = Counted {
            frames,
            fps: case["fps"].as_f64(),
            asked: Vec::new(),
        };
        let result = processor(&config).prepare(&mut source);
        if let Some(expected) = case["indices"].as_array() {
            assert!(result.is_ok(), "{case}");
            // torch.arange may give one more, beyond the last frame, at which transformers
            // itself fails.
            let last = json!(frames);
            let within: Vec<_> = expected.iter().filter(|&index| *index != last).collect();
            assert_eq!(json!(source.asked), json!(within), "{case}");
            sampled += 1;
        } else {
            let error = result.unwrap_err();
            let known = matches!(error, Error::TooFewFrames { .. } | Error::NoFrameRate);
            assert!(known, "{error}: {case}");
            refused += 1;
        }
    }
    assert!(sampled > 60 && refused > 5, "{sampled} {refused}");
}

#[test]
fn sizes_equal_transformers() {
    let goldens = golden("qwen2_video_cases.json");
    let cases = goldens["sizes"].as_array().unwrap();
    assert_eq!(cases.len(), 300);
    for case in cases {
        let config = json!({
            "cap_pixels_per_frame": case["cap"], "max_video_tokens": case["tokens"]
        });
        let frames = number(case, "frames") as usize;
        let (w, h) = (number(case, "width"), number(case, "height"));
        match processor(&config).target_size(frames, w, h) {
            Ok((w, h)) => assert_eq!(json!([w, h]), case["target"], "{case}"),
            Err(error) => assert!(case["target"].is_null(), "{error}: {case}"),
        }
    }
}

#[test]
fn published_configurations_are_read_and_others_refused() {
    // The one file of Qwen2-VL and Qwen2.5-VL checkpoints, for images and videos.
    let published = json!({
        "min_pixels": 3136, "max_pixels": 12_845_056, "patch_size": 14,
        "temporal_patch_size": 2, "merge_size": 2,
        "image_mean": [0.481_454_66, 0.457_827_5, 0.408_210_73],
        "image_std": [0.268_629_54, 0.261_302_58, 0.275_777_11],
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor"
    });
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("qwen2_video_configuration");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("preprocessor_config.json");
    std::fs::write(path, published.to_string()).unwrap();
    let read = Qwen2VideoProcessor::from_folder(&folder).unwrap();
    assert_eq!(read, Qwen2VideoProcessor::from_json(&published).unwrap());
    assert_eq!(read.target_size(2, 1000, 500).unwrap(), (1008, 504));
    // A file of its own wins.
    let own = json!({"size": {"shortest_edge": 3136, "longest_edge": 100_352}});
    let path = folder.join("video_preprocessor_config.json");
    std::fs::write(path, own.to_string()).unwrap();
    let read = Qwen2VideoProcessor::from_folder(&folder).unwrap();
    assert_eq!(read, Qwen2VideoProcessor::from_json(&own).unwrap());

    for bad in [
        json!({"video_processor_type": "Qwen3VLVideoProcessor"}),
        json!({"do_sample_frames": true}),
        json!({"do_sample_frames": true, "fps": 2, "num_frames": 8}),
        json!({"do_center_crop": true}),
        json!({"skip_every": 2}),
        json!({"size": {"longest_edge": 9}}),
        json!({"min_pixels": 1 << 29, "max_pixels": 1 << 30}),
    ] {
        let mut config = own.clone();
        let more = bad.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(more);
        assert!(Qwen2VideoProcessor::from_json(&config).is_err(), "{bad}");
    }
}

#[test]
fn unfit_videos_are_refused() {
    let all = processor(&json!({}));
    let error = all.prepare(&mut synthetic(0, 1, 1, None)).unwrap_err();
    let none = matches!(error, Error::TooFewFrames { found: 0, .. });
    assert!(none, "{error}");
    let error = all.prepare(&mut synthetic(2, 201, 1, None)).unwrap_err();
    assert!(matches!(error, Error::ImageSize { .. }), "{error}");
}
