//! Patch sizes, bounds on pixels and the rounding that images and videos share.

use std::num::NonZeroUsize;

use crate::config::{self, Block};
use crate::digest::MediaDigest;
use crate::error::{Error, Result};
use crate::image::RgbImage;
use crate::image::patches::{CutDigest, Cutter, PatchOrder};
use crate::image::rescale::Table;

/// No image may be longer than this many times its width, or wider than its height.
const MAX_ASPECT: f64 = 200.0;

/// No configuration may enlarge images to more pixels than this.
const LARGEST_AREA: u64 = 1 << 28;

/// The sizes that images and videos share, by transformers' names.
#[allow(clippy::struct_field_names, reason = "the configuration's names")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QwenGrid {
    pub(crate) patch_size: u32,
    pub(crate) merge_size: u32,
    pub(crate) temporal_patch_size: u32,
}

impl QwenGrid {
    /// Reads the three sizes; absent ones have the given patch size, and 2.
    pub(crate) fn read(block: &mut Block<'_>, patch_size: u32) -> Result<Self> {
        let bounded = |value: Option<u32>, default: u32, key: &str, largest: u32| match value {
            None => Ok(default),
            Some(value) if value <= largest => Ok(value),
            Some(value) => {
                let expected = format!("at most {largest}");
                Err(config::bad_value(key, &value.into(), &expected))
            }
        };
        Ok(Self {
            patch_size: bounded(block.positive("patch_size")?, patch_size, "patch_size", 256)?,
            merge_size: bounded(block.positive("merge_size")?, 2, "merge_size", 16)?,
            temporal_patch_size: bounded(
                block.positive("temporal_patch_size")?,
                2,
                "temporal_patch_size",
                16,
            )?,
        })
    }

    /// Both sides of a prepared image are multiples of this many pixels.
    pub(crate) fn factor(self) -> u32 {
        self.patch_size * self.merge_size
    }

    /// Values a patch.
    pub(crate) fn patch_dim(self) -> usize {
        (self.patch_size * self.patch_size * self.temporal_patch_size * 3) as usize
    }
}

impl QwenGrid {
    /// How frames are cut.
    pub(crate) fn cutter(self, table: &Table, threads: NonZeroUsize) -> Cutter<'_> {
        let order = PatchOrder::Merged {
            merge: self.merge_size as usize,
        };
        Cutter {
            patch: self.patch_size as usize,
            order,
            table,
            threads,
        }
    }

    /// The grid of `groups` temporal patches of the size of `frame`.
    pub(crate) fn grid_of(self, groups: usize, frame: &RgbImage) -> [usize; 3] {
        let patches = |side: u32| (side / self.patch_size) as usize;
        [groups, patches(frame.height()), patches(frame.width())]
    }

    /// Tokens that the prompt gets for each temporal patch.
    pub(crate) fn tokens_per_group(self, grid_thw: [usize; 3]) -> usize {
        grid_thw[1] * grid_thw[2] / (self.merge_size * self.merge_size) as usize
    }

    /// Ends a digest with the tensor's shape and grid.
    pub(crate) fn finish(self, digest: CutDigest, grid_thw: [usize; 3]) -> MediaDigest {
        let shape = [grid_thw.iter().product(), self.patch_dim()];
        digest.finish(&shape, "grid_thw", &[3], grid_thw.map(|n| n as i64))
    }
}

/// Reads `size.shortest_edge` and `size.longest_edge`, which are areas here, or the older
/// `min_pixels` and `max_pixels`, which win as in transformers.
pub(crate) fn read_pixel_bounds(block: &mut Block<'_>) -> Result<(u64, u64)> {
    let mut bounds = [None, None];
    if let Some(size) = block.get("size") {
        let mut inner = Block::new(size, "")?;
        bounds = [
            inner.positive("shortest_edge")?,
            inner.positive("longest_edge")?,
        ];
        // Some files repeat the older names inside.
        let _older = [inner.get("min_pixels"), inner.get("max_pixels")];
        inner.finish()?;
    }
    let min = block.positive("min_pixels")?.or(bounds[0]);
    let max = block.positive("max_pixels")?.or(bounds[1]);
    let min = min.ok_or(Error::ConfigMissing {
        key: "size.shortest_edge",
    })?;
    let max = max.ok_or(Error::ConfigMissing {
        key: "size.longest_edge",
    })?;
    // The least is what a small image is enlarged to.
    if u64::from(min) > LARGEST_AREA {
        let expected = format!("at most {LARGEST_AREA}");
        return Err(config::bad_value(
            "size.shortest_edge",
            &min.into(),
            &expected,
        ));
    }
    Ok((min.into(), max.into()))
}

/// The bounds must be in order, and not lead to allocations without one.
pub(crate) fn check_pixel_bounds(min: u64, max: u64) -> Result<()> {
    if min == 0 || min > max || max > LARGEST_AREA {
        let expected = format!("0 < min <= max <= {LARGEST_AREA}");
        return Err(config::bad_value("size", &[min, max][..].into(), &expected));
    }
    Ok(())
}

/// The size, `(width, height)`, of an image of `width` by `height` whose sides are made
/// multiples of `factor` and whose area is kept within `bounds`.
pub(crate) fn area_bounded_size(
    factor: u32,
    bounds: (u64, u64),
    width: u32,
    height: u32,
) -> Result<(u32, u32)> {
    if width == 0 || height == 0 {
        return Err(Error::EmptyImage {
            width: width.into(),
            height: height.into(),
        });
    }
    let (w, h) = (f64::from(width), f64::from(height));
    check_aspect(w, h)?;
    // `smart_resize` of transformers, operation by operation.
    let factor = f64::from(factor);
    let (min, max) = (bounds.0 as f64, bounds.1 as f64);
    let (mut wide, mut high) = (round_to(w, factor), round_to(h, factor));
    if wide * high > max {
        let beta = (h * w / max).sqrt();
        let shrink = |side: f64| ((side / beta / factor).floor() * factor).max(factor);
        (wide, high) = (shrink(w), shrink(h));
    } else if wide * high < min {
        let beta = (min / (h * w)).sqrt();
        let grow = |side: f64| (side * beta / factor).ceil() * factor;
        (wide, high) = (grow(w), grow(h));
    }
    Ok((wide as u32, high as u32))
}

/// `round(x / factor) * factor` as Python rounds, half to even.
pub(crate) fn round_to(side: f64, factor: f64) -> f64 {
    (side / factor).round_ties_even() * factor
}

/// The aspect must not exceed 200 to 1.
pub(crate) fn check_aspect(w: f64, h: f64) -> Result<()> {
    let aspect = w.max(h) / w.min(h);
    if aspect > MAX_ASPECT {
        return Err(Error::ImageSize {
            family: "Qwen-VL",
            width: w as u64,
            height: h as u64,
            reason: format!("its aspect of {aspect} is over {MAX_ASPECT}"),
        });
    }
    Ok(())
}
