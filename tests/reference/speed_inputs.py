"""The inputs of mlx_vlm_speed.py for a prompt of several copies of one picture and a question, as
transformers prepares them.

usage: speed_inputs.py CHECKPOINT PICTURE COPIES OUT    (needs transformers; the checkpoint's
configuration, tokenizer and settings are enough)
"""

import sys

import numpy as np
from PIL import Image
from safetensors.numpy import save_file
from transformers import AutoProcessor

folder, picture, copies, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
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
save_file(tensors, out)
print(len(ids), {name: value.shape for name, value in tensors.items()})
