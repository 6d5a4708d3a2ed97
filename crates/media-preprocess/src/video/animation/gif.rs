//! GIF frames, drawn and disposed of as Pillow's `GifImagePlugin` does.

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, DisposalMethod, MemoryLimit};

use super::{Bytes, Facts, Frames, check_canvas};
use crate::error::{Error, Result};
use crate::image::{Format, Limits, RgbImage};

#[allow(clippy::needless_pass_by_value, reason = "the shape of `map_err`")]
fn error(error: DecodingError) -> Error {
    Error::Malformed {
        format: Format::Gif,
        message: error.to_string(),
    }
}

fn options(limits: &Limits) -> DecodeOptions {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let limit = NonZeroU64::new(limits.max_decoded_bytes).unwrap_or(NonZeroU64::MIN);
    options.set_memory_limit(MemoryLimit::Bytes(limit));
    options
}

pub(super) fn look(bytes: Bytes, limits: &Limits) -> Result<Facts> {
    let mut options = options(limits);
    options.skip_frame_decoding(true);
    let mut decoder = options.read_info(bytes).map_err(error)?;
    let mut facts = Facts::default();
    while let Some(frame) = decoder.next_frame_info().map_err(error)? {
        facts.add(frame.delay.into(), 100);
    }
    Ok(facts)
}

/// A rectangle of the canvas to restore before the next frame.
struct Restore {
    left: usize,
    top: usize,
    width: usize,
    /// Its rows.
    pixels: Vec<[u8; 3]>,
}

pub(super) struct GifFrames {
    decoder: Decoder<Bytes>,
    width: usize,
    height: usize,
    /// Colours only: Pillow keeps them under transparency, and drops that at the end.
    canvas: Vec<[u8; 3]>,
    drawn: usize,
    disposal: DisposalMethod,
    restore: Option<Restore>,
    limits: Limits,
}

impl GifFrames {
    pub(super) fn new(bytes: Bytes, limits: &Limits) -> Result<Self> {
        let decoder = options(limits).read_info(bytes).map_err(error)?;
        let (width, height) = (decoder.width().into(), decoder.height().into());
        Ok(Self {
            decoder,
            width,
            height,
            canvas: Vec::new(),
            drawn: 0,
            disposal: DisposalMethod::Any,
            restore: None,
            limits: *limits,
        })
    }

    /// Pixels of a rectangle that lies inside the canvas.
    fn crop(&self, left: usize, top: usize, width: usize, height: usize) -> Vec<[u8; 3]> {
        (top..top + height)
            .flat_map(|y| {
                self.canvas[y * self.width + left..][..width]
                    .iter()
                    .copied()
            })
            .collect()
    }
}

impl Frames for GifFrames {
    fn next(&mut self) -> Result<Option<RgbImage>> {
        let background = self.decoder.bg_color().unwrap_or(0);
        let global = self.decoder.global_palette().map(<[u8]>::to_vec);
        let Some(info) = self.decoder.next_frame_info().map_err(error)? else {
            return Ok(None);
        };
        let (left, top) = (usize::from(info.left), usize::from(info.top));
        let (width, height) = (usize::from(info.width), usize::from(info.height));
        let (transparent, dispose) = (info.transparent, info.dispose);
        let palette = info.palette.clone().or(global);
        let color = |index: usize| -> [u8; 3] {
            match palette.as_deref() {
                Some(colors) => colors.as_chunks().0.get(index).copied().unwrap_or_default(),
                None => [index as u8; 3],
            }
        };
        if self.drawn == 0 {
            // The first frame may enlarge the screen; the transparent colour, or the first,
            // is where it doesn't reach.
            self.width = self.width.max(left + width);
            self.height = self.height.max(top + height);
            check_canvas(self.width as u32, self.height as u32, &self.limits)?;
            let fill = color(transparent.map_or(0, usize::from));
            self.canvas = vec![fill; self.width * self.height];
        } else if left + width > self.width || top + height > self.height {
            let what = "a later frame that reaches past the screen".to_owned();
            return Err(Error::Unsupported {
                format: Format::Gif,
                what,
            });
        }
        let mut indices = vec![0; self.decoder.buffer_size()];
        self.decoder.read_into_buffer(&mut indices).map_err(error)?;

        if let Some(Restore {
            left,
            top,
            width,
            pixels,
        }) = self.restore.take()
        {
            for (y, row) in pixels.chunks_exact(width.max(1)).enumerate() {
                self.canvas[(top + y) * self.width + left..][..width].copy_from_slice(row);
            }
        }
        // A method once given holds until another is.
        if dispose != DisposalMethod::Any {
            self.disposal = dispose;
        }
        self.restore = match self.disposal {
            DisposalMethod::Background => {
                let fill = color(transparent.map_or(background, usize::from));
                Some(Restore {
                    left,
                    top,
                    width,
                    pixels: vec![fill; width * height],
                })
            }
            DisposalMethod::Previous if self.drawn > 0 => Some(Restore {
                left,
                top,
                width,
                pixels: self.crop(left, top, width, height),
            }),
            DisposalMethod::Previous => transparent.map(|clear| {
                let pixels = vec![color(clear.into()); width * height];
                Restore {
                    left,
                    top,
                    width,
                    pixels,
                }
            }),
            DisposalMethod::Any | DisposalMethod::Keep => None,
        };
        for (y, row) in indices.chunks_exact(width.max(1)).enumerate() {
            let line = &mut self.canvas[(top + y) * self.width + left..][..width];
            for (pixel, &index) in line.iter_mut().zip(row) {
                if self.drawn == 0 || transparent != Some(index) {
                    *pixel = color(index.into());
                }
            }
        }
        self.drawn += 1;
        let data = self.canvas.as_flattened().to_vec();
        RgbImage::new(self.width as u32, self.height as u32, data).map(Some)
    }
}
