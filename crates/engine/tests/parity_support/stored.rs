//! Checkpoints stored otherwise than Hugging Face's.

use std::path::Path;

use prefill_test_support::StoredTensor;
use safetensors::tensor::Dtype;

const WEIGHTS: &str = "model.safetensors";

pub(crate) fn read(folder: &Path) -> Vec<StoredTensor> {
    StoredTensor::read_file(&folder.join(WEIGHTS)).unwrap()
}

pub(crate) fn write(folder: &Path, tensors: &[StoredTensor]) {
    StoredTensor::write_file(tensors, &folder.join(WEIGHTS)).unwrap();
}

pub(crate) fn values(tensor: &StoredTensor) -> Vec<f32> {
    assert_eq!(tensor.dtype, Dtype::F32);
    let (values, _) = tensor.bytes.as_chunks::<4>();
    values
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect()
}

fn with(name: String, shape: Vec<usize>, values: &[f32]) -> StoredTensor {
    assert_eq!(shape.iter().product::<usize>(), values.len());
    StoredTensor {
        name,
        dtype: Dtype::F32,
        shape,
        bytes: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    }
}

/// As mlx-vlm saves a model: its names, channels last in kernels, norms as factors, experts in
/// three stacks.
pub(crate) fn to_mlx(tensors: Vec<StoredTensor>, model: &str) -> Vec<StoredTensor> {
    tensors
        .into_iter()
        .flat_map(|tensor| experts(tensor, model, stacked))
        .map(|mut tensor| {
            tensor.name = mlx_name(&tensor.name);
            if tensor.name.ends_with("patch_embed.proj.weight") {
                let [hidden, channels, time, rows, columns] = tensor.shape[..] else {
                    panic!("{:?}", tensor.shape);
                };
                let area = time * rows * columns;
                let old = values(&tensor);
                let at = |i: usize| {
                    let (row, rest) = (i / (area * channels), i % (area * channels));
                    old[row * area * channels + rest % channels * area + rest / channels]
                };
                let turned: Vec<f32> = (0..old.len()).map(at).collect();
                let shape = vec![hidden, time, rows, columns, channels];
                return with(tensor.name, shape, &turned);
            }
            if tensor.name.ends_with("conv1d.weight") {
                tensor.shape.swap(1, 2);
            }
            if model.starts_with("qwen3_5") && is_text_norm(&tensor.name) {
                let factors: Vec<f32> = values(&tensor).iter().map(|value| value + 1.0).collect();
                return with(tensor.name, tensor.shape, &factors);
            }
            tensor
        })
        .collect()
}

fn mlx_name(name: &str) -> String {
    for (prefix, to) in [
        ("model.language_model.", "language_model.model."),
        ("model.visual.", "vision_tower."),
        ("lm_head.", "language_model.lm_head."),
    ] {
        if let Some(rest) = name.strip_prefix(prefix) {
            return format!("{to}{rest}");
        }
    }
    panic!("{name}");
}

fn is_text_norm(name: &str) -> bool {
    name.starts_with("language_model.model.")
        && !name.contains("linear_attn")
        && (name.ends_with("norm.weight"))
}

/// Makes of a layer's path, a part's name, and each expert's matrix with its `[out, in]`, the
/// tensors that hold them.
pub(crate) type Form = fn(&str, &str, &[Vec<f32>], [usize; 2]) -> Vec<StoredTensor>;

/// Experts in another form; what they are not stays.
pub(crate) fn experts(tensor: StoredTensor, model: &str, form: Form) -> Vec<StoredTensor> {
    let Some((path, part)) = tensor.name.split_once("experts.") else {
        return vec![tensor];
    };
    let is_turned = model == "qwen3_vl_moe";
    let count = tensor.shape[0];
    let (out, input) = if is_turned {
        (tensor.shape[2], tensor.shape[1])
    } else {
        (tensor.shape[1], tensor.shape[2])
    };
    let all = values(&tensor);
    let matrix = |expert: usize| -> Vec<f32> {
        let stored = &all[expert * out * input..][..out * input];
        if !is_turned {
            return stored.to_vec();
        }
        let at = |i: usize| stored[i % input * out + i / input];
        (0..out * input).map(at).collect()
    };
    let matrices: Vec<Vec<f32>> = (0..count).map(matrix).collect();
    if part == "down_proj" {
        return form(path, "down_proj", &matrices, [out, input]);
    }
    let half = |first: bool| -> Vec<Vec<f32>> {
        let cut = |matrix: &Vec<f32>| {
            let (gate, up) = matrix.split_at(out / 2 * input);
            if first { gate.to_vec() } else { up.to_vec() }
        };
        matrices.iter().map(cut).collect()
    };
    let mut parts = form(path, "gate_proj", &half(true), [out / 2, input]);
    parts.extend(form(path, "up_proj", &half(false), [out / 2, input]));
    parts
}

/// One stack a part, as MLX stores them.
pub(crate) fn stacked(
    path: &str,
    part: &str,
    matrices: &[Vec<f32>],
    [out, input]: [usize; 2],
) -> Vec<StoredTensor> {
    let name = format!("{path}switch_mlp.{part}.weight");
    vec![with(
        name,
        vec![matrices.len(), out, input],
        &matrices.concat(),
    )]
}

/// One tensor an expert, as transformers saves them.
pub(crate) fn one_by_one(
    path: &str,
    part: &str,
    matrices: &[Vec<f32>],
    shape: [usize; 2],
) -> Vec<StoredTensor> {
    let one = |(expert, matrix): (usize, &Vec<f32>)| {
        let name = format!("{path}experts.{expert}.{part}.weight");
        with(name, shape.to_vec(), matrix)
    };
    matrices.iter().enumerate().map(one).collect()
}
