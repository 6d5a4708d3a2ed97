"""The prompts that speed_rounds.py times, as a safetensors file.

usage: speed_inputs.py CHECKPOINT TOKENS OUT
       speed_inputs.py CHECKPOINT PICTURE COPIES OUT    (needs transformers)

The first form is text alone: so many ids, spread over those that CHECKPOINT's tokenizer has words
for. The second is copies of one picture and a question, as transformers prepares them. The
checkpoint's configuration, tokenizer and settings are enough.

OUT holds `ids` [tokens], `copies` (of the picture; 1 without), and what the model takes of one
copy.
"""

import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file


def text(folder, count):
    tokenizer = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())
    added = {token["id"] for token in tokenizer["added_tokens"]}
    words = sorted(set(tokenizer["model"]["vocab"].values()) - added)
    # A prime, so that neighbours lie far apart.
    ids = np.array([words[7919 * i % len(words)] for i in range(count)], np.int32)
    return {"ids": ids, "copies": np.array([1], np.int32)}


def pictures(folder, picture, copies):
    from PIL import Image
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    image = Image.open(picture).convert("RGB")
    content = [{"type": "image"}] * copies + [{"type": "text", "text": "Which is brightest?"}]
    prompt = processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    inputs = processor(text=[prompt], images=[[image] * copies], return_tensors="np")
    ids = np.asarray(inputs.pop("input_ids"))[0].astype(np.int32)
    tensors = {"ids": ids, "copies": np.array([copies], np.int32)}
    for name, value in inputs.items():
        value = np.asarray(value)
        if name not in ("attention_mask", "mm_token_type_ids"):
            # One copy: the file would be large.
            value = value[: len(value) // copies]
            tensors[name] = value.astype(np.float32 if value.dtype.kind == "f" else np.int32)
    return tensors


def main():
    *arguments, out = sys.argv[1:]
    if len(arguments) == 2:
        tensors = text(arguments[0], int(arguments[1]))
    else:
        tensors = pictures(arguments[0], arguments[1], int(arguments[2]))
    save_file(tensors, out)
    print(len(tensors["ids"]), {name: value.shape for name, value in tensors.items()})


if __name__ == "__main__":
    main()
