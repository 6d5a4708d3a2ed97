"""mlx-vlm's logits on a Gemma 4 golden of text, for a comparison bit for bit: the test
`gemma4_bits` of `crates/engine` runs this with the BLAS that it uses itself.

usage: mlx_vlm_gemma4_bits.py CHECKPOINT GOLDEN.json OUT.safetensors

Tokens are fed one by one: in longer calls the engine takes only the last token through the layers
that share keys and values, and products of other shapes round otherwise. GELU's tanh form is
written as a sigmoid, as the engine writes it, and kernels are not compiled: compiled ones call
the C library's functions where MLX's operations have their own.

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


def main():
    folder, golden, out = sys.argv[1:]
    golden = json.loads(Path(golden).read_text())
    nn.gelu_approx = gelu
    model = load_model(Path(folder))
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
