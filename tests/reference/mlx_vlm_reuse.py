"""The time to the first token with mlx-vlm's prefix cache (APC), for docs/performance/reuse.md.

    mlx_vlm_reuse.py MODEL TOKENS [ROUNDS]

As crates/engine/examples/reuse_speed.rs does it: ids from the same generator, a prompt computed
without the cache, for the first time with it, again from memory, and again by a new manager from
the files that the first one wrote. Medians, and how many tokens were found. Its settings are its
defaults. mlx-vlm 0.7.6.
"""

import sys
import tempfile
import time
from statistics import median

import mlx.core as mx
from mlx_vlm import load
from mlx_vlm.apc import from_env
from mlx_vlm.generate import stream_generate

from mlx_lm_reuse import ids


def manager(folder):
    settings = {"enabled": True, "disk_path": folder}
    return from_env(model_namespace="speed", overrides=settings)


def first_token(model, processor, prompt, apc):
    """Seconds until the first token, and how many tokens of the prompt were found."""
    start = time.perf_counter()
    stream = stream_generate(
        model, processor, "", input_ids=mx.array([prompt]), max_tokens=1, apc_manager=apc
    )
    result = next(stream)
    seconds = time.perf_counter() - start
    for _ in stream:
        pass
    return seconds, getattr(result, "cached_tokens", None)


def main(path, tokens, rounds=3):
    model, processor = load(path)
    rows = []
    for round_ in range(rounds + 1):
        prompt = ids(tokens, round_ + 2)
        with tempfile.TemporaryDirectory() as folder:
            cold = first_token(model, processor, prompt, None)
            apc = manager(folder)
            first = first_token(model, processor, prompt, apc)
            memory = first_token(model, processor, prompt, apc)
            apc.disk.flush()
            disk = first_token(model, processor, prompt, manager(folder))
        # The first round makes kernels.
        if round_:
            rows.append([cold, first, memory, disk])
    for index, way in enumerate(["cold", "first", "memory", "disk"]):
        seconds = median(row[index][0] for row in rows)
        print(f"mlx-vlm, {tokens} tokens, {way}: {seconds:.4f} s, found {rows[-1][index][1]}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:]))
