"""mlx-vlm's logits on a Qwen golden, for a comparison bit for bit: the test `qwen_bits` of
`crates/engine` runs this with the BLAS that it uses itself.

usage: mlx_vlm_bits.py CHECKPOINT GOLDEN.json OUT.safetensors

The forward calls are the engine's: the prompt at once (Qwen3.5: token by token, since the two
divide longer chunks differently), then one a token, the head on the last row only, and each
picture through the tower on its own. Besides, mlx-vlm is changed

- where it is wrong (README.md, "Where mlx-vlm is wrong"): `correct_gelu`, `correct_length`;
- where the engine chose another order of the same operations, for its speed: `shift_rows`;
- in that its kernels are not compiled: compiled ones call the C library's functions where MLX's
  operations have their own.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_vlm.models import cache as mlx_cache
from mlx_vlm.utils import load_model
from safetensors.numpy import save_file

import qwen_reference as qwen

mx.set_default_device(mx.cpu)
mx.disable_compile()


def correct_gelu(model):
    tower = model.vision_tower
    for block in tower.blocks:
        block.mlp.act_fn = nn.GELU(approx="tanh")
    for merger in [tower.merger, *tower.deepstack_merger_list]:
        merger.act_fn = nn.GELU()


def correct_length(model):
    def normalize(self, q, k):
        size = k.shape[-1]
        scale = size**-0.5
        q = (scale**2) * mx.fast.rms_norm(q, None, 1e-6 / size)
        k = scale * mx.fast.rms_norm(k, None, 1e-6 / size)
        return q, k

    layers = [layer.linear_attn for layer in model.language_model.layers if layer.is_linear]
    type(layers[0])._normalize_qk = normalize


def shift_rows(self, x):
    """The depthwise convolution as a sum of shifted rows: 3 to 18 times as fast on the CPU, where
    MLX's own fuses multiplications and additions."""
    weight = self.weight[:, :, 0].T
    rows = x.shape[1] - weight.shape[0] + 1
    return sum((x[:, i : i + rows] * weight[i] for i in range(1, len(weight))), x[:, :rows] * weight[0])


def one_by_one(tower):
    """Each picture and frame group is encoded on its own, so that its features can be kept."""
    batched = type(tower).__call__

    def call(self, pixels, grids, **rest):
        start, rows, extra = 0, [], []
        for grid in grids.tolist():
            count = grid[0] * grid[1] * grid[2]
            found = batched(self, pixels[start : start + count], mx.array([grid]), **rest)
            rows.append(found[0])
            extra.append(found[1])
            start += count
        return mx.concatenate(rows), [mx.concatenate(parts) for parts in zip(*extra)]

    type(tower).__call__ = call


def load(folder, model_type):
    model = load_model(Path(folder))
    one_by_one(model.vision_tower)
    if model_type == "qwen3_vl_moe":
        correct_gelu(model)
    if model_type.startswith("qwen3_5"):
        correct_length(model)
        nn.Conv1d.__call__ = shift_rows
    return model


def embedded(model, inputs):
    inputs = {k: mx.array(v.numpy()) for k, v in inputs.items()}
    inputs.pop("attention_mask", None)
    ids = inputs.pop("input_ids")
    found = model.get_input_embeddings(ids, inputs.pop("pixel_values", None), **inputs).to_dict()
    return ids, {k: v for k, v in found.items() if v is not None}


def head(language, hidden):
    last = hidden[:, -1:, :]
    if language.args.tie_word_embeddings:
        return language.model.embed_tokens.as_linear(last)
    return language.lm_head(last)


def steps(model, inputs, fed):
    language = model.language_model
    ids, features = embedded(model, inputs)
    delta = int(features.pop("rope_deltas").reshape(-1)[0])
    caches = mlx_cache.make_prompt_cache(language)
    if hasattr(language.layers[0], "is_linear"):
        embeddings, positions = features["inputs_embeds"], features["position_ids"]
        positions = mx.broadcast_to(positions, (3, 1, ids.shape[1]))
        for t in range(ids.shape[1]):
            part = slice(t, t + 1)
            hidden = language.model(
                ids[:, part],
                inputs_embeds=embeddings[:, part],
                position_ids=positions[..., part],
                cache=caches,
            )
            mx.eval(hidden, [c.state for c in caches])
    else:
        hidden = language.model(ids, cache=caches, **features)
    found = [head(language, hidden)]
    for step, token in enumerate(fed):
        position = ids.shape[1] + step + delta
        at = mx.full((3, 1, 1), position, dtype=mx.int32)
        hidden = language.model(mx.array([[token]]), cache=caches, position_ids=at)
        found.append(head(language, hidden))
        mx.eval(found)
    return np.array(mx.concatenate(found, axis=1)[0])


def main():
    folder, golden, out = sys.argv[1:]
    golden = json.loads(Path(golden).read_text())
    config = json.loads((Path(folder) / "config.json").read_text())
    inputs = (
        qwen.prepare(qwen.load_processor(folder), golden["messages"])[1]
        if golden["messages"]
        else qwen.bare(golden["prompt_ids"])
    )
    assert inputs["input_ids"][0].tolist() == golden["prompt_ids"]
    model = load(folder, config["model_type"])
    save_file({"logits": steps(model, inputs, golden["greedy_ids"][:-1])}, out)


if __name__ == "__main__":
    main()
