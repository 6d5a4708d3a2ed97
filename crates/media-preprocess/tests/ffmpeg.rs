//! Real videos through the program `ffmpeg`, made by it as well.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::image::Limits;
use prefill_media_preprocess::video::{
    Ffmpeg, FfmpegLimits, FrameSource, Gemma4VideoProcessor, QwenVideoProcessor,
};
use serde_json::json;

/// A folder of its own for each test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("prefill-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Encodes a test pattern whose every frame differs.
    fn clip(&self, name: &str, options: &[&str]) -> PathBuf {
        let path = self.0.join(name);
        let status = Command::new("ffmpeg")
            .args(["-loglevel", "error", "-y", "-f", "lavfi", "-i"])
            .arg("testsrc=size=96x64:rate=30000/1001:duration=2")
            .args(options)
            .arg(format!("file:{}", path.display()))
            .status()
            .unwrap();
        assert!(status.success());
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Ffmpeg {
    Ffmpeg::open(path, FfmpegLimits::default()).unwrap()
}

#[test]
#[ignore = "needs the program ffmpeg"]
fn frames_are_those_that_ffmpeg_decodes() {
    let scratch = Scratch::new("frames");
    // Lossless, with frames out of order, in a container that starts late.
    let path = scratch.clip("clip.mkv", &["-c:v", "ffv1", "-pix_fmt", "bgr0"]);
    let all = scratch.0.join("all.rgb");
    let status = Command::new("ffmpeg")
        .args(["-loglevel", "error", "-i"])
        .arg(&path)
        .args(["-f", "rawvideo", "-pix_fmt", "rgb24"])
        .arg(&all)
        .status()
        .unwrap();
    assert!(status.success());
    let all = std::fs::read(all).unwrap();
    let mut video = open(&path);
    assert_eq!(video.num_frames(), 60);
    let fps = video.fps().unwrap();
    assert!((fps - 29.97).abs() < 0.02, "{fps}");
    let mut seen = Vec::new();
    video
        .visit(&[0, 7, 7, 59], &mut |frame| {
            seen.push(frame.into_data());
            Ok(())
        })
        .unwrap();
    let frames: Vec<&[u8]> = all.chunks_exact(96 * 64 * 3).collect();
    assert_eq!(seen, [frames[0], frames[7], frames[7], frames[59]]);
    assert_eq!(video.frame(30).unwrap().data(), frames[30]);
    assert!(matches!(
        video.frame(60),
        Err(Error::FrameIndex {
            index: 60,
            frames: 60
        })
    ));
}

#[test]
#[ignore = "needs the program ffmpeg"]
fn reordered_frames_are_counted_and_timed() {
    let scratch = Scratch::new("reordered");
    let path = scratch.clip(
        "clip.mp4",
        &["-c:v", "mpeg4", "-bf", "2", "-pix_fmt", "yuv420p"],
    );
    let mut video = open(&path);
    assert_eq!(video.num_frames(), 60);
    assert_eq!(
        video.fps().map(f64::to_bits),
        Some((30_000.0_f64 / 1001.0).to_bits())
    );
    let gemma = Gemma4VideoProcessor::from_json(&json!({"num_frames": 4})).unwrap();
    let prepared = gemma.prepare(&mut video).unwrap();
    assert_eq!(prepared.indices, [0, 15, 30, 45]);
    assert_eq!(prepared.timestamp_text(3), "00:01");
    let config = json!({"size": {"shortest_edge": 4096, "longest_edge": 25_165_824}});
    let prepared = QwenVideoProcessor::from_json(&config)
        .unwrap()
        .prepare(&mut video)
        .unwrap();
    assert_eq!(prepared.grid_thw, [2, 4, 6]);
}

#[test]
#[ignore = "needs the program ffmpeg"]
fn turned_videos_come_upright() {
    let scratch = Scratch::new("turned");
    let flat = scratch.clip("flat.mp4", &["-c:v", "mpeg4", "-pix_fmt", "yuv420p"]);
    let turned = scratch.0.join("turned.mp4");
    // ffmpeg 6 writes the rotation by the first option, 5 by the second.
    let written = [vec!["-display_rotation", "90"], vec![]]
        .iter()
        .any(|before| {
            let mut command = Command::new("ffmpeg");
            command
                .args(["-loglevel", "error", "-y"])
                .args(before)
                .arg("-i")
                .arg(&flat);
            command
                .args(["-c", "copy", "-metadata:s:v:0", "rotate=90"])
                .arg(&turned);
            command.status().unwrap().success()
        });
    assert!(written);
    let frame = open(&turned).frame(3).unwrap();
    assert_eq!((frame.width(), frame.height()), (64, 96));
}

#[test]
#[ignore = "needs the program ffmpeg"]
fn hostile_names_files_and_limits_are_errors() {
    let scratch = Scratch::new("hostile");
    let odd = scratch.clip("-y; $(touch x) 'q'.mkv", &["-c:v", "ffv1"]);
    assert_eq!(open(&odd).num_frames(), 60);

    let noise = scratch.0.join("noise.mp4");
    std::fs::write(&noise, [7_u8; 4000]).unwrap();
    let error = Ffmpeg::open(&noise, FfmpegLimits::default()).unwrap_err();
    assert!(matches!(error, Error::ProgramFailed { .. }), "{error}");

    // A playlist must not fetch from the network.
    let list = scratch.0.join("list.m3u8");
    let text =
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n";
    std::fs::write(&list, text).unwrap();
    assert!(Ffmpeg::open(&list, FfmpegLimits::default()).is_err());
    assert!(Ffmpeg::open("http://127.0.0.1:9/a.mp4", FfmpegLimits::default()).is_err());

    let few = FfmpegLimits::default().with_max_frames(10);
    let error = Ffmpeg::open(&odd, few).unwrap_err();
    assert!(matches!(error, Error::Limit { limit: 10, .. }), "{error}");
    let small = Limits {
        max_pixels: 100,
        ..Limits::default()
    };
    let mut video = Ffmpeg::open(&odd, FfmpegLimits::default().with_frame(small)).unwrap();
    assert!(matches!(video.frame(0), Err(Error::Limit { .. })));
    let hasty = Limits {
        max_time: Duration::ZERO,
        ..Limits::default()
    };
    let error = Ffmpeg::open(&odd, FfmpegLimits::default().with_frame(hasty)).unwrap_err();
    assert!(matches!(error, Error::TimeLimit { .. }), "{error}");
}

#[test]
fn a_missing_program_is_named() {
    let error = Ffmpeg::open_with("no-such-ffmpeg", "clip.mp4", FfmpegLimits::default());
    let error = error.unwrap_err();
    assert!(matches!(&error, Error::Program { program, .. } if program == "no-such-ffmpeg"));
    assert!(error.to_string().contains("no-such-ffmpeg"), "{error}");
}
