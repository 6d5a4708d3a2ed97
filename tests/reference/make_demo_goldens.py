"""Asks the demo's model every question of assets/demo/shapes.json, and writes goldens/demo/.

In f32 and in bf16; fails when an answer is wrong.
"""

import json
from pathlib import Path

import numpy as np
import torch

import cases
import mlx_vlm_reference as mlx
import transformers_reference as hf
from check_goldens import TOLERANCE
from make_goldens import largest, scientific, smallest_margin, write

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODEL = ROOT / "assets" / "demo-model"
PICTURE = "../../assets/demo/shapes.png"
LONGEST_ANSWER = 70
# The tasks whose logits are kept: the longest answer, a short one, one that compares two shapes.
KEPT = ("list", "colour", "bigger")


def answer(model, inputs, end):
    """The greedy ids up to and with the end of the turn, and their logits."""
    ids, logits = hf.greedy(model, inputs, LONGEST_ANSWER)
    count = ids.index(end) + 1
    return ids[:count], logits[:count].float().numpy()


def main():
    document = json.loads((ROOT / "assets" / "demo" / "shapes.json").read_text())
    config = json.loads((MODEL / "config.json").read_text())
    end = config["eos_token_id"][1]
    processor = hf.load_processor(MODEL)
    models = {dtype: hf.load(MODEL, dtype) for dtype in (torch.float32, torch.bfloat16)}
    model64 = hf.load(MODEL, torch.float64)
    mlx_model = mlx.load(MODEL)
    (HERE / "goldens" / "demo").mkdir(parents=True, exist_ok=True)
    kept = set()
    for entry in document["questions"]:
        image = {"type": "image", "image": PICTURE}
        messages = [cases.user(image, cases.text(entry["question"]))]
        prompt, inputs = hf.prepare(processor, messages)
        ids, logits = answer(models[torch.float32], inputs, end)
        inputs16 = hf.cast(inputs, torch.bfloat16)
        ids16, logits16 = answer(models[torch.bfloat16], inputs16, end)
        on_mlx = mlx.logits(mlx_model, inputs)[-1]
        texts = [
            processor.tokenizer.decode(i, skip_special_tokens=True).strip() for i in (ids, ids16)
        ]
        print(
            entry["task"], "|", entry["question"], "|", *texts,
            f"| bf16 {largest(logits16[0], logits[0]):.2f}",
            f"| mlx-vlm bf16 {largest(on_mlx, logits[0]):.2f}",
            f"| margin {smallest_margin(logits):.2f}",
            flush=True,
        )  # fmt: skip
        assert texts == [entry["answer"]] * 2, entry
        if entry["task"] not in KEPT or entry["task"] in kept:
            continue
        kept.add(entry["task"])
        prompt_ids = inputs["input_ids"][0].tolist()
        with hf.doubles():
            exact = hf.forced(model64, hf.cast(inputs, torch.float64), ids).numpy()
        features = hf.features(models[torch.float32], inputs)["image"][0].numpy()
        golden = {
            "model": "demo",
            "case": entry["task"],
            "reference": {
                **hf.versions(), "dtype": "float32", "attention": "eager", "pixels": "Pillow",
            },
            "messages": messages,
            "prompt": prompt,
            "prompt_ids": prompt_ids,
            "spans": hf.spans(prompt_ids, config),
            "images": hf.image_inputs(inputs),
            "greedy_ids": ids,
            "greedy_ids_bf16": ids16,
            "text": texts[0],
            "tolerance": TOLERANCE,
            "measured": {
                "logit_std": round(float(logits.std()), 3),
                "logit_abs_max": round(float(np.abs(logits).max()), 3),
                "smallest_margin": scientific(smallest_margin(logits)),
                "f32_against_f64": scientific(largest(logits, exact)),
                "bf16_against_f32_first_step": scientific(largest(logits16[0], logits[0])),
            },
            "mlx_vlm": {
                **mlx.versions(),
                "dtype": "bfloat16",
                "largest_difference_first_step": scientific(largest(on_mlx, logits[0])),
            },
        }  # fmt: skip
        tensors = {"logits": logits, "logits_bf16": logits16[0], "features.0": features}
        write(HERE / "goldens" / "demo" / entry["task"], golden, tensors)
    assert kept == set(KEPT), kept


if __name__ == "__main__":
    main()
