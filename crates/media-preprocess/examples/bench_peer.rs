//! Our side of `tests/reference/image/bench.py` and `tests/reference/audio/bench.py`: reads one
//! JSON command a line, does it once, and answers with the seconds of wall and processor time
//! that it took.

#[path = "bench_peer/audio.rs"]
mod audio;

use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead as _, Write as _};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use fast_image_resize as fir;
use prefill_media_preprocess::image::resize::{ImageView, Instructions, Resizer};
use prefill_media_preprocess::image::{
    DecodeOptions, Gemma4ImageProcessor, QwenImageProcessor, decode, jpeg_backend,
};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let mut files: HashMap<String, Vec<u8>> = HashMap::new();
    let mut noise: HashMap<(u32, u32), Vec<u8>> = HashMap::new();
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line?)?;
        let number = |key: &str| command[key].as_u64().unwrap_or(0) as u32;
        let threads = NonZeroUsize::new(number("threads") as usize).unwrap_or(NonZeroUsize::MIN);
        let (wall, cpu) = match command["do"].as_str().unwrap_or_default() {
            "about" => {
                let best = Instructions::available().pop();
                let jpeg = jpeg_backend().map(|backend| backend.to_string());
                writeln!(
                    out,
                    "{}",
                    json!({"jpeg": jpeg, "best": format!("{best:?}")})
                )?;
                continue;
            }
            "resize" | "fir" => {
                let (w, h) = (number("w"), number("h"));
                let data = noise.entry((w, h)).or_insert_with(|| {
                    let len = w as usize * h as usize * 3;
                    (0..len)
                        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
                        .collect()
                });
                let size = (number("out_w"), number("out_h"));
                if command["do"] == "fir" {
                    inexact(data, w, h, size)?
                } else {
                    let instructions = match command["instructions"].as_str() {
                        Some("scalar") => Instructions::Scalar,
                        Some("avx2") => Instructions::Avx2,
                        _ => Instructions::Best,
                    };
                    let resizer = Resizer {
                        threads,
                        instructions,
                        ..Resizer::default()
                    };
                    let source = ImageView::new(w, h, 3, data)?;
                    let start = Clocks::now();
                    black_box(resizer.resize(source, size.0, size.1)?);
                    start.elapsed()
                }
            }
            action => {
                let path = command["file"].as_str().unwrap_or_default();
                if !files.contains_key(path) {
                    files.insert(path.to_owned(), std::fs::read(path)?);
                }
                match audio::run(&command, &files[path])? {
                    Some(times) => times,
                    None => prepare(action, &files[path], threads)?,
                }
            }
        };
        writeln!(out, "{}", json!({"wall": wall, "cpu": cpu}))?;
        out.flush()?;
    }
    Ok(())
}

/// Both clocks: processor time is steadier on a busy machine, but means nothing for threads.
struct Clocks {
    wall: Instant,
    cpu: Duration,
}

impl Clocks {
    fn now() -> Self {
        Self {
            cpu: cpu_time(),
            wall: Instant::now(),
        }
    }

    fn elapsed(&self) -> (f64, f64) {
        let wall = self.wall.elapsed();
        (
            wall.as_secs_f64(),
            cpu_time().saturating_sub(self.cpu).as_secs_f64(),
        )
    }
}

#[cfg(unix)]
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn cpu_time() -> Duration {
    Duration::ZERO
}

/// `fast_image_resize` with the same kernel.
fn inexact(data: &[u8], w: u32, h: u32, size: (u32, u32)) -> Result<(f64, f64), Box<dyn Error>> {
    let image = fir::images::ImageRef::new(w, h, data, fir::PixelType::U8x3)?;
    let filter = fir::ResizeAlg::Convolution(fir::FilterType::CatmullRom);
    let options = fir::ResizeOptions::new().resize_alg(filter);
    let mut resizer = fir::Resizer::new();
    let start = Clocks::now();
    let mut out = fir::images::Image::new(size.0, size.1, fir::PixelType::U8x3);
    resizer.resize(&image, &mut out, &options)?;
    black_box(out);
    Ok(start.elapsed())
}

/// From the bytes of a file to what the model gets, or as far as `action` says.
fn prepare(
    action: &str,
    bytes: &[u8],
    threads: NonZeroUsize,
) -> Result<(f64, f64), Box<dyn Error>> {
    let gemma = Gemma4ImageProcessor::default().with_threads(threads);
    let config = json!({
        "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}, "patch_size": 16,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]
    });
    let qwen = QwenImageProcessor::from_json(&config)?.with_threads(threads);
    let start = Clocks::now();
    let image = decode(bytes, &DecodeOptions::default())?;
    match action {
        "decode" => drop(black_box(image)),
        "gemma4" => drop(black_box(gemma.prepare(&image)?)),
        "qwen3" => drop(black_box(qwen.prepare(&image)?)),
        other => return Err(format!("unknown command {other}").into()),
    }
    Ok(start.elapsed())
}
