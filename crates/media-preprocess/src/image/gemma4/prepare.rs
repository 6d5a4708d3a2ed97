//! From an image to patches.

use std::borrow::Cow;

use super::prepared::flat;
use super::{Gemma4Image, Gemma4ImageProcessor, Gemma4Layout};
use crate::digest::MediaDigest;
use crate::error::{Error, Result};
use crate::image::RgbImage;
use crate::image::patches::{CutDigest, Cutter, PatchOrder};
use crate::image::rescale::Table;

impl Gemma4ImageProcessor {
    /// The size, `(width, height)`, to which an image of `width` by `height` is resized:
    /// the largest with sides that are multiples of 48 whose patches stay in the budget,
    /// keeping the aspect. Small images are enlarged.
    ///
    /// # Errors
    /// [`Error::EmptyImage`] for a side of 0; [`Error::ImageSize`] if the rule finds none.
    pub fn target_size(&self, width: u32, height: u32) -> Result<(u32, u32)> {
        if width == 0 || height == 0 {
            return Err(Error::EmptyImage {
                width: width.into(),
                height: height.into(),
            });
        }
        let fail = |reason: String| Error::ImageSize {
            family: "Gemma 4",
            width: width.into(),
            height: height.into(),
            reason,
        };
        // `get_aspect_ratio_preserving_size` of transformers, operation by operation.
        let side = self.side_multiple();
        let budget = u64::from(self.max_soft_tokens);
        let target_pixels = budget * u64::from(side).pow(2);
        let (w, h) = (f64::from(width), f64::from(height));
        let factor = (target_pixels as f64 / (w * h)).sqrt();
        let floor = |ideal: f64| (ideal / f64::from(side)).floor() as u64 * u64::from(side);
        let (mut target_width, mut target_height) = (floor(factor * w), floor(factor * h));
        let along =
            |long: f64, short: f64| ((long / short).floor() as u64).min(budget) * u64::from(side);
        match (target_width, target_height) {
            (0, 0) => return Err(fail("both sides round to 0".to_owned())),
            (_, 0) => (target_width, target_height) = (along(w, h), side.into()),
            (0, _) => (target_width, target_height) = (side.into(), along(h, w)),
            _ => {}
        }
        if target_width * target_height > target_pixels {
            let reason = format!(
                "{target_width}x{target_height} is over the budget of {target_pixels} pixels"
            );
            return Err(fail(reason));
        }
        // At most `budget * side` each, so they fit.
        Ok((target_width as u32, target_height as u32))
    }

    /// The image as the model will see it, before it is rescaled and cut.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare).
    pub fn resize<'a>(&self, image: &'a RgbImage) -> Result<Cow<'a, RgbImage>> {
        let side = self.side_multiple();
        let image = self.steps.resize_or_check(image, "Gemma 4", side, || {
            self.target_size(image.width(), image.height())
        })?;
        let tokens = (image.width() / side) * (image.height() / side);
        if tokens > self.max_soft_tokens {
            // Only an image that is not resized can be.
            return Err(Error::ImageSize {
                family: "Gemma 4",
                width: image.width().into(),
                height: image.height().into(),
                reason: format!(
                    "{tokens} soft tokens are over the budget of {}",
                    self.max_soft_tokens
                ),
            });
        }
        Ok(image)
    }

    /// Resizes, rescales and cuts an image.
    ///
    /// # Errors
    /// Those of [`target_size`](Self::target_size). With `do_resize` off in the
    /// configuration, [`Error::ImageSize`] if the image is not already made of whole blocks
    /// or exceeds the budget.
    pub fn prepare(&self, image: &RgbImage) -> Result<Gemma4Image> {
        let _span = tracing::debug_span!("gemma4_prepare", layout = ?self.layout).entered();
        let image = self.resize(image)?;
        let table = self.steps.table();
        let cutter = self.cutter(&table);
        let mut prepared = self.layout_of(&image);
        let digest = || {
            let mut digest = CutDigest::new("gemma4.image", &cutter);
            digest.frame(&image);
            let shape = [prepared.num_patches(), prepared.patch_dim()];
            digest.finish(
                &shape,
                "positions",
                &[shape[0], 2],
                flat(&prepared.positions),
            )
        };
        let (pixel_values, digest) = cutter.cut_and(&[&image], digest);
        prepared.pixel_values = pixel_values;
        prepared.digest = digest;
        Ok(prepared)
    }

    /// How images of this layout are cut.
    pub(crate) fn cutter<'a>(&self, table: &'a Table) -> Cutter<'a> {
        let patch = match self.layout {
            Gemma4Layout::Tower => self.patch_size,
            Gemma4Layout::Unified => self.side_multiple(),
        };
        let threads = self.steps.resizer.threads;
        Cutter {
            patch: patch as usize,
            order: PatchOrder::Rows,
            table,
            threads,
        }
    }

    /// The f32 of every byte value, by channel.
    #[cfg(feature = "video")]
    pub(crate) fn table(&self) -> Box<Table> {
        self.steps.table()
    }

    /// Everything but the pixels and the digest, for an image whose sides are multiples of the
    /// patch.
    pub(crate) fn layout_of(&self, image: &RgbImage) -> Gemma4Image {
        let pool = (self.pooling * self.pooling) as usize;
        let budget = self.max_soft_tokens as usize;
        let (patch_size, max_patches, patches_per_token) = match self.layout {
            Gemma4Layout::Tower => (self.patch_size, budget * pool, pool),
            Gemma4Layout::Unified => (self.side_multiple(), budget, 1),
        };
        let (columns, rows) = (image.width() / patch_size, image.height() / patch_size);
        let positions: Vec<[i32; 2]> = (0..rows as i32)
            .flat_map(|y| (0..columns as i32).map(move |x| [x, y]))
            .collect();
        Gemma4Image {
            soft_tokens: positions.len() / patches_per_token,
            digest: MediaDigest([0; 32]),
            pixel_values: Vec::new(),
            positions,
            rows: rows as usize,
            columns: columns as usize,
            patch_size: patch_size as usize,
            max_patches,
        }
    }
}
