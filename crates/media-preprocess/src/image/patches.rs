//! Cutting images into patches of f32, and naming the result.

use std::num::NonZeroUsize;

use super::RgbImage;
use super::rescale::Table;
use crate::digest::{DigestWriter, MediaDigest};

/// The order of patches, and of the values in one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PatchOrder {
    /// Patches by rows; pixels by rows, channels last (Gemma). One frame.
    Rows,
    /// Patches by blocks of `merge * merge`, blocks by rows; channels first, then frames, then
    /// pixels by rows (Qwen).
    Merged {
        /// Patches along a block's side.
        merge: usize,
    },
}

/// How images are cut and on how many threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cutter<'a> {
    pub(crate) patch: usize,
    pub(crate) order: PatchOrder,
    pub(crate) table: &'a Table,
    pub(crate) threads: NonZeroUsize,
}

impl Cutter<'_> {
    /// Appends the patches of `frames`, all of one size, which is a multiple of the patch (and
    /// of a block of patches).
    pub(crate) fn cut(&self, frames: &[&RgbImage], out: &mut Vec<f32>) {
        let Some(first) = frames.first() else { return };
        let side = match self.order {
            PatchOrder::Rows => self.patch,
            PatchOrder::Merged { merge } => self.patch * merge,
        };
        let width = first.width() as usize;
        let (bands, band_len) = (
            first.height() as usize / side,
            side * width * 3 * frames.len(),
        );
        let at = out.len();
        out.resize(at + bands * band_len, 0.0);
        let out = &mut out[at..];
        let threads = self.threads.get().clamp(1, bands.max(1));
        if threads == 1 {
            return self.bands(frames, 0, band_len, out);
        }
        let share = bands.div_ceil(threads);
        std::thread::scope(|scope| {
            for (i, out) in out.chunks_mut(share * band_len).enumerate() {
                scope.spawn(move || self.bands(frames, i * share, band_len, out));
            }
        });
    }

    /// Cuts `frames` while `digest` runs, on another thread if there is more than one.
    pub(crate) fn cut_and(
        &self,
        frames: &[&RgbImage],
        digest: impl FnOnce() -> MediaDigest + Send,
    ) -> (Vec<f32>, MediaDigest) {
        let mut out = Vec::new();
        if self.threads.get() == 1 {
            self.cut(frames, &mut out);
            return (out, digest());
        }
        let digest = std::thread::scope(|scope| {
            let digest = scope.spawn(digest);
            self.cut(frames, &mut out);
            // It panics on nothing; if it did, so should we.
            digest
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        (out, digest)
    }

    /// Fills `out` with the bands from `first` on; a band is a row of patches or of blocks.
    fn bands(&self, frames: &[&RgbImage], first: usize, band_len: usize, out: &mut [f32]) {
        let patch = self.patch;
        let columns = frames[0].width() as usize / patch;
        let patch_len = patch * patch * 3 * frames.len();
        for (i, band) in out.chunks_exact_mut(band_len).enumerate() {
            let band_row = first + i;
            for (n, out) in band.chunks_exact_mut(patch_len).enumerate() {
                match self.order {
                    PatchOrder::Rows => self.interleaved(frames[0], band_row, n % columns, out),
                    PatchOrder::Merged { merge } => {
                        let (block, inner) = (n / (merge * merge), n % (merge * merge));
                        let row = band_row * merge + inner / merge;
                        self.planar(frames, row, block * merge + inner % merge, out);
                    }
                }
            }
        }
    }

    fn interleaved(&self, image: &RgbImage, row: usize, column: usize, out: &mut [f32]) {
        let [reds, greens, blues] = self.table;
        for (y, out) in out.chunks_exact_mut(self.patch * 3).enumerate() {
            let pixels = self.pixels(image, row * self.patch + y, column);
            for (out, &[r, g, b]) in out.as_chunks_mut().0.iter_mut().zip(pixels) {
                *out = [
                    reds[usize::from(r)],
                    greens[usize::from(g)],
                    blues[usize::from(b)],
                ];
            }
        }
    }

    fn planar(&self, frames: &[&RgbImage], row: usize, column: usize, out: &mut [f32]) {
        let area = self.patch * self.patch;
        let planes = out.chunks_exact_mut(area * frames.len());
        for (channel, (out, table)) in planes.zip(self.table).enumerate() {
            let (head, rest) = out.split_at_mut(area);
            self.plane(frames[0], row, column, channel, table, head);
            for (out, frame) in rest.chunks_exact_mut(area).zip(&frames[1..]) {
                if std::ptr::eq(*frame, frames[0]) {
                    out.copy_from_slice(head); // a still image fills its temporal patch
                } else {
                    self.plane(frame, row, column, channel, table, out);
                }
            }
        }
    }

    fn plane(
        &self,
        image: &RgbImage,
        row: usize,
        column: usize,
        channel: usize,
        table: &[f32; 256],
        out: &mut [f32],
    ) {
        for (y, out) in out.chunks_exact_mut(self.patch).enumerate() {
            let pixels = self.pixels(image, row * self.patch + y, column);
            for (out, pixel) in out.iter_mut().zip(pixels) {
                *out = table[usize::from(pixel[channel])];
            }
        }
    }

    /// The pixels of one row of one patch.
    fn pixels<'a>(&self, image: &'a RgbImage, y: usize, column: usize) -> &'a [[u8; 3]] {
        let at = (y * image.width() as usize + column * self.patch) * 3;
        image.data()[at..at + self.patch * 3].as_chunks().0
    }
}

/// Names a prepared medium by what determines its tensor, to the bit: the bytes of its resized
/// frames in turn, the f32 of every byte value, and how they are cut.
///
/// That is the tensor in a shorter form: an eighth of its size where a still image fills two
/// frames.
pub(crate) struct CutDigest(DigestWriter);

impl CutDigest {
    pub(crate) fn new(kind: &str, cutter: &Cutter<'_>) -> Self {
        let mut digest = DigestWriter::new(kind);
        digest.f32s("values", &[3, 256], cutter.table.as_flattened());
        let merge = match cutter.order {
            PatchOrder::Rows => 0,
            PatchOrder::Merged { merge } => merge,
        };
        digest.i64s("cut", &[2], [cutter.patch, merge].map(|n| n as i64));
        Self(digest)
    }

    pub(crate) fn frame(&mut self, frame: &RgbImage) {
        let shape = [frame.height() as usize, frame.width() as usize, 3];
        self.0.u8s("frame", &shape, frame.data());
    }

    /// The digest, after the shape of the tensor and its positions or grid.
    pub(crate) fn finish(
        mut self,
        shape: &[usize],
        name: &str,
        layout_shape: &[usize],
        layout: impl IntoIterator<Item = i64>,
    ) -> MediaDigest {
        self.0
            .i64s("shape", &[shape.len()], shape.iter().map(|&n| n as i64));
        self.0.i64s(name, layout_shape, layout);
        self.0.finish()
    }
}
