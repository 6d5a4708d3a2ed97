"""Writes goldens/sampling.json: what mlx-lm's filters and penalties (typical: mlx-vlm's) make of
fixed logits. Dropped tokens are null."""

import importlib.metadata
import json
import math
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm import sample_utils as lm
from mlx_vlm import sample_utils as vlm

from weights import generate

mx.set_default_device(mx.cpu)
HERE = Path(__file__).resolve().parent
VOCAB = 64
RECENT = [3, 9, 3, 41, 9, 3, 17, 63, 0, 5, 5, 5]


def row(array):
    return [float(v) if math.isfinite(v) else None for v in np.array(array, np.float32).reshape(-1)]


def main():
    cases = []
    for seed, scale in ((1, 1.0), (2, 4.0), (3, 12.0)):
        logits = mx.array(generate(seed, "logits", [VOCAB], 0.0, scale))
        logprobs = logits - mx.logsumexp(logits)
        bias = {3: 2.5, 17: -100.0}
        filters = {
            "top_p 0.3": lm.apply_top_p(logprobs, 0.3),
            "top_p 0.9": lm.apply_top_p(logprobs, 0.9),
            "min_p 0.05": lm.apply_min_p(logprobs, 0.05),
            "min_p 0.5": lm.apply_min_p(logprobs, 0.5),
            "top_k 1": lm.apply_top_k(logprobs, 1),
            "top_k 10": lm.apply_top_k(logprobs, 10),
            "typical_p 0.2": vlm.apply_typical_p(logprobs, 0.2),
            "typical_p 0.8": vlm.apply_typical_p(logprobs, 0.8),
            # A probability of 1 always acts.
            "xtc 0.02": lm.apply_xtc(logprobs, 1.0, 0.02, []),
            "xtc 0.1": lm.apply_xtc(logprobs, 1.0, 0.1, []),
            "top_p 0.9, min_p 0.05, top_k 5": lm.apply_top_k(
                lm.apply_min_p(lm.apply_top_p(logprobs, 0.9), 0.05), 5
            ),
        }
        settings = {
            "repetition 1.3": {"repetition_penalty": 1.3},
            "presence 0.7": {"presence_penalty": 0.7},
            "frequency 0.4": {"frequency_penalty": 0.4},
            "context 4": {
                "repetition_penalty": 1.3,
                "repetition_context_size": 4,
                "presence_penalty": 0.7,
                "presence_context_size": 4,
                "frequency_penalty": 0.4,
                "frequency_context_size": 4,
            },
            "bias and all": {
                "logit_bias": bias,
                "repetition_penalty": 1.3,
                "presence_penalty": 0.7,
                "frequency_penalty": 0.4,
            },
        }
        penalised = {}
        for name, keywords in settings.items():
            changed = mx.array(logits)[None]
            for processor in lm.make_logits_processors(**keywords):
                changed = processor(mx.array(RECENT), changed)
            penalised[name] = row(changed)
        cases.append(
            {
                "logits": row(logits),
                "logprobs": row(logprobs),
                "filters": {name: row(found) for name, found in filters.items()},
                "penalties": penalised,
            }
        )
    document = {
        "reference": {n: importlib.metadata.version(n) for n in ("mlx", "mlx-lm", "mlx-vlm")},
        "recent": RECENT,
        "cases": cases,
    }
    (HERE / "goldens" / "sampling.json").write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
