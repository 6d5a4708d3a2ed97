//! Draws the grid of patches over a picture.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use prefill_media_preprocess::image::RgbImage;

/// Writes `image` as PNG with a faint line every `patch` pixels and a strong one every
/// `token`.
pub(crate) fn draw(
    path: &Path,
    image: &RgbImage,
    patch: u32,
    token: u32,
) -> Result<(), Box<dyn Error>> {
    let mut pixels = image.data().to_vec();
    for (i, pixel) in pixels.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        let (x, y) = (i as u32 % image.width(), i as u32 / image.width());
        let on = |step: u32| x.is_multiple_of(step) || y.is_multiple_of(step);
        if on(token) {
            *pixel = [255, 60, 0];
        } else if on(patch) {
            *pixel = pixel.map(|value| value / 2 + 64);
        }
    }
    let file = BufWriter::new(File::create(path)?);
    let mut encoder = png::Encoder::new(file, image.width(), image.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(())
}
