//! Vector code and threads against the scalar reference, byte for byte.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::num::NonZeroUsize;

use prefill_media_preprocess::image::resize::{
    Backend, Filter, ImageView, Instructions, PassOrder, Resizer,
};
use proptest::prelude::*;

/// Contents that stress sums: noise, extremes, and gradients.
fn pixels(len: usize, kind: u8, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    (0..len)
        .map(|i| match kind {
            0 => next() as u8,
            1 => {
                if next() & 1 == 0 {
                    0
                } else {
                    255
                }
            }
            2 => 255,
            _ => (i as u32).wrapping_mul(seed | 1) as u8,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_path_equals_the_scalar_one(
        (w, h) in (1_u32..140, 1_u32..140),
        (out_w, out_h) in (1_u32..140, 1_u32..140),
        channels in prop::sample::select(vec![1_usize, 3, 4]),
        filter in prop::sample::select(vec![
            Filter::Nearest, Filter::Box, Filter::Bilinear, Filter::Hamming, Filter::Bicubic, Filter::Lanczos,
        ]),
        backend in prop::sample::select(vec![Backend::Pillow(PassOrder::V11), Backend::Pillow(PassOrder::V12), Backend::Pillow(PassOrder::V13), Backend::Torchvision]),
        kind in 0_u8..4,
        seed: u32,
        threads in 1_usize..5,
    ) {
        let data = pixels(w as usize * h as usize * channels, kind, seed);
        let source = ImageView::new(w, h, channels, &data).unwrap();
        let base = Resizer { filter, backend, instructions: Instructions::Scalar, ..Resizer::default() };
        if backend == Backend::Torchvision && !matches!(filter, Filter::Bilinear | Filter::Bicubic) {
            prop_assert!(base.resize(source, out_w, out_h).is_err());
            return Ok(());
        }
        let expected = base.resize(source, out_w, out_h).unwrap();
        prop_assert_eq!(expected.len(), out_w as usize * out_h as usize * channels);
        for instructions in Instructions::available() {
            let threads = NonZeroUsize::new(threads).unwrap();
            let got = Resizer { threads, instructions, ..base }.resize(source, out_w, out_h).unwrap();
            prop_assert_eq!(&got, &expected, "{:?}", instructions);
        }
    }
}

/// Sizes whose work is split into bands, and windows of thousands of taps.
#[test]
fn threads_and_long_windows_change_nothing() {
    for (w, h, out_w, out_h) in [
        (700, 500, 611, 333),
        (1, 9000, 48, 96),
        (9000, 3, 1, 480),
        (640, 480, 912, 672),
    ] {
        let data = pixels(w as usize * h as usize * 3, 1, 7);
        let source = ImageView::new(w, h, 3, &data).unwrap();
        let scalar = Resizer {
            instructions: Instructions::Scalar,
            ..Resizer::default()
        };
        let expected = scalar.resize(source, out_w, out_h).unwrap();
        for instructions in Instructions::available() {
            for threads in [1, 2, 3, 7] {
                let threads = NonZeroUsize::new(threads).unwrap();
                let resizer = Resizer {
                    threads,
                    instructions,
                    ..scalar
                };
                assert!(resizer.resize(source, out_w, out_h).unwrap() == expected);
            }
        }
    }
}

#[test]
fn the_wish_for_instructions_that_are_missing_is_harmless() {
    let data = pixels(30, 0, 3);
    let source = ImageView::new(5, 2, 3, &data).unwrap();
    let all = [
        Instructions::Best,
        Instructions::Scalar,
        Instructions::Avx2,
        Instructions::Avx512,
        Instructions::Neon,
    ];
    let results = all.map(|instructions| {
        Resizer {
            instructions,
            ..Resizer::default()
        }
        .resize(source, 9, 7)
        .unwrap()
    });
    assert!(results.iter().all(|result| *result == results[0]));
}
