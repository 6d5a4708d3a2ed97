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
from transformers import DynamicCache
from transformers.models.gemma4.image_processing_pil_gemma4 import (
    Gemma4ImageProcessorPil,
    get_aspect_ratio_preserving_size,
)
from transformers.video_utils import VideoMetadata

HERE = Path(__file__).resolve().parent
STEPS = 16
# One thread: sums are then taken in one order, whatever the machine.
torch.set_num_threads(1)


def versions():
    return {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}


def read_json(folder, file):
    return json.loads((Path(folder) / file).read_text())


def load(folder, dtype=torch.float32):
    config = read_json(folder, "config.json")
    architecture = getattr(transformers, config["architectures"][0])
    model, info = architecture.from_pretrained(
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
    """The processor. Its image half is Pillow's where there is one (the default is torchvision's);
    otherwise `read_picture` resizes with Pillow, and torchvision does not."""
    settings = read_json(folder, "processor_config.json")
    processor = getattr(transformers, settings["processor_class"]).from_pretrained(folder)
    settings = settings["image_processor"]
    if settings.pop("image_processor_type") == "Gemma4ImageProcessor":
        settings.pop("image_seq_length", None)
        processor.image_processor = Gemma4ImageProcessorPil(**settings)
    else:
        processor.image_processor.do_resize = False
    return processor


def pillow_size(processor, image):
    """The size that a picture will have, [width, height]."""
    settings = processor.image_processor
    patches = settings.max_soft_tokens * settings.pooling_kernel_size**2
    width, height = image.size
    height, width = get_aspect_ratio_preserving_size(
        height, width, settings.patch_size, patches, settings.pooling_kernel_size
    )
    return width, height


def read_picture(processor, path):
    image = Image.open(path).convert("RGB")
    if not isinstance(processor.image_processor, Gemma4ImageProcessorPil):
        image = image.resize(pillow_size(processor, image), Image.Resampling.BICUBIC)
    return image


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
    images = [read_picture(processor, f) for f in media(messages, "image")]
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


def with_masks(model, inputs, cache=None):
    """Replaces the attention mask by those that `generate` would make.

    The unified model's own forward lets the tokens of a picture see each other in full layers
    too; `generate` with a static cache, and the other models, do so in sliding layers only.
    """
    length = inputs["input_ids"].shape[1]
    embeddings = torch.empty(1, length, 1, dtype=model.dtype)
    positions = torch.arange(length)[None]
    masks = model.create_masks_for_generate(
        model.config,
        inputs_embeds=embeddings,
        attention_mask=inputs.get("attention_mask"),
        cache=cache,
        position_ids=positions,
        mm_token_type_ids=inputs.get("mm_token_type_ids"),
    )
    return {**inputs, "attention_mask": masks, "position_ids": positions}


@torch.no_grad()
def greedy(model, inputs, steps=STEPS):
    """Greedy ids through the cache, ends of text ignored, and each step's logits."""
    cache = DynamicCache(config=model.config)
    out = model(**with_masks(model, inputs, cache), cache=cache, use_cache=True)
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
    out = model(**with_masks(model, extended(inputs, ids)), use_cache=False)
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
