"""Asks a checkpoint, quantised or not, the held-out questions by mlx-vlm, on MLX's CPU back end.

    python check_mlx.py FOLDER 20     20 samples of each kind

A greedy answer is right exactly if each of its ids is the likeliest after the ids before it, so
one forward pass over question and answer tells what generation would. Media are prepared by
transformers' processor. Needs mlx-vlm beside requirements.txt; 0.7.6 with MLX 0.32.2 was used.
"""

import argparse
import importlib.metadata
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import torch
from mlx_vlm.models import cache
from mlx_vlm.utils import load_model
from transformers import Gemma4Processor

import check
import rows
import train

ARGUMENTS = argparse.ArgumentParser(description=__doc__.splitlines()[0])
ARGUMENTS.add_argument("folder")
ARGUMENTS.add_argument("count", type=int)


def logits(model, inputs, answer):
    """The logits of every position of the prompt and the answer."""
    inputs = {k: mx.array(v.numpy()) for k, v in inputs.items() if torch.is_tensor(v)}
    inputs.pop("attention_mask", None)
    ids = mx.concatenate([inputs.pop("input_ids"), mx.array([answer])], axis=1)
    if "mm_token_type_ids" in inputs:
        types = inputs["mm_token_type_ids"]
        behind = mx.zeros((1, len(answer)), dtype=types.dtype)
        inputs["mm_token_type_ids"] = mx.concatenate([types, behind], axis=1)
    embedded = model.get_input_embeddings(ids, inputs.pop("pixel_values", None), **inputs)
    rest = {k: v for k, v in embedded.to_dict().items() if v is not None}
    embeddings = rest.pop("inputs_embeds")
    caches = cache.make_prompt_cache(model.language_model)
    return model.language_model(ids, inputs_embeds=embeddings, cache=caches, **rest).logits[0]


def main():
    a = ARGUMENTS.parse_args()
    mx.set_default_device(mx.cpu)
    torch.set_num_threads(1)
    model = load_model(Path(a.folder))
    quantised = (nn.QuantizedLinear, nn.QuantizedEmbedding)
    modules = [m for _, m in model.named_modules() if isinstance(m, quantised)]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("mlx-vlm", "mlx")]
    print(f"{', '.join(versions)}: {len(modules)} quantised modules", flush=True)
    # mlx-vlm puts processors of its own into `AutoProcessor`.
    processor = Gemma4Processor.from_pretrained(a.folder)
    prompts = rows.Prompts(f"{a.folder}/tokenizer.json")
    for kind in train.HELD_OUT_KINDS:
        right = 0
        for index in range(a.count):
            sample = check.sample_of(train.TEST_SEED, kind, "plain", index)
            messages, options = check.conversation(sample)
            inputs = check.inputs(processor, sample, messages, options)
            answer = prompts.ids(f"{sample.questions[0].answer}<turn|>")
            found = logits(model, inputs, answer)[-len(answer) - 1 : -1].argmax(-1)
            right += found.tolist() == answer
        print(f"{kind}: {right} of {a.count}", flush=True)


if __name__ == "__main__":
    main()
