//! Making quantised checkpoints.

mod options;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mlx_rs::Array;
use mlx_sys_ext::{HostView, Quantization, quantize};
use serde_json::{Map, Value, json};

pub use self::options::{QuantizationMode, QuantizeOptions};
use self::write::{Shards, Stored};
use crate::checkpoint::weights::{self, StoredMatrix};
use crate::checkpoint::{Checkpoint, container, read_json};
use crate::model::{LoadOptions, Model, Progress};
use crate::thread::MlxThread;
use crate::{Error, Result};

/// What became of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quantised {
    /// Matrices that were quantised.
    pub quantised: usize,
    /// Matrices that stay as they are because no group fits their width, by name.
    pub unfit: Vec<String>,
    /// Matrices that stay as they are because the options say so.
    pub left: usize,
    /// Bytes of the tensors before.
    pub bytes_before: u64,
    /// Bytes of the tensors after.
    pub bytes_after: u64,
}

/// Writes a checkpoint whose linear layers, embeddings and experts are quantised into the
/// folder `output`, which must be empty or not exist. mlx-lm and mlx-vlm read it. `progress` is
/// told the bytes read.
///
/// ```no_run
/// use prefill_engine::{
///     Checkpoint, MlxThread, QuantizationMode, QuantizeOptions, quantize_checkpoint,
/// };
///
/// let thread = MlxThread::claim()?;
/// let options = QuantizeOptions::new(QuantizationMode::affine(64, 4)?)
///     .with("*.down_proj", Some(QuantizationMode::affine(64, 8)?));
/// let checkpoint = Checkpoint::open("org/name")?;
/// quantize_checkpoint(&thread, &checkpoint, "name-4bit", &options, &mut |_| {})?;
/// # Ok::<(), prefill_engine::Error>(())
/// ```
///
/// # Errors
/// Those of [`Model::load`]; [`Error::BadFile`] if the checkpoint is quantised already, or the
/// folder is not empty; [`Error::File`].
pub fn quantize_checkpoint(
    thread: &MlxThread,
    checkpoint: &Checkpoint,
    output: impl AsRef<Path>,
    options: &QuantizeOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Quantised> {
    let output = output.as_ref();
    prepare(output)?;
    let matrices = matrices(thread, checkpoint)?;
    let folder = checkpoint.folder();
    let files = weights::files(folder)?;
    let mut total = 0;
    for (path, _) in &files {
        total += container::entries(path)?
            .values()
            .map(|entry| entry.bytes)
            .sum::<u64>();
    }
    let mut report = Quantised {
        bytes_before: total,
        ..Quantised::default()
    };
    let mut overrides = Map::new();
    let mut shards = Shards::new(output);
    let mut done = 0;
    for (path, listed) in files {
        let entries = container::entries(&path)?;
        let mut arrays = Array::load_safetensors(&path)
            .map_err(|error| Error::bad_file(&path, error.to_string()))?;
        for (name, entry) in entries {
            if listed
                .as_ref()
                .is_some_and(|listed| !listed.contains(&name))
            {
                continue;
            }
            let array = arrays.remove(&name).ok_or_else(|| {
                Error::bad_file(&path, format!("MLX finds no tensor {name} in it"))
            })?;
            let Some(matrix) = matrices.get(&name) else {
                shards.push(stored(name, &array, &entry.dtype)?)?;
                done += entry.bytes;
                progress(Progress { done, total });
                continue;
            };
            for (name, array) in split_experts(matrix, array)? {
                let module = name.strip_suffix(".weight").unwrap_or(&name);
                let Some(quantization) = options.choose(&mlx_path(module)) else {
                    report.left += 1;
                    shards.push(stored(name, &array, &entry.dtype)?)?;
                    continue;
                };
                if array.dim(-1) % quantization.group_size() != 0 {
                    report.unfit.push(name.clone());
                    shards.push(stored(name, &array, &entry.dtype)?)?;
                    continue;
                }
                report.quantised += 1;
                if quantization != options.quantization() {
                    overrides.insert(mlx_path(module), description(quantization));
                }
                for tensor in quantised(module, &array, quantization, &entry.dtype)? {
                    shards.push(tensor)?;
                }
            }
            done += entry.bytes;
            progress(Progress { done, total });
        }
    }
    report.bytes_after = shards.finish()?;
    copy_settings(folder, output, options.quantization(), overrides)?;
    Ok(report)
}

/// Makes the folder, or sees that it is empty.
fn prepare(output: &Path) -> Result<()> {
    fs::create_dir_all(output).map_err(|source| Error::file(output, source))?;
    let mut entries = fs::read_dir(output).map_err(|source| Error::file(output, source))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Error::bad_file(output, "the folder is not empty")),
    }
}

/// The matrices that the model multiplies with or looks rows up in, by their names in the
/// files.
fn matrices(thread: &MlxThread, checkpoint: &Checkpoint) -> Result<BTreeMap<String, StoredMatrix>> {
    let recording = checkpoint.recording();
    // Nothing is read: the model only says what it takes.
    Model::load_with(thread, &recording, LoadOptions::default(), &mut |_| {})?;
    let recorded = recording.recorded();
    if let Some(matrix) = recorded.iter().find(|matrix| matrix.is_quantised) {
        let fact = format!("{} is quantised already", matrix.name);
        return Err(Error::bad_file(checkpoint.folder(), fact));
    }
    let named = |matrix: StoredMatrix| (matrix.name.clone(), matrix);
    Ok(recorded.into_iter().map(named).collect())
}

/// Experts are stored fused by Hugging Face, and as three stacks by MLX, which alone quantises
/// them.
fn fused_parts(name: &str) -> Option<Vec<String>> {
    if let Some(path) = name.strip_suffix("experts.gate_up_proj") {
        let part = |part| format!("{}.{part}.weight", switch_path(path));
        return Some(vec![part("gate_proj"), part("up_proj")]);
    }
    let path = name.strip_suffix("experts.down_proj")?;
    Some(vec![format!("{}.down_proj.weight", switch_path(path))])
}

/// Gemma 4's stacks lie below `experts`, those of Qwen beside it.
fn switch_path(path: &str) -> String {
    if path.ends_with("mlp.") {
        format!("{path}switch_mlp")
    } else {
        format!("{path}experts.switch_glu")
    }
}

/// The matrix itself, or the stacks that MLX makes of fused experts.
fn split_experts(matrix: &StoredMatrix, array: Array) -> Result<Vec<(String, Array)>> {
    let Some(names) = fused_parts(&matrix.name) else {
        return Ok(vec![(matrix.name.clone(), array)]);
    };
    // [experts, out, in]
    let stack = if matrix.is_turned {
        array.swap_axes(-1, -2)?
    } else {
        array
    };
    let parts = match names.len() {
        1 => vec![stack],
        count => stack.split_equal(count as i32, 1)?,
    };
    Ok(names.into_iter().zip(parts).collect())
}

/// A module's path in MLX's models, by which their configuration names it.
fn mlx_path(module: &str) -> String {
    const PREFIXES: [(&str, &str); 3] = [
        ("model.language_model.", "language_model.model."),
        ("model.visual.", "vision_tower."),
        ("model.layers.", "model.layers."),
    ];
    let renamed = PREFIXES
        .iter()
        .find_map(|(prefix, to)| Some(format!("{to}{}", module.strip_prefix(prefix)?)));
    renamed.unwrap_or_else(|| match module.strip_prefix("model.") {
        Some(rest)
            if rest.contains("_tower.") || rest.starts_with("embed_") && rest.contains('.') =>
        {
            rest.to_owned()
        }
        _ => module.to_owned(),
    })
}

fn quantised(
    module: &str,
    array: &Array,
    quantization: Quantization,
    dtype: &str,
) -> Result<Vec<Stored>> {
    let tensors = quantize(array, quantization)?;
    let scales = if quantization.has_biases() {
        dtype
    } else {
        "U8"
    };
    let mut parts = vec![
        stored(format!("{module}.weight"), &tensors.weight, "U32")?,
        stored(format!("{module}.scales"), &tensors.scales, scales)?,
    ];
    if let Some(biases) = &tensors.biases {
        parts.push(stored(format!("{module}.biases"), biases, dtype)?);
    }
    Ok(parts)
}

/// A tensor's bytes, row-major.
fn stored(name: String, array: &Array, dtype: &str) -> Result<Stored> {
    let rows = array.contiguous()?;
    rows.eval()?;
    let shape = rows.shape().iter().map(|&extent| extent as usize).collect();
    let view = HostView::new(rows)?;
    let first = view.first_byte();
    let length = view
        .shape()
        .iter()
        .map(|&extent| extent as usize)
        .product::<usize>();
    let bytes = &view.bytes()[first..first + length * view.item_size()];
    Ok(Stored {
        name,
        dtype: dtype.to_owned(),
        shape,
        bytes: bytes.to_vec(),
    })
}

/// Everything but weights, with the quantisation in `config.json`, in both places where MLX's
/// tools look for it.
fn copy_settings(
    folder: &Path,
    output: &Path,
    quantization: Quantization,
    overrides: Map<String, Value>,
) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(|source| Error::file(folder, source))?;
    for entry in entries {
        let path = entry.map_err(|source| Error::file(folder, source))?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_weights =
            name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
        if path.is_file() && !is_weights {
            let target = output.join(&name);
            fs::copy(&path, &target).map_err(|source| Error::file(&target, source))?;
        }
    }
    let path = output.join("config.json");
    let mut config: BTreeMap<String, Value> = read_json(&path)?;
    let mut settings = description(quantization);
    if let Value::Object(settings) = &mut settings {
        settings.extend(overrides);
    }
    config.insert("quantization".to_owned(), settings.clone());
    config.insert("quantization_config".to_owned(), settings);
    let text = serde_json::to_string_pretty(&config)
        .map_err(|error| Error::bad_file(&path, error.to_string()))?;
    fs::write(&path, text + "\n").map_err(|source| Error::file(&path, source))
}

fn description(quantization: Quantization) -> Value {
    json!({
        "group_size": quantization.group_size(),
        "bits": quantization.bits(),
        "mode": quantization.mode(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_mlx_paths() {
        for (stored, expected) in [
            (
                "model.language_model.layers.0.mlp.up_proj",
                "language_model.model.layers.0.mlp.up_proj",
            ),
            (
                "model.language_model.embed_tokens",
                "language_model.model.embed_tokens",
            ),
            (
                "model.vision_tower.encoder.layers.0.mlp.up_proj.linear",
                "vision_tower.encoder.layers.0.mlp.up_proj.linear",
            ),
            (
                "model.embed_vision.embedding_projection",
                "embed_vision.embedding_projection",
            ),
            (
                "model.visual.blocks.0.attn.qkv",
                "vision_tower.blocks.0.attn.qkv",
            ),
            ("model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj"),
            ("model.embed_tokens", "model.embed_tokens"),
            (
                "language_model.model.layers.0.mlp.up_proj",
                "language_model.model.layers.0.mlp.up_proj",
            ),
            ("lm_head", "lm_head"),
        ] {
            assert_eq!(mlx_path(stored), expected);
        }
    }

    #[test]
    fn fused_experts_become_stacks() {
        assert_eq!(
            fused_parts("model.language_model.layers.1.experts.gate_up_proj").unwrap()[1],
            "model.language_model.layers.1.experts.switch_glu.up_proj.weight"
        );
        assert_eq!(
            fused_parts("model.language_model.layers.1.mlp.experts.down_proj").unwrap(),
            ["model.language_model.layers.1.mlp.switch_mlp.down_proj.weight"]
        );
        assert_eq!(fused_parts("model.layers.1.mlp.down_proj.weight"), None);
    }
}
