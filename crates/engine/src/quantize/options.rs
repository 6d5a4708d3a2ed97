//! What is quantised, and how.

use mlx_sys_ext::Quantization;

use crate::Result;

/// A way to quantise: see [`Quantization`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantizationMode(Quantization);

impl QuantizationMode {
    /// Whole numbers of `bits` (2 to 6, or 8) with a scale and a bias a group of `group_size`
    /// (32, 64 or 128).
    ///
    /// # Errors
    /// [`Error::MlxExtension`](crate::Error::MlxExtension) for other numbers.
    pub fn affine(group_size: i32, bits: i32) -> Result<Self> {
        Ok(Self(Quantization::affine(group_size, bits)?))
    }

    /// 4-bit floats with a power of two for every 32.
    #[must_use]
    pub fn mxfp4() -> Self {
        Self(Quantization::Mxfp4)
    }

    /// 8-bit floats with a power of two for every 32.
    #[must_use]
    pub fn mxfp8() -> Self {
        Self(Quantization::Mxfp8)
    }

    /// 4-bit floats with an 8-bit float for every 16.
    #[must_use]
    pub fn nvfp4() -> Self {
        Self(Quantization::Nvfp4)
    }
}

/// What is quantised, and how: a mode, and others for modules whose MLX path matches a
/// pattern. Towers stay as they are, and routers of experts get 8 bits in groups of 64, as
/// mlx-vlm has it, unless a pattern says otherwise.
#[derive(Debug, Clone)]
pub struct QuantizeOptions {
    mode: Quantization,
    /// The last that matches counts.
    rules: Vec<(String, Option<Quantization>)>,
}

impl QuantizeOptions {
    /// Quantises the text's matrices so.
    #[must_use]
    pub fn new(mode: QuantizationMode) -> Self {
        let router = Quantization::Affine {
            group_size: 64,
            bits: 8,
        };
        let rules = [
            ("vision_tower.*", None),
            ("audio_tower.*", None),
            ("vision_embedder.*", None),
            ("embed_vision.*", None),
            ("embed_audio.*", None),
            ("*.router.proj", Some(router)),
            ("*.mlp.gate", Some(router)),
            ("*.shared_expert_gate", Some(router)),
        ];
        Self {
            mode: mode.0,
            rules: rules
                .map(|(pattern, mode)| (pattern.to_owned(), mode))
                .into(),
        }
    }

    /// Another mode, or none, for modules whose MLX path (such as
    /// `language_model.model.layers.0.mlp.down_proj`) matches `pattern`, in which `*` stands
    /// for any text. Later patterns go before earlier ones.
    #[must_use]
    pub fn with(mut self, pattern: impl Into<String>, mode: Option<QuantizationMode>) -> Self {
        self.rules.push((pattern.into(), mode.map(|mode| mode.0)));
        self
    }

    pub(super) fn quantization(&self) -> Quantization {
        self.mode
    }

    /// How a module is quantised, if it is.
    pub(super) fn choose(&self, module: &str) -> Option<Quantization> {
        let mut rules = self.rules.iter().rev();
        let rule = rules.find(|(pattern, _)| matches(pattern, module));
        rule.map_or(Some(self.mode), |(_, mode)| *mode)
    }
}

/// Whether a text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut ends_open = false;
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            let middle: &str = middle;
            match rest.find(middle) {
                Some(at) => rest = &rest[at + middle.len()..],
                None => return false,
            }
        }
        ends_open = true;
    }
    match last {
        Some(end) => rest.ends_with(end),
        None => !ends_open && rest.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "a.b", true),
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("*.down_proj", "layers.0.mlp.down_proj", true),
            ("*.down_proj", "layers.0.mlp.down_proj.x", false),
            ("vision_tower.*", "vision_tower.a", true),
            ("layers.*.mlp.*", "layers.3.mlp.up", true),
            ("layers.*.mlp.*", "layers.3.attn.up", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn the_last_pattern_that_matches_counts() {
        let four = QuantizationMode::affine(64, 4).unwrap();
        let options = QuantizeOptions::new(four)
            .with("*.down_proj", Some(QuantizationMode::mxfp8()))
            .with("*.0.*", None);
        let choose = |module: &str| options.choose(module);
        assert_eq!(choose("x.layers.1.mlp.up_proj"), Some(four.0));
        assert_eq!(
            choose("x.layers.1.mlp.down_proj"),
            Some(Quantization::Mxfp8)
        );
        assert_eq!(choose("x.layers.0.mlp.down_proj"), None);
        assert_eq!(choose("vision_tower.layers.1.mlp.up_proj"), None);
        assert_eq!(choose("x.layers.1.router.proj").unwrap().bits(), 8);
    }
}
