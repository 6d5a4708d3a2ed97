"""mlx-vlm's prefill and decode speed on a checkpoint, several times in one process.

usage: mlx_vlm_speed.py CHECKPOINT INPUTS DECODED_TOKENS [ANSWERS]    (needs mlx-vlm 0.7.6)

INPUTS is a safetensors file with `ids` and what the model takes beside them, such as
`pixel_values`; `speed_inputs.py` writes it. Writes one JSON object an answer, whose prefill
includes the towers; `speed_rounds.py` reads them.
"""

import json
import pathlib
import sys
import time

import mlx.core as mx
from mlx_vlm.models import cache
from mlx_vlm.utils import load_model

CHUNK = 512

model = load_model(pathlib.Path(sys.argv[1]))
inputs = mx.load(sys.argv[2])
decoded, answers = (int(argument) for argument in (sys.argv[3:] + [3])[:2])
ids = inputs.pop("ids")[None]
copies = inputs.pop("copies").item()
inputs = {name: mx.concatenate([value] * copies) for name, value in inputs.items()}
pixels = inputs.pop("pixel_values", None)
for _ in range(answers):
    start = time.perf_counter()
    embedded = model.get_input_embeddings(ids, pixels, **inputs).to_dict()
    embeddings = embedded.pop("inputs_embeds")
    mx.eval(embeddings)
    encoded = time.perf_counter()
    rest = {k: v for k, v in embedded.items() if v is not None}
    caches = cache.make_prompt_cache(model.language_model)
    count = ids.shape[1]
    for at in range(0, count, CHUNK):
        part = {
            k: v[:, at : at + CHUNK] if getattr(v, "ndim", 0) > 1 and v.shape[1] == count else v
            for k, v in rest.items()
        }
        out = model.language_model(
            ids[:, at : at + CHUNK],
            inputs_embeds=embeddings[:, at : at + CHUNK],
            cache=caches,
            **part,
        )
        mx.eval([c.state for c in caches])
        mx.clear_cache()
    token = mx.argmax(out.logits[:, -1], -1)
    token.item()
    first = time.perf_counter()
    mx.async_eval(token)
    for _ in range(decoded - 1):
        out = model.language_model(token[:, None], cache=caches)
        following = mx.argmax(out.logits[:, -1], -1)
        mx.async_eval(following)
        token.item()
        token = following
    token.item()
    end = time.perf_counter()
    answer = {
        "prompt_tokens": count,
        "decoded_tokens": decoded,
        "prefill_rate": count / (first - start),
        "decode_rate": (decoded - 1) / (end - first),
        "peak_memory": mx.get_peak_memory(),
        "tower_seconds": encoded - start,
    }
    print(json.dumps(answer), flush=True)
