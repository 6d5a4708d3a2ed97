"""Writes the Qwen goldens from transformers, checked against mlx-vlm.

usage: make_qwen_goldens.py [MODEL [CASE...]]
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import mlx_vlm_reference as mlx
import qwen_cases as cases
import qwen_reference as qwen
import transformers_reference as hf
from check_goldens import TOLERANCE
from make_goldens import check_ids, figures, in_order, largest, scientific, smallest_margin, write
from weights import build_checkpoint

HERE = Path(__file__).resolve().parent


def mlx_vlm_tolerance(model):
    """Qwen3.5: mlx-vlm's epsilon in the norm of keys and queries is 128 times transformers' in the
    published sizes (here 32 times), which small vectors show."""
    return 2e-3 if model.startswith("qwen3_5") else TOLERANCE


def mlx_vlm_is_wrong(model, case):
    """See "Where mlx-vlm is wrong" in README.md."""
    if model == "qwen3_vl_moe":
        return "image" in case or "video" in case
    return model.startswith("qwen3_5") and case == "image_video"


def inputs_of(processor, name):
    if name in cases.IDS:
        return [], [], "", qwen.bare(cases.IDS[name])
    messages, patches = cases.CASES[name]
    return messages, patches, *qwen.prepare(processor, messages)


def mlx_logits(model, inputs, ids, wrong):
    """mlx-vlm's, or nothing where it fails."""
    try:
        return mlx.logits(model, qwen.extended(inputs, ids))[-len(ids) :]
    except ValueError:
        assert wrong
        return None


def make(model_name, name):
    patches = cases.CASES.get(name, ([], []))[1]
    with tempfile.TemporaryDirectory() as folder:
        build_checkpoint(model_name, folder, patches)
        config = json.loads((Path(folder) / "config.json").read_text())
        sees = "vision_config" in config
        processor = qwen.load_processor(folder)
        messages, patches, prompt, inputs = inputs_of(processor, name)
        model, model16, model64 = (
            hf.load(folder, dtype) for dtype in (torch.float32, torch.bfloat16, torch.float64)
        )
        mlx_model = mlx.load(folder) if sees else mlx.load_text(folder)

    prompt_ids = inputs["input_ids"][0].tolist()
    found_spans = hf.spans(prompt_ids, {"audio_token_id": None, **config}) if sees else []
    positions, delta = qwen.position_ids(model, inputs)
    ids, logits = qwen.greedy(model, inputs)
    logits = logits.numpy()
    check_ids(name, ids, config)
    assert smallest_margin(logits) > 10 * TOLERANCE, name
    forced = qwen.forced(model, inputs, ids).numpy()
    features = in_order(qwen.features(model, inputs), found_spans)
    tensors = {"logits": logits} | {f"features.{i}": rows for i, rows in enumerate(features)}

    in_bf16 = qwen.forced(model16, hf.cast(inputs, torch.bfloat16), ids).float().numpy()
    with hf.doubles():
        inputs64 = hf.cast(inputs, torch.float64)
        exact = qwen.forced(model64, inputs64, ids).numpy()
        exact_features = in_order(qwen.features(model64, inputs64), found_spans)
    wrong = mlx_vlm_is_wrong(model_name, name)
    on_mlx = mlx_logits(mlx_model, inputs, ids, wrong)
    if not wrong:
        tensors["mlx_vlm_logits"] = on_mlx[0]

    measured = figures(logits, forced, exact, in_bf16, features, exact_features) | {
        "bf16_against_f32_rms": scientific(float(np.sqrt(((in_bf16 - logits) ** 2).mean()))),
    }
    print(model_name, name, ids, measured, flush=True)
    assert largest(logits, forced) < TOLERANCE, name
    assert largest(logits, exact) < TOLERANCE, name
    allowed = mlx_vlm_tolerance(model_name)
    second = {**mlx.versions(), "right": not wrong, "tolerance": allowed}
    if on_mlx is not None:
        second["largest_difference_first_step"] = scientific(largest(on_mlx[0], logits[0]))
        second["largest_difference"] = scientific(largest(on_mlx, logits))
        second["same_greedy_ids"] = on_mlx.argmax(-1).tolist() == ids
    print(second, flush=True)
    assert wrong or second["largest_difference"] < allowed, name
    golden = {
        "model": model_name,
        "case": name,
        "reference": {**hf.versions(), "dtype": "float32", "attention": "eager", "pixels": "Pillow"},
        "patches": patches,
        "messages": messages,
        "prompt": prompt,
        "prompt_ids": prompt_ids,
        "spans": found_spans,
        "position_ids": positions.tolist(),
        "rope_delta": delta,
        **qwen.media_inputs(inputs),
        "greedy_ids": ids,
        "text": (getattr(processor, "tokenizer", processor)).decode(ids, skip_special_tokens=True),
        "tolerance": TOLERANCE,
        "measured": measured,
        "mlx_vlm": second,
    }
    write(HERE / "goldens" / model_name / name, golden, tensors)
    return golden


def main():
    models = sys.argv[1:2] or list(cases.MODELS)
    for model in models:
        for name in sys.argv[2:] or cases.MODELS[model]:
            make(model, name)


if __name__ == "__main__":
    main()
