"""mlx-lm's prefill and decode speed on a checkpoint, text alone, several times in one process.

usage: mlx_lm_speed.py CHECKPOINT INPUTS DECODED_TOKENS [ANSWERS]    (needs mlx-lm 0.32.2)

INPUTS is a safetensors file with `ids`, which `speed_inputs.py` writes. Writes one JSON object an
answer; `speed_rounds.py` reads them.
"""

import json
import pathlib
import sys
import time

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

CHUNK = 512

model, _ = load_model(pathlib.Path(sys.argv[1]), strict=False)
ids = mx.load(sys.argv[2])["ids"]
decoded, answers = (int(argument) for argument in (sys.argv[3:] + [3])[:2])
for _ in range(answers):
    start, first = time.perf_counter(), None
    for _ in generate_step(ids, model, max_tokens=decoded, prefill_step_size=CHUNK):
        first = first or time.perf_counter()
    end = time.perf_counter()
    answer = {
        "prompt_tokens": ids.size,
        "decoded_tokens": decoded,
        "prefill_rate": ids.size / (first - start),
        "decode_rate": (decoded - 1) / (end - first),
        "peak_memory": mx.get_peak_memory(),
    }
    print(json.dumps(answer), flush=True)
