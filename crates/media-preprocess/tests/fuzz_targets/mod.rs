//! What is fuzzed, as plain functions: `cargo fuzz run NAME` in `fuzz/` calls one with bytes
//! that it makes up, `tests/fuzz_replay.rs` with those that are stored. None may panic, hang,
//! or take more memory than its limits say.

use std::num::NonZeroUsize;
use std::time::Duration;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::audio::{
    DecodeOptions as AudioOptions, Gemma3nAudioProcessor, Gemma4AudioProcessor,
    Limits as AudioLimits, WhisperAudioProcessor, decode as decode_audio,
};
use prefill_media_preprocess::image::resize::{
    Backend, Filter, ImageView, Instructions, PassOrder, Resizer,
};
use prefill_media_preprocess::image::{
    AlphaPolicy, DecodeOptions, Gemma4ImageProcessor, Limits, Orientation, QwenImageProcessor,
    decode as decode_image,
};
use prefill_media_preprocess::video::{
    Animation, FrameSource, Gemma4VideoProcessor, Qwen2VideoProcessor, QwenVideoProcessor,
};

fn limits() -> Limits {
    Limits {
        max_pixels: 1 << 20,
        max_decoded_bytes: 1 << 26,
        max_time: Duration::from_secs(10),
    }
}

/// Every decoder: the first bytes choose it. Also the EXIF parser, on the same bytes.
pub(crate) fn decode(data: &[u8]) {
    let _ = Orientation::from_exif(data);
    let options = DecodeOptions::default()
        .with_limits(limits())
        .with_alpha(AlphaPolicy::White);
    if let Ok(image) = decode_image(data, &options) {
        let pixels = u64::from(image.width()) * u64::from(image.height());
        assert!(pixels <= limits().max_pixels);
        assert_eq!(image.data().len() as u64, pixels * 3);
        // The other policy changes values, not success.
        let dropped = options.with_alpha(AlphaPolicy::Drop);
        match decode_image(data, &dropped) {
            Ok(other) => {
                assert_eq!(
                    (other.width(), other.height()),
                    (image.width(), image.height())
                );
            }
            Err(Error::TimeLimit { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Every animated format: the first frames, and the first again.
pub(crate) fn animation(data: &[u8]) {
    let Ok(mut video) = Animation::new(data, limits()) else {
        return;
    };
    let _ = video.fps();
    for index in (0..video.num_frames().min(5)).chain([0]) {
        let _ = video.frame(index);
    }
}

/// Every audio format: the first bytes choose it.
pub(crate) fn audio(data: &[u8]) {
    let limits = AudioLimits {
        max_samples: 1 << 22,
        max_time: Duration::from_secs(10),
    };
    let options = AudioOptions::default().with_limits(limits);
    match decode_audio(data, &options) {
        Ok(audio) => {
            assert_eq!(audio.samples.len() as u64, audio.total_samples);
            assert!(audio.total_samples <= limits.max_samples);
            assert!(audio.samples.iter().all(|sample| sample.is_finite()));
            let Ok(prepared) = Gemma4AudioProcessor::default().prepare(&audio.samples) else {
                // Samples too large for f32.
                return;
            };
            assert_eq!(prepared.input_features.len(), prepared.rows * prepared.dim);
            assert_eq!(prepared.soft_tokens, prepared.valid_rows().div_ceil(4));
        }
        // Decoders outlast the limit only between packets.
        Err(Error::TimeLimit { .. }) => panic!("slow"),
        Err(_) => {}
    }
}

/// Processor configurations, and the sizes that accepted ones give.
pub(crate) fn config(data: &[u8]) {
    let Ok(value) = serde_json::from_slice(data) else {
        return;
    };
    let sizes = [
        (1, 1),
        (1, 9000),
        (4032, 3024),
        (u32::MAX, u32::MAX),
        (u32::MAX, 1),
    ];
    if let Ok(processor) = Gemma4ImageProcessor::from_json(&value) {
        for (width, height) in sizes {
            let _ = processor.target_size(width, height);
        }
    }
    if let Ok(processor) = QwenImageProcessor::from_json(&value) {
        for (width, height) in sizes {
            let _ = processor.target_size(width, height);
        }
    }
    if let Ok(processor) = QwenVideoProcessor::from_json(&value) {
        for (width, height) in sizes {
            let _ = processor.target_size(7, width, height);
        }
    }
    if let Ok(processor) = Qwen2VideoProcessor::from_json(&value) {
        for (width, height) in sizes {
            let _ = processor.target_size(7, width, height);
        }
    }
    let _ = Gemma4VideoProcessor::from_json(&value);
    if let Ok(processor) = Gemma4AudioProcessor::from_json(&value) {
        let _ = processor.prepare(&[0.5; 700]);
    }
    if let Ok(processor) = Gemma3nAudioProcessor::from_json(&value) {
        let _ = processor.prepare(&[0.5; 700]);
    }
    let _ = WhisperAudioProcessor::from_json(&value);
}

/// Resizes: bytes give the sizes, the way and the pixels; every instruction set must agree.
pub(crate) fn resize(data: &[u8]) {
    let Some((&[w, h, out_w, out_h, how, threads], pixels)) = data.split_first_chunk() else {
        return;
    };
    if pixels.is_empty() {
        return;
    }
    let filters = [
        Filter::Nearest,
        Filter::Box,
        Filter::Bilinear,
        Filter::Hamming,
        Filter::Bicubic,
        Filter::Lanczos,
    ];
    let backends = [
        Backend::Pillow(PassOrder::V11),
        Backend::Pillow(PassOrder::V12),
        Backend::Pillow(PassOrder::V13),
        Backend::Torchvision,
    ];
    let how = usize::from(how);
    let channels = [1, 3, 4][how / 24 % 3];
    let (w, h) = (u32::from(w) + 1, u32::from(h) + 1);
    let len = w as usize * h as usize * channels;
    let pixels: Vec<u8> = pixels.iter().copied().cycle().take(len).collect();
    let Ok(source) = ImageView::new(w, h, channels, &pixels) else {
        unreachable!("sizes fit")
    };
    let base = Resizer {
        filter: filters[how % 6],
        backend: backends[how / 6 % 4],
        instructions: Instructions::Scalar,
        ..Resizer::default()
    };
    let Ok(expected) = base.resize(source, out_w.into(), out_h.into()) else {
        return;
    };
    for instructions in Instructions::available() {
        let threads = NonZeroUsize::new(usize::from(threads % 4) + 1).unwrap_or(NonZeroUsize::MIN);
        let resizer = Resizer {
            instructions,
            threads,
            ..base
        };
        let got = resizer.resize(source, out_w.into(), out_h.into());
        assert!(got.is_ok_and(|got| got == expected), "{instructions:?}");
    }
}
