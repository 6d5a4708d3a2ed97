//! CMYK to RGB as Pillow's `cmyk2rgb` does it.

/// One channel from ink and black, both 0 for none and 255 for full.
pub(super) fn cmyk_channel(ink: u8, black: u8) -> u8 {
    let light = 255 - u32::from(black);
    let product = u32::from(ink) * light + 128;
    (light - (((product >> 8) + product) >> 8)) as u8
}
