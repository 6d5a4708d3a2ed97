//! From bytes to f32, to the last bit, as each reference does it.

/// Whose arithmetic turns a pixel's byte into f32.
///
/// The results differ by one unit in the last place for many byte values; a bit-exact
/// buffer therefore needs its reference named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Rescale {
    /// transformers' Pillow classes: multiply in f64, round to f32, then normalise in f32
    /// with a subtraction and a division.
    #[default]
    HfPil,
    /// transformers' torchvision classes: multiply in f32; or, with normalisation, one
    /// fused `(v - mean/factor) / (std/factor)` in f32.
    Torch,
    /// mlx-vlm: multiply in f32, then normalise like `HfPil`.
    MlxVlm,
}

/// The 256 results of each channel.
pub(crate) type Table = [[f32; 256]; 3];

impl Rescale {
    /// Tabulates every byte value of each channel.
    ///
    /// `factor` is the configuration's `rescale_factor` (`None`: no rescaling), `normalize`
    /// its mean and standard deviation.
    pub(crate) fn table(
        self,
        factor: Option<f64>,
        normalize: Option<([f64; 3], [f64; 3])>,
    ) -> Box<Table> {
        let mut table = Box::new([[0.0; 256]; 3]);
        for (channel, row) in table.iter_mut().enumerate() {
            let normalize = normalize.map(|(mean, std)| (mean[channel], std[channel]));
            for (value, out) in row.iter_mut().enumerate() {
                *out = self.value(value as u8, factor, normalize);
            }
        }
        table
    }

    fn value(self, value: u8, factor: Option<f64>, normalize: Option<(f64, f64)>) -> f32 {
        let plain = |x: f32| match normalize {
            Some((mean, std)) => (x - mean as f32) / std as f32,
            None => x,
        };
        match (self, factor) {
            (Self::Torch, Some(factor)) => match normalize {
                // `mean` and `std` become f32 tensors and are multiplied by `1/factor`,
                // which torch takes as f32 too.
                Some((mean, std)) => {
                    let unit = (1.0 / factor) as f32;
                    (f32::from(value) - mean as f32 * unit) / (std as f32 * unit)
                }
                None => f32::from(value) * factor as f32,
            },
            (Self::HfPil, Some(factor)) => plain((f64::from(value) * factor) as f32),
            (Self::MlxVlm, Some(factor)) => plain(f32::from(value) * factor as f32),
            (_, None) => plain(f32::from(value)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "bits are the subject")]
mod tests {
    use super::*;

    #[test]
    fn the_references_differ_as_measured() {
        // Counts from the published comparison of the three references over all bytes.
        let count = |a: Rescale, b: Rescale, normalize| {
            let (a, b) = (
                a.table(Some(1.0 / 255.0), normalize),
                b.table(Some(1.0 / 255.0), normalize),
            );
            a[0].iter().zip(&b[0]).filter(|(a, b)| a != b).count()
        };
        let half = Some(([0.5; 3], [0.5; 3]));
        assert_eq!(count(Rescale::HfPil, Rescale::Torch, None), 126);
        assert_eq!(count(Rescale::Torch, Rescale::MlxVlm, None), 0);
        assert_eq!(count(Rescale::HfPil, Rescale::Torch, half), 128);
        assert_eq!(count(Rescale::HfPil, Rescale::MlxVlm, half), 111);
        assert_eq!(count(Rescale::Torch, Rescale::MlxVlm, half), 207);
    }

    #[test]
    fn hf_pil_is_the_correctly_rounded_quotient() {
        let table = Rescale::HfPil.table(Some(1.0 / 255.0), None);
        for (value, got) in table[1].iter().enumerate() {
            assert_eq!(*got, (value as f64 / 255.0) as f32);
        }
    }
}
