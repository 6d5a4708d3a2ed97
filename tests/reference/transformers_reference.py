"""Runs Gemma 4 in transformers (PyTorch, CPU, eager attention) with Pillow's pixels."""

import contextlib
import hashlib
import json
import wave
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image, ImageSequence
from transformers import DynamicCache, Gemma4ForConditionalGeneration, Gemma4Processor
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.video_utils import VideoMetadata

HERE = Path(__file__).resolve().parent
STEPS = 16
# One thread: sums are then taken in one order, whatever the machine.
torch.set_num_threads(1)


def versions():
    return {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}


def load(folder, dtype=torch.float32):
    model, info = Gemma4ForConditionalGeneration.from_pretrained(
        folder,
        dtype=dtype,
        attn_implementation="eager",
        experts_implementation="eager",
        output_loading_info=True,
    )
    missing = set(info["missing_keys"]) - {"lm_head.weight"}
    assert not missing and not info["mismatched_keys"], info
    return model.eval()


def load_processor(folder):
    """The processor, its image half replaced by Pillow's (the default one is torchvision's)."""
    processor = Gemma4Processor.from_pretrained(folder)
    settings = json.loads((Path(folder) / "processor_config.json").read_text())["image_processor"]
    settings.pop("image_processor_type")
    settings.pop("image_seq_length", None)
    processor.image_processor = Gemma4ImageProcessorPil(**settings)
    return processor


def read_wav(path):
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels()) == (16000, 1)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return samples.astype(np.float32) / 32768


def read_frames(path):
    """All frames of an animated PNG, [frames, height, width, 3], and what the processor must know."""
    with Image.open(path) as file:
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(file)]
        fps = 1000 / file.info["duration"]
    width, height = frames[0].size
    metadata = VideoMetadata(
        total_num_frames=len(frames), fps=fps, width=width, height=height, duration=len(frames) / fps
    )
    return np.stack([np.asarray(frame) for frame in frames]), metadata


def media(messages, kind):
    parts = [p for m in messages if isinstance(m["content"], list) for p in m["content"]]
    return [HERE / p[kind] for p in parts if p["type"] == kind]


def prepare(processor, messages):
    """The rendered prompt and the model's inputs."""
    prompt = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    images = [Image.open(f).convert("RGB") for f in media(messages, "image")]
    sounds = [read_wav(f) for f in media(messages, "audio")]
    clips = [read_frames(f) for f in media(messages, "video")]
    inputs = processor(
        text=[prompt],
        images=[images] if images else None,
        audio=sounds or None,
        videos=[frames for frames, _ in clips] or None,
        **({"video_metadata": [metadata for _, metadata in clips]} if clips else {}),
        add_special_tokens=False,
        return_tensors="pt",
    )
    return prompt, {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}


def spans(ids, config):
    """Runs of media tokens: {kind, start, length}."""
    kinds = {config[f"{k}_token_id"]: k for k in ("image", "audio", "video")}
    found = []
    for position, token in enumerate(ids):
        kind = kinds.get(token)
        last = found[-1] if found else None
        if kind and last and last["kind"] == kind and last["start"] + last["length"] == position:
            last["length"] += 1
        elif kind:
            found.append({"kind": kind, "start": position, "length": 1})
    return found


def cast(inputs, dtype):
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}


@torch.no_grad()
def greedy(model, inputs, steps=STEPS):
    """Greedy ids through the cache, ends of text ignored, and each step's logits."""
    cache = DynamicCache(config=model.config)
    out = model(**inputs, cache=cache, use_cache=True)
    ids, logits = [], []
    for _ in range(steps):
        logits.append(out.logits[0, -1])
        ids.append(int(logits[-1].argmax()))
        out = model(input_ids=torch.tensor([[ids[-1]]]), cache=cache, use_cache=True)
    return ids, torch.stack(logits)


def extended(inputs, ids):
    """The inputs with all greedy ids but the last appended to the prompt."""
    more = torch.tensor([ids[:-1]])
    grown = dict(inputs)
    grown["input_ids"] = torch.cat([inputs["input_ids"], more], 1)
    for key, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
        if key in inputs:
            grown[key] = torch.cat([inputs[key], torch.full_like(more, value)], 1)
    return grown


@torch.no_grad()
def forced(model, inputs, ids):
    """The logits before each greedy id from one forward call without a cache."""
    out = model(**extended(inputs, ids), use_cache=False)
    return out.logits[0, -len(ids) :]


@contextlib.contextmanager
def doubles():
    """Makes the model's own casts to float32 casts to float64."""
    tensor_float, softmax = torch.Tensor.float, torch.nn.functional.softmax

    def softmax64(x, dim=None, dtype=None, **rest):
        return softmax(x.double(), dim=dim, **rest)

    torch.Tensor.float = torch.Tensor.double
    torch.nn.functional.softmax = softmax64
    try:
        yield
    finally:
        torch.Tensor.float, torch.nn.functional.softmax = tensor_float, softmax


@torch.no_grad()
def features(model, inputs):
    """The features of each medium as they enter the text model, in the order of the prompt."""
    found = {"image": [], "audio": [], "video": []}
    core = model.model
    if "pixel_values" in inputs:
        out = core.get_image_features(inputs["pixel_values"], inputs["image_position_ids"])
        found["image"] = list(out.pooler_output)
    if "input_features" in inputs:
        mask = inputs["input_features_mask"]
        out = core.get_audio_features(inputs["input_features"], mask)
        valid = out.attention_mask.bool()
        found["audio"] = [rows[keep] for rows, keep in zip(out.pooler_output, valid)]
    if "pixel_values_videos" in inputs:
        # Each frame is a medium of its own: it has its own run of tokens.
        positions = inputs["video_position_ids"]
        ones = torch.ones(len(positions), dtype=torch.long)
        out = core.get_video_features(inputs["pixel_values_videos"], positions, ones)
        found["video"] = list(out.pooler_output)
    return found


def image_inputs(inputs):
    """What Pillow made of each picture: grid and hash, for a reader of pixels to compare with."""
    found = []
    for pixels, positions in zip(
        inputs.get("pixel_values", []), inputs.get("image_position_ids", [])
    ):
        valid = (positions >= 0).all(-1)
        columns, rows = (positions[valid].max(0).values + 1).tolist()
        data = pixels[valid].numpy().astype("<f4").tobytes()
        found.append(
            {"patch_rows": rows, "patch_columns": columns, "sha256": hashlib.sha256(data).hexdigest()}
        )
    return found
