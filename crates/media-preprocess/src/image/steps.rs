//! The steps that all families share: resize, rescale, normalise.

use std::borrow::Cow;

use super::rescale::Table;
use super::resize::{Filter, Resizer};
use super::{Rescale, RgbImage};
use crate::config::{Block, bad_value};
use crate::error::{Error, Result};

/// How an image of the right size is made, and how its bytes become f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Steps {
    pub(crate) do_resize: bool,
    pub(crate) resizer: Resizer,
    pub(crate) rescale: Rescale,
    /// `rescale_factor`, or none if `do_rescale` is off.
    pub(crate) factor: Option<f64>,
    /// Mean and standard deviation, or none if `do_normalize` is off.
    pub(crate) normalize: Option<([f64; 3], [f64; 3])>,
}

impl Steps {
    /// Reads the shared keys; what is absent has the family's `defaults`.
    pub(crate) fn read(block: &mut Block<'_>, defaults: Self) -> Result<Self> {
        let mut steps = defaults;
        steps.do_resize = block.boolean("do_resize")?.unwrap_or(defaults.do_resize);
        if let Some(value) = block.get("resample") {
            let filter = value.as_u64().and_then(Filter::from_pillow);
            steps.resizer.filter =
                filter.ok_or_else(|| bad_value("resample", value, "a filter of Pillow, 0 to 5"))?;
        }
        let factor = block
            .number("rescale_factor")?
            .or(defaults.factor)
            .unwrap_or(1.0 / 255.0);
        let do_rescale = block
            .boolean("do_rescale")?
            .unwrap_or(defaults.factor.is_some());
        steps.factor = do_rescale.then_some(factor);

        let (mean, std) = (block.channels("image_mean")?, block.channels("image_std")?);
        let fallback = defaults.normalize.unwrap_or(([0.0; 3], [1.0; 3]));
        let pair = (mean.unwrap_or(fallback.0), std.unwrap_or(fallback.1));
        let do_normalize = block
            .boolean("do_normalize")?
            .unwrap_or(defaults.normalize.is_some());
        steps.normalize = do_normalize.then_some(pair);

        if let Some(value) = block.get("do_convert_rgb")
            && value.as_bool() != Some(true)
        {
            return Err(bad_value(
                "do_convert_rgb",
                value,
                "true: decoding gives RGB",
            ));
        }
        Ok(steps)
    }

    /// The image at its target size; or, with `do_resize` off, as it is if its sides are
    /// multiples of `side`.
    pub(crate) fn resize_or_check<'a>(
        &self,
        image: &'a RgbImage,
        family: &'static str,
        side: u32,
        target: impl FnOnce() -> Result<(u32, u32)>,
    ) -> Result<Cow<'a, RgbImage>> {
        let (width, height) = (image.width(), image.height());
        if self.do_resize {
            let target = target()?;
            if target == (width, height) {
                return Ok(Cow::Borrowed(image));
            }
            return Ok(Cow::Owned(image.resize(
                target.0,
                target.1,
                &self.resizer,
            )?));
        }
        if width % side != 0 || height % side != 0 {
            return Err(Error::ImageSize {
                family,
                width: width.into(),
                height: height.into(),
                reason: format!("without resizing both sides must be multiples of {side}"),
            });
        }
        Ok(Cow::Borrowed(image))
    }

    /// The f32 of every byte value, by channel.
    pub(crate) fn table(&self) -> Box<Table> {
        self.rescale.table(self.factor, self.normalize)
    }
}
