"""The time to the first token with mlx-lm's prompt cache, for docs/performance/reuse.md.

    mlx_lm_reuse.py MODEL TOKENS [ROUNDS]

As crates/engine/examples/reuse_speed.rs does it: ids from the same generator, a prompt computed,
computed again but for its last token from a copy of its cache in memory (what mlx-lm's
`LRUPromptCache` gives), and the same from the file of `save_prompt_cache`, loaded anew. Medians.
mlx-lm 0.32.2.
"""

import copy
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import mlx.core as mx
from mlx_lm import load
from mlx_lm.models.cache import (
    can_trim_prompt_cache,
    load_prompt_cache,
    make_prompt_cache,
    save_prompt_cache,
    trim_prompt_cache,
)

STEP = 512


def ids(count, seed):
    """Random ids of text (SplitMix64), those of the example."""
    mask = (1 << 64) - 1
    state = seed * 0x9E3779B97F4A7C15 & mask
    out = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        out.append(300 + (z ^ (z >> 31)) % 120)
    return out


def feed(model, tokens, cache):
    """Feeds tokens in chunks; the id of the most likely next one, read."""
    for start in range(0, len(tokens), STEP):
        logits = model(mx.array([tokens[start : start + STEP]]), cache=cache)
        mx.eval([c.state for c in cache])
    return mx.argmax(logits[0, -1]).item()


def main(path, tokens, rounds=3):
    model, _ = load(path)
    times = {"cold": [], "memory": [], "disk": []}
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "cache.safetensors")
        for round_ in range(rounds + 1):
            prompt = ids(tokens, round_ + 2)

            def timed(what, run):
                started = time.perf_counter()
                result = run()
                if round_ > 0:
                    times[what].append(time.perf_counter() - started)
                return result

            cache = make_prompt_cache(model)
            first = timed("cold", lambda: feed(model, prompt, cache))
            if not can_trim_prompt_cache(cache):
                # A window was left: only a cache of one token less can be resumed.
                cache = make_prompt_cache(model)
                feed(model, prompt[:-1], cache)
            else:
                trim_prompt_cache(cache, 1)
            save_prompt_cache(file, cache)
            again = timed("memory", lambda: feed(model, prompt[-1:], copy.deepcopy(cache)))
            loaded = timed("disk", lambda: feed(model, prompt[-1:], load_prompt_cache(file)))
            assert again == loaded, (first, again, loaded)
    cold, memory, disk = (median(times[what]) for what in times)
    print(f"mlx-lm, {tokens} tokens: {cold:.4f} s cold, {memory:.4f} s from memory, {disk:.4f} s from disk")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:4]))
