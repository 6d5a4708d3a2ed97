//! Which layers keep their keys and values quantised, and from when on.

use std::collections::BTreeMap;

use mlx_sys_ext::Quantization;

use crate::{Error, Result};

/// How keys and values are quantised in the cache: affine, in groups along a head's
/// dimensions. Sliding layers too.
///
/// ```
/// use prefill_engine::KvQuantization;
///
/// // 8 bits in groups of 64, from the start, and the first layer left alone.
/// let kv = KvQuantization::new(8).plain_layer(0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvQuantization {
    bits: i32,
    group_size: i32,
    start: usize,
    /// Other settings, by layer.
    layers: BTreeMap<usize, Option<(i32, i32)>>,
}

impl KvQuantization {
    /// `bits` (2, 3, 4, 5, 6 or 8) a value in groups of 64, in every layer, from the start.
    #[must_use]
    pub fn new(bits: i32) -> Self {
        Self {
            bits,
            group_size: 64,
            start: 0,
            layers: BTreeMap::new(),
        }
    }

    /// Values of a group: 32, 64 or 128. It must divide the size of a head.
    #[must_use]
    pub fn group_size(mut self, group_size: i32) -> Self {
        self.group_size = group_size;
        self
    }

    /// A sequence stays plain until it has this many tokens; then all of its rows are
    /// quantised, as mlx-lm does it.
    #[must_use]
    pub fn start(mut self, tokens: usize) -> Self {
        self.start = tokens;
        self
    }

    /// Other bits and group size for one layer, counted among those that keep keys and values.
    #[must_use]
    pub fn layer(mut self, index: usize, bits: i32, group_size: i32) -> Self {
        self.layers.insert(index, Some((bits, group_size)));
        self
    }

    /// Leaves one layer plain.
    #[must_use]
    pub fn plain_layer(mut self, index: usize) -> Self {
        self.layers.insert(index, None);
        self
    }

    pub(crate) fn start_position(&self) -> usize {
        self.start
    }

    /// How a layer is quantised, if it is.
    pub(crate) fn of_layer(&self, index: usize) -> Result<Option<Quantization>> {
        let setting = match self.layers.get(&index) {
            Some(setting) => *setting,
            None => Some((self.bits, self.group_size)),
        };
        let affine = |(bits, group)| Quantization::affine(group, bits);
        Ok(setting.map(affine).transpose()?)
    }

    /// Whether it can be done for layers with heads of these sizes.
    ///
    /// # Errors
    /// [`Error::KvQuantization`] names the layer where it can't.
    pub(crate) fn check(&self, head_sizes: &[i32]) -> Result<()> {
        if let Some((&layer, _)) = self.layers.range(head_sizes.len()..).next() {
            let fact = format!(
                "the model keeps keys and values in {} layers",
                head_sizes.len()
            );
            return Err(Error::KvQuantization { layer, fact });
        }
        for (layer, &size) in head_sizes.iter().enumerate() {
            let quantization = self
                .of_layer(layer)
                .map_err(|error| Error::KvQuantization {
                    layer,
                    fact: error.to_string(),
                })?;
            let group = quantization.map_or(size, Quantization::group_size);
            if size % group != 0 {
                let fact = format!("heads of {size} are no multiple of groups of {group}");
                return Err(Error::KvQuantization { layer, fact });
            }
        }
        Ok(())
    }

    /// About how many bits of a plain value of `plain_bits` are left, as a fraction.
    pub(crate) fn share(&self, plain_bits: usize) -> f64 {
        // A group has a scale and a bias of the plain type.
        let bits = f64::from(self.bits) + 2.0 * plain_bits as f64 / f64::from(self.group_size);
        (bits / plain_bits as f64).min(1.0)
    }
}
