//! Low-rank adapters (Hu et al. 2021), in mlx-lm's and in PEFT's layout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mlx_rs::Array;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{container, read_json};
use crate::{Error, Result};

/// An adapter's folder; nothing is loaded yet.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    weights: PathBuf,
    layout: Layout,
}

#[derive(Debug, Clone, Copy)]
enum Layout {
    /// `{module}.lora_a` `[in, rank]`, `{module}.lora_b` `[rank, out]`.
    MlxLm { scale: f32 },
    /// `base_model.model.{module}.lora_A.weight` `[rank, in]`, `...lora_B.weight`
    /// `[out, rank]`. The scale is `alpha` over the rank, or over its root.
    Peft { alpha: f32, by_root: bool },
}

/// What an adapter adds to one matrix.
#[derive(Debug)]
pub(crate) struct AdapterTensors {
    /// The module's name in the file.
    pub module: String,
    /// `[in, rank]`.
    pub a: Array,
    /// `[rank, out]`.
    pub b: Array,
    pub scale: f32,
}

#[derive(Deserialize)]
struct MlxLmConfig {
    fine_tune_type: Option<String>,
    lora_parameters: MlxLmParameters,
}

#[derive(Deserialize)]
struct MlxLmParameters {
    scale: f32,
}

#[derive(Deserialize)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "these are the file's settings"
)]
struct PeftConfig {
    peft_type: String,
    lora_alpha: f32,
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    fan_in_fan_out: bool,
    #[serde(default)]
    lora_bias: bool,
    bias: Option<String>,
    modules_to_save: Option<Vec<String>>,
    #[serde(default)]
    alpha_pattern: Map<String, Value>,
}

impl Adapter {
    /// Opens a folder with `adapter_config.json` and either `adapters.safetensors` (mlx-lm) or
    /// `adapter_model.safetensors` (PEFT).
    ///
    /// # Errors
    /// [`Error::File`] and [`Error::BadFile`]; the latter also for kinds of adapters that are
    /// not served.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let config_path = folder.join("adapter_config.json");
        let refused = |fact: &str| Err(Error::bad_file(&config_path, fact));
        let peft = folder.join("adapter_model.safetensors");
        if peft.is_file() {
            let config: PeftConfig = read_json(&config_path)?;
            let is_plain = !config.use_dora
                && !config.fan_in_fan_out
                && !config.lora_bias
                && config.bias.as_deref().unwrap_or("none") == "none"
                && config.modules_to_save.as_ref().is_none_or(Vec::is_empty)
                && config.alpha_pattern.is_empty();
            if config.peft_type != "LORA" || !is_plain {
                return refused(
                    "only plain LoRA is served: no DoRA, biases, saved modules or patterns",
                );
            }
            let (alpha, by_root) = (config.lora_alpha, config.use_rslora);
            return Ok(Self {
                weights: peft,
                layout: Layout::Peft { alpha, by_root },
            });
        }
        let config: MlxLmConfig = read_json(&config_path)?;
        if config.fine_tune_type.as_deref().unwrap_or("lora") != "lora" {
            return refused("only fine_tune_type \"lora\" is served");
        }
        let scale = config.lora_parameters.scale;
        Ok(Self {
            weights: folder.join("adapters.safetensors"),
            layout: Layout::MlxLm { scale },
        })
    }

    /// Its weights and its settings.
    pub(super) fn files(&self) -> [PathBuf; 2] {
        let config = self.weights.with_file_name("adapter_config.json");
        [self.weights.clone(), config]
    }

    /// Its tensors, by the canonical path of the module; `canonical` is that of weights.
    pub(super) fn tensors(
        &self,
        canonical: impl Fn(&str) -> Option<String>,
    ) -> Result<BTreeMap<String, AdapterTensors>> {
        let path = &self.weights;
        let entries = container::entries(path)?;
        let mut arrays = Array::load_safetensors(path)
            .map_err(|error| Error::bad_file(path, error.to_string()))?;
        let mut modules = BTreeMap::new();
        for name in entries.keys() {
            let (module, is_a) = self
                .module_of(name)
                .ok_or_else(|| Error::bad_file(path, format!("{name} is no part of an adapter")))?;
            let slot: &mut (Option<String>, Option<String>) = modules.entry(module).or_default();
            let half = if is_a { &mut slot.0 } else { &mut slot.1 };
            *half = Some(name.clone());
        }
        let mut tensors = BTreeMap::new();
        for (module, halves) in modules {
            let (Some(a), Some(b)) = halves else {
                let fact = format!("{module} has only one of its two matrices");
                return Err(Error::bad_file(path, fact));
            };
            let mut array = |name: &str| {
                let fact = || Error::bad_file(path, format!("MLX finds no tensor {name} in it"));
                arrays.remove(name).ok_or_else(fact)
            };
            let (a, b) = (array(&a)?, array(&b)?);
            if a.ndim() != 2 || b.ndim() != 2 {
                let fact = format!(
                    "{module}: {:?} and {:?} are no matrices",
                    a.shape(),
                    b.shape()
                );
                return Err(Error::bad_file(path, fact));
            }
            let found = match self.layout {
                Layout::MlxLm { scale } => AdapterTensors {
                    module: module.to_owned(),
                    a,
                    b,
                    scale,
                },
                Layout::Peft { alpha, by_root } => {
                    let rank = a.dim(0) as f32;
                    AdapterTensors {
                        module: module.to_owned(),
                        a: a.transpose()?,
                        b: b.transpose()?,
                        scale: alpha / if by_root { rank.sqrt() } else { rank },
                    }
                }
            };
            // What the models have no use for has no use for an adapter either.
            let Some(key) = canonical(&format!("{module}.weight")) else {
                continue;
            };
            let key = key.strip_suffix(".weight").unwrap_or(&key).to_owned();
            tensors.insert(key, found);
        }
        Ok(tensors)
    }

    /// The module that a tensor belongs to, and whether it is the first of the two matrices.
    fn module_of<'n>(&self, name: &'n str) -> Option<(&'n str, bool)> {
        let (name, ends) = match self.layout {
            Layout::MlxLm { .. } => (name, [".lora_a", ".lora_b"]),
            Layout::Peft { .. } => (
                name.strip_prefix("base_model.model.")?,
                [".lora_A.weight", ".lora_B.weight"],
            ),
        };
        let [a, b] = ends.map(|end| name.strip_suffix(end));
        a.map(|module| (module, true))
            .or_else(|| b.map(|module| (module, false)))
    }
}
