"""mlx-lm's prefill and decode speed on a checkpoint, text only, three times in one process.

usage: mlx_lm_speed.py CHECKPOINT PROMPT_TOKENS DECODED_TOKENS    (needs mlx-lm 0.32.2)
"""

import pathlib
import sys
import time

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

model, _ = load_model(pathlib.Path(sys.argv[1]), strict=False)
prompt, decoded = int(sys.argv[2]), int(sys.argv[3])
ids = mx.array([(7919 * i) % 700 + 20 for i in range(prompt)])
for _ in range(3):
    start, first = time.perf_counter(), None
    for _ in generate_step(ids, model, max_tokens=decoded, prefill_step_size=512):
        first = first or time.perf_counter()
    end = time.perf_counter()
    print(f"prefill {prompt / (first - start):.0f}/s, decode {(decoded - 1) / (end - first):.1f}/s, "
          f"peak memory {mx.get_peak_memory() / 1e9:.2f} GB")
