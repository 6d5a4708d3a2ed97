"""mlx-vlm's logits on a Gemma 4 golden of text, for a comparison bit for bit: the test
`gemma4_bits` of `crates/engine` runs this with the BLAS that it uses itself.

usage: mlx_vlm_gemma4_bits.py CHECKPOINT GOLDEN.json OUT.safetensors

Tokens are fed one by one: in longer calls the engine takes only the last token through the layers
that share keys and values, and products of other shapes round otherwise. Besides, mlx-vlm is
changed

- where the engine chose another order of the same operations: GELU's tanh form is written as a
  sigmoid (`gelu`), and a full window's rows are attended to in the order of their tokens
  (`in_order`), where mlx-vlm leaves them as they lie in its ring;
- in that wavelengths come from f64 (`exact_wavelengths`): mlx-vlm's differ by a rounding;
- in that its kernels are not compiled: compiled ones call the C library's functions where MLX's
  operations have their own.

Pictures and sound are not compared: the engine takes the rotary tables of its towers from f64,
pools by a mean where mlx-vlm multiplies with a matrix of weights, and computes the unified
model's layer norms in f32 by means of means (README.md says why).
"""

import json
import math
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_vlm.models import cache as mlx_cache
from mlx_vlm.utils import load_model
from safetensors.numpy import save_file

mx.set_default_device(mx.cpu)
mx.disable_compile()

A = 2.0 * math.sqrt(2.0 / math.pi)
B = 0.044715 * A


def gelu(x):
    return mx.sigmoid((x.square() * B + A) * x) * x


def in_order():
    update = mlx_cache.RotatingKVCache.update_and_fetch

    def call(self, keys, values):
        kept = update(self, keys, values)
        if self.offset <= self.max_size:
            return kept
        return tuple(self._temporal_order(rows) for rows in kept)

    mlx_cache.RotatingKVCache.update_and_fetch = call


def exact_wavelengths(model, theta):
    """Proportional layers' wavelengths from f64, as the engine has them."""
    for layer in model.language_model.model.layers:
        rope = layer.self_attn.rope
        if hasattr(rope, "_freqs"):
            turning = np.arange(rope.rope_angles)
            exact = np.full(rope.dims // 2, np.inf)
            exact[turning] = theta ** (2.0 * turning / rope.dims)
            rope._freqs = mx.array(exact.astype(np.float32))


def main():
    folder, golden, out = sys.argv[1:]
    golden = json.loads(Path(golden).read_text())
    nn.gelu_approx = gelu
    in_order()
    model = load_model(Path(folder))
    config = json.loads((Path(folder) / "config.json").read_text())["text_config"]
    full = config["rope_parameters"]["full_attention"]
    exact_wavelengths(model, full["rope_theta"])
    caches = mlx_cache.make_prompt_cache(model.language_model)
    fed = golden["prompt_ids"] + golden["greedy_ids"][:-1]
    rows = []
    for token in fed:
        found = model.language_model(mx.array([[token]]), cache=caches).logits[0]
        mx.eval(found)
        rows.append(np.array(found))
    save_file({"logits": np.concatenate(rows[-len(golden["greedy_ids"]) :])}, out)


if __name__ == "__main__":
    main()
