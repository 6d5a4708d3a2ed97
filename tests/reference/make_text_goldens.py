"""Writes goldens/MODEL/CASE.{json,safetensors} of models of text alone, from transformers, checked
against mlx-lm.

usage: make_text_goldens.py [MODEL...]
"""

import importlib.metadata
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import numpy as np
import torch
from mlx_lm.models import cache as mlx_cache
from mlx_lm.utils import load_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import cases
import transformers_reference as hf
from check_goldens import TOLERANCE
from make_goldens import HERE, largest, scientific, smallest_margin, write
from weights import build_checkpoint

MODELS = ["gemma3_text"]
CASES = ["text", "longtext"]
STEPS = 16

mx.set_default_device(mx.cpu)


def load(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


@torch.no_grad()
def greedy(model, ids):
    """Greedy ids through the cache, ends of text ignored, and each step's logits."""
    out = model(input_ids=torch.tensor([ids]), use_cache=True)
    chosen, logits = [], []
    for _ in range(STEPS):
        logits.append(out.logits[0, -1])
        chosen.append(int(logits[-1].argmax()))
        step = torch.tensor([[chosen[-1]]])
        out = model(input_ids=step, cache=out.cache, use_cache=True)
    return chosen, torch.stack(logits).numpy()


@torch.no_grad()
def forced(model, ids):
    """The logits before each of the last steps, from one forward call without a cache."""
    out = model(input_ids=torch.tensor([ids]), use_cache=False)
    return out.logits[0, -STEPS:].float().numpy()


def mlx_logits(model, ids):
    out = model(mx.array([ids]), cache=mlx_cache.make_prompt_cache(model))
    return np.array(out[0, -STEPS:].astype(mx.float32))


def make(model_name, name):
    messages, patches = cases.CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        build_checkpoint(model_name, folder, patches)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model, model16, model64 = (
            load(folder, dtype) for dtype in (torch.float32, torch.bfloat16, torch.float64)
        )
        mlx_model, _ = load_model(Path(folder))
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenizer(prompt, add_special_tokens=False).input_ids
    ids, logits = greedy(model, prompt_ids)
    fed = prompt_ids + ids[:-1]
    with hf.doubles():
        exact = forced(model64, fed)
    on_mlx = mlx_logits(mlx_model, fed)
    assert len(set(ids)) > len(ids) // 3, (name, ids)
    assert smallest_margin(logits) > 10 * TOLERANCE, name
    for other in (forced(model, fed), exact, on_mlx):
        assert largest(logits, other) < TOLERANCE, (name, largest(logits, other))
    golden = {
        "model": model_name,
        "case": name,
        "reference": {**hf.versions(), "dtype": "float32", "attention": "eager"},
        "patches": patches,
        "messages": messages,
        "prompt": prompt,
        "prompt_ids": prompt_ids,
        "spans": [],
        "images": [],
        "greedy_ids": ids,
        "text": tokenizer.decode(ids, skip_special_tokens=True),
        "tolerance": TOLERANCE,
        "measured": {
            "logit_std": round(float(logits.std()), 3),
            "logit_abs_max": round(float(np.abs(logits).max()), 3),
            "smallest_margin": scientific(smallest_margin(logits)),
            "cached_against_uncached": scientific(largest(logits, forced(model, fed))),
            "f32_against_f64": scientific(largest(logits, exact)),
            "bf16_against_f32": scientific(largest(forced(model16, fed), logits)),
        },
        "mlx_lm": {
            **{name: importlib.metadata.version(name) for name in ("mlx", "mlx-lm")},
            "largest_difference": scientific(largest(on_mlx, logits)),
            "same_greedy_ids": on_mlx.argmax(-1).tolist() == ids,
        },
    }
    write(HERE / "goldens" / model_name / name, golden, {"logits": logits, "mlx_lm_logits": on_mlx})
    print(model_name, name, len(prompt_ids), golden["measured"], golden["mlx_lm"], flush=True)


def main():
    for model in sys.argv[1:] or MODELS:
        for name in CASES:
            make(model, name)


if __name__ == "__main__":
    main()
