//! RGBA to premultiplied and back, as Pillow's `Convert.c` does around a resize.

/// Multiplies the colours of RGBA pixels by their alpha, rounding `value * alpha / 255`.
pub(super) fn multiply(rgba: &[u8]) -> Vec<u8> {
    let scale = |value: u8, alpha: u8| {
        let product = u32::from(value) * u32::from(alpha) + 128;
        (((product >> 8) + product) >> 8) as u8
    };
    let pixels = rgba.as_chunks().0;
    pixels
        .iter()
        .flat_map(|&[r, g, b, a]| [scale(r, a), scale(g, a), scale(b, a), a])
        .collect()
}

/// Divides the colours of premultiplied pixels by their alpha, rounding down and clipping;
/// where alpha is 0 or 255 they stay.
pub(crate) fn divide(rgba: &mut [u8]) {
    for pixel in rgba.as_chunks_mut::<4>().0 {
        let alpha = u32::from(pixel[3]);
        if alpha == 0 || alpha == 255 {
            continue;
        }
        for value in &mut pixel[..3] {
            *value = (255 * u32::from(*value) / alpha).min(255) as u8;
        }
    }
}
