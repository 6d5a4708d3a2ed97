"""Writes goldens/MODEL/CASE.{json,safetensors} from transformers, checked against mlx-vlm.

usage: make_goldens.py [MODEL [CASE...]]
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

import cases
import mlx_vlm_reference as mlx
import transformers_reference as hf
from check_goldens import TOLERANCE
from weights import build_checkpoint

HERE = Path(__file__).resolve().parent


def mlx_vlm_is_wrong(model, case):
    """See "Where mlx-vlm is wrong" in README.md."""
    if model == "gemma4_e2b":
        return case == "two_sounds"
    return "image" in case or "video" in case


def largest(a, b):
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max())


def scientific(value):
    return float(f"{value:.2e}")


def smallest_margin(logits):
    """How far the second best id is behind at the closest step."""
    top = np.sort(logits, -1)
    return float((top[:, -1] - top[:, -2]).min())


def have_one_meaning(ids, config):
    """Whether the references agree on what every id means."""
    media = {config.get(f"{kind}_token_id") for kind in ("image", "audio", "video")}
    text = config.get("text_config", config)
    limit = text.get("vocab_size_per_layer_input") or text["vocab_size"]
    return max(ids) < limit and media.isdisjoint(ids)


def check_ids(name, ids, config):
    """Ids of several meanings, or the same again and again, would make a golden of no use."""
    assert have_one_meaning(ids, config), (name, ids)
    assert len(set(ids)) > len(ids) // 3, (name, ids)


def in_order(by_kind, found_spans):
    """The features of each span."""
    queues = {kind: list(rows) for kind, rows in by_kind.items()}
    found = [queues[span["kind"]].pop(0).numpy() for span in found_spans]
    assert [len(rows) for rows in found] == [span["length"] for span in found_spans]
    return found


def figures(logits, forced, exact, in_bf16, features, exact_features):
    return {
        "logit_std": round(float(logits.std()), 3),
        "logit_abs_max": round(float(np.abs(logits).max()), 3),
        "smallest_margin": scientific(smallest_margin(logits)),
        "cached_against_uncached": scientific(largest(logits, forced)),
        "f32_against_f64": scientific(largest(logits, exact)),
        "features_f32_against_f64": [
            scientific(largest(a, b)) for a, b in zip(features, exact_features)
        ],
        "bf16_against_f32": scientific(largest(in_bf16, logits)),
    }


def make(model_name, name):
    messages, patches = cases.CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        build_checkpoint(model_name, folder, patches)
        config = json.loads((Path(folder) / "config.json").read_text())
        model, processor = hf.load(folder), hf.load_processor(folder)
        prompt, inputs = hf.prepare(processor, messages)
        model16, model64 = (hf.load(folder, dtype) for dtype in (torch.bfloat16, torch.float64))
        mlx_model = mlx.load(folder)

    prompt_ids = inputs["input_ids"][0].tolist()
    found_spans = hf.spans(prompt_ids, config)
    ids, logits = hf.greedy(model, inputs)
    logits = logits.numpy()
    forced = hf.forced(model, inputs, ids).numpy()
    features = in_order(hf.features(model, inputs), found_spans)
    tensors = {"logits": logits} | {f"features.{i}": rows for i, rows in enumerate(features)}

    in_bf16 = hf.forced(model16, hf.cast(inputs, torch.bfloat16), ids).float().numpy()
    with hf.doubles():
        inputs64 = hf.cast(inputs, torch.float64)
        exact = hf.forced(model64, inputs64, ids).numpy()
        exact_features = in_order(hf.features(model64, inputs64), found_spans)
    on_mlx = mlx.logits(mlx_model, hf.extended(inputs, ids))[-len(ids) :]
    if not mlx_vlm_is_wrong(model_name, name):
        tensors["mlx_vlm_logits"] = on_mlx[0]

    check_ids(name, ids, config)
    # Rounding grows with the prompt: a thousand tokens have five times the noise of a hundred.
    tolerance = TOLERANCE if len(prompt_ids) < 1000 else 5 * TOLERANCE
    assert smallest_margin(logits) > 10 * tolerance, (name, smallest_margin(logits))
    assert largest(logits, forced) < tolerance, (name, largest(logits, forced))
    assert largest(logits, exact) < tolerance, (name, largest(logits, exact))
    if not mlx_vlm_is_wrong(model_name, name):
        assert largest(on_mlx, logits) < tolerance, (name, largest(on_mlx, logits))
    golden = {
        "model": model_name,
        "case": name,
        "reference": {**hf.versions(), "dtype": "float32", "attention": "eager", "pixels": "Pillow"},
        "patches": patches,
        "messages": messages,
        "prompt": prompt,
        "prompt_ids": prompt_ids,
        "spans": found_spans,
        "images": hf.image_inputs(inputs),
        "greedy_ids": ids,
        "text": processor.tokenizer.decode(ids, skip_special_tokens=True),
        "tolerance": tolerance,
        "measured": figures(logits, forced, exact, in_bf16, features, exact_features),
        "mlx_vlm": {
            **mlx.versions(),
            "right": not mlx_vlm_is_wrong(model_name, name),
            "largest_difference_first_step": scientific(largest(on_mlx[0], logits[0])),
            "largest_difference": scientific(largest(on_mlx, logits)),
            "same_greedy_ids": on_mlx.argmax(-1).tolist() == ids,
        },
    }
    write(HERE / "goldens" / model_name / name, golden, tensors)
    return golden


def write(path, golden, tensors):
    """One key a line, so that a difference between two versions can be read."""
    lines = ",\n ".join(
        f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in golden.items()
    )
    path.with_suffix(".json").write_text(f"{{\n {lines}\n}}\n", encoding="utf8")
    tensors = {k: np.ascontiguousarray(v, np.float32) for k, v in tensors.items()}
    save_file(tensors, path.with_suffix(".safetensors"))


def main():
    models = sys.argv[1:2] or list(cases.MODELS)
    for model in models:
        for name in sys.argv[2:] or cases.MODELS[model]:
            report(make(model, name))


def report(golden):
    measured, mlx_vlm = golden["measured"], golden["mlx_vlm"]
    print(
        f"{golden['model']} {golden['case']}: {len(golden['prompt_ids'])} tokens,"
        f" noise {measured['f32_against_f64']:.1e}, margin {measured['smallest_margin']:.1e},"
        f" mlx-vlm {mlx_vlm['largest_difference']:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
