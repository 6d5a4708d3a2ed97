//! Bicubic resizes: every instruction set, threads, and `fast_image_resize` as the inexact
//! bound. Pillow and the other peers are compared by `tests/reference/image/bench.py`.
#![allow(missing_docs, reason = "the macros' functions")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::hint::black_box;
use std::num::NonZeroUsize;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fast_image_resize as fir;
use prefill_media_preprocess::image::resize::{ImageView, Instructions, Resizer};

fn resizes(criterion: &mut Criterion) {
    for (w, h, out_w, out_h) in [
        (4032_u32, 3024_u32, 960_u32, 720_u32),
        (640, 480, 912, 672),
        (1080, 2400, 528, 1200),
    ] {
        let mut group = criterion.benchmark_group(format!("{w}x{h} to {out_w}x{out_h}"));
        group.sample_size(20);
        let len = w as usize * h as usize * 3;
        let data: Vec<u8> = (0..len)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let source = ImageView::new(w, h, 3, &data).unwrap();
        for instructions in Instructions::available() {
            let resizer = Resizer {
                instructions,
                ..Resizer::default()
            };
            group.bench_function(format!("{instructions:?}"), |bencher| {
                bencher.iter(|| black_box(resizer.resize(source, out_w, out_h).unwrap()));
            });
        }
        for threads in [2, 4] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let resizer = Resizer {
                threads,
                ..Resizer::default()
            };
            group.bench_function(BenchmarkId::new("threads", threads), |bencher| {
                bencher.iter(|| black_box(resizer.resize(source, out_w, out_h).unwrap()));
            });
        }
        let image = fir::images::ImageRef::new(w, h, &data, fir::PixelType::U8x3).unwrap();
        let filter = fir::ResizeAlg::Convolution(fir::FilterType::CatmullRom);
        let options = fir::ResizeOptions::new().resize_alg(filter);
        group.bench_function("fast_image_resize", |bencher| {
            let mut resizer = fir::Resizer::new();
            bencher.iter(|| {
                let mut out = fir::images::Image::new(out_w, out_h, fir::PixelType::U8x3);
                resizer.resize(&image, &mut out, &options).unwrap();
                black_box(out)
            });
        });
        group.finish();
    }
}

criterion_group!(benches, resizes);
criterion_main!(benches);
