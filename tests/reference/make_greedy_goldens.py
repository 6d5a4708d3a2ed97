"""Writes goldens/greedy/MODEL-WEIGHTS[-image].json: 200 greedy ids of mlx-lm, or of mlx-vlm where
there is a picture, also with weights that the engine's example `quantize` made, which this shows
that both read.

usage: make_greedy_goldens.py [NAME...]

QUANTIZE names the executable (default: target/release/examples/quantize of this repository).

Random models have near ties, which the rounding of another order of operations would decide. The
first of several prompts is taken at whose closest step the best logit leads by a hundred times
(`MARGIN`) what right implementations in f32 differ by (2e-5 to 6e-5: README.md; mlx-lm's Qwen3.5
differs by more, for its epsilon: QWEN.md). An answer that runs in a circle is left out, and so is one
with ids that the references take in different ways.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx_lm.utils
import mlx_vlm.utils
import numpy as np
from mlx_lm.generate import generate_step as generate_text
from mlx_vlm.generate import generate_step

import mlx_vlm_reference as mlx
import qwen_reference as qwen
import transformers_reference as hf
from cases import image, text, user
from make_goldens import have_one_meaning
from mlx_vlm_bits import correct_length
from speed_inputs import text as spread
from weights import build_checkpoint

# Importing mlx_vlm_bits turns compiled kernels off, for everything here.

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
QUANTIZE = os.environ.get("QUANTIZE", REPOSITORY / "target/release/examples/quantize")

STEPS = 200
PROMPT = 48
MARGIN = 5e-3
DISTINCT = 40
PROMPTS = 48

# What is asked of `quantize`; the test `greedy` of crates/engine asks the same.
WEIGHTS = {
    "f32": None,
    "affine4": ["--bits", "4", "--group-size", "32"],
    "mixed": ["--bits", "4", "--group-size", "32", "--override", "*.down_proj=8,32"],
    "mxfp4": ["--mode", "mxfp4"],
    "nvfp4": ["--mode", "nvfp4"],
}
TEXT = {
    "gemma3_text": ["f32", "affine4", "mixed", "mxfp4"],
    "gemma4_e2b": ["f32", "affine4"],
    "gemma4_26b": ["f32", "affine4"],
    "qwen3": ["f32", "affine4", "nvfp4"],
    "qwen3_5": ["f32", "affine4"],
    "qwen3_5_moe": ["f32", "affine4"],
}
# Those on whose pictures mlx-vlm is right (README.md, "Where mlx-vlm is wrong").
PICTURES = {
    "gemma4_e2b": ["f32", "affine4"],
    "qwen3_vl": ["f32", "affine4"],
    "qwen3_5": ["f32", "affine4"],
}
CASES = {f"{model}-{weights}": (model, weights) for model, of in TEXT.items() for weights in of}
CASES |= {
    f"{model}-{weights}-image": (model, weights) for model, of in PICTURES.items() for weights in of
}
WORDS = ["square", "circle", "colour", "light", "shape", "edge"]
QUESTIONS = ["Which {} is largest?", "Where is the {}?", "Describe every {}.", "Is there a {}?",
             "How many times do you see a {} here?", "The {} is", "What of the {}?", "Name a {}."]  # fmt: skip


def accept_no_global_scale():
    """mlx-lm 0.32.2 names an argument that MLX 0.32.2 does not have yet; it is always None."""
    gather = mx.gather_qmm

    def call(*arguments, global_scale=None, **rest):
        assert global_scale is None
        return gather(*arguments, **rest)

    mx.gather_qmm = call


def checkpoint(folder, model, weights):
    """The described checkpoint, in f32 or as the engine quantises it."""
    plain = build_checkpoint(model, Path(folder) / "f32")
    if WEIGHTS[weights] is None:
        return plain
    out = Path(folder) / weights
    command = [QUANTIZE, "--model", plain, "--output", out, *WEIGHTS[weights]]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out


def read(steps):
    """The ids of a generator, and the smallest lead of a best logit."""
    ids, margins = [], []
    for token, logprobs in steps:
        top = np.sort(np.array(logprobs.astype(mx.float32)).reshape(-1))
        margins.append(float(top[-1] - top[-2]))
        ids.append(int(token))
    assert len(ids) == STEPS
    return ids, min(margins)


def of_mlx_lm(folder, model_name):
    """Answers of mlx-lm to spread ids."""
    model, _ = mlx_lm.utils.load_model(folder, strict=False)
    for start in range(PROMPTS):
        ids = spread(folder, PROMPT + start)["ids"][start:]
        steps = generate_text(mx.array(ids), model, max_tokens=STEPS)
        yield {"messages": [], "prompt": "", "prompt_ids": ids.tolist()}, *read(steps)


def of_mlx_vlm(folder, model_name):
    """Answers of mlx-vlm to questions about a picture."""
    is_qwen = model_name.startswith("qwen")
    module = qwen if is_qwen else hf
    processor = module.load_processor(folder)
    model = mlx_vlm.utils.load_model(folder)
    if model_name.startswith("qwen3_5"):
        correct_length(model)
    questions = [question.format(word) for word in WORDS for question in QUESTIONS]
    for question in questions[:PROMPTS]:
        messages = [user(image("photo.png"), text(question))]
        prompt, inputs = module.prepare(processor, messages)
        tensors = {name: mx.array(value.numpy()) for name, value in inputs.items()}
        ids = tensors.pop("input_ids")
        mask, pixels = tensors.pop("attention_mask", None), tensors.pop("pixel_values")
        steps = generate_step(
            ids, model, pixels, mask, max_tokens=STEPS, temperature=0.0, **tensors
        )
        yield {"messages": messages, "prompt": prompt, "prompt_ids": ids[0].tolist()}, *read(steps)


def make(name):
    model, weights = CASES[name]
    answers = of_mlx_vlm if name.endswith("-image") else of_mlx_lm
    peer = "mlx-vlm" if name.endswith("-image") else "mlx-lm"
    with tempfile.TemporaryDirectory() as folder:
        made = checkpoint(folder, model, weights)
        config = json.loads((made / "config.json").read_text())
        for prompt, ids, margin in answers(made, model):
            if margin >= MARGIN and len(set(ids)) >= DISTINCT and have_one_meaning(ids, config):
                break
        else:
            sys.exit(f"{name}: no prompt has a margin of {MARGIN}")
    golden = {
        "model": model,
        "case": name,
        "weights": weights,
        "reference": mlx.versions() | {"peer": peer},
        **prompt,
        "smallest_margin": float(f"{margin:.2e}"),
        "distinct_ids": len(set(ids)),
        "greedy_ids": ids,
    }
    lines = ",\n ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items())
    path = HERE / "goldens" / "greedy" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{{\n {lines}\n}}\n")
    print(f"{name}: margin {margin:.1e}, {len(set(ids))} distinct ids", flush=True)


if __name__ == "__main__":
    accept_no_global_scale()
    for name in sys.argv[1:] or CASES:
        make(name)
