"""Runs the Qwen models in transformers (PyTorch, CPU, eager attention) with Pillow's pixels."""

import hashlib
import json
from pathlib import Path

import torch
import transformers
from PIL import Image
from transformers import DynamicCache, PreTrainedTokenizerFast, Qwen3VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from transformers_reference import STEPS, media, read_frames

PIXELS = ("image_grid_thw", "pixel_values"), ("video_grid_thw", "pixel_values_videos")


def load_processor(folder):
    """The processor with Pillow's pictures, or the tokenizer alone where there is no vision."""
    folder = Path(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    template = (folder / "chat_template.jinja").read_text()
    tokenizer.chat_template = template
    if not (folder / "preprocessor_config.json").exists():
        return tokenizer
    images, videos = (
        json.loads((folder / f"{kind}preprocessor_config.json").read_text())
        for kind in ("", "video_")
    )
    for settings in (images, videos):
        settings.pop("processor_class")
    images.pop("image_processor_type")
    videos.pop("video_processor_type")
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessorPil(**images),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**videos),
        chat_template=template,
    )


def prepare(processor, messages):
    """The rendered prompt and the model's inputs."""
    prompt = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if not isinstance(processor, Qwen3VLProcessor):
        return prompt, {"input_ids": processor(prompt, return_tensors="pt")["input_ids"]}
    images = [Image.open(f).convert("RGB") for f in media(messages, "image")]
    clips = [read_frames(f) for f in media(messages, "video")]
    frames = [torch.from_numpy(f.transpose(0, 3, 1, 2).copy()) for f, _ in clips]
    inputs = processor(
        text=[prompt],
        images=images or None,
        videos=frames or None,
        **({"video_metadata": [metadata for _, metadata in clips]} if clips else {}),
        return_tensors="pt",
    )
    return prompt, {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}


def bare(ids):
    return {"input_ids": torch.tensor([ids])}


def core(model):
    """The part that knows positions in three dimensions, if there is one."""
    return model.model if hasattr(model.model, "get_rope_index") else None


def position_ids(model, inputs):
    """Positions of the prompt, [3, tokens], and what a later token's index lacks to its position."""
    count = inputs["input_ids"].shape[1]
    grids = {k: inputs[k].clone() for k, _ in PIXELS if k in inputs}
    if not grids:
        return torch.arange(count).expand(3, -1), 0
    found, delta = core(model).get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], **grids
    )
    return found[:, 0], int(delta)


def call(model, inputs, positions=None, **rest):
    if core(model) is not None:
        core(model).rope_deltas = None
        if positions is not None:
            rest["position_ids"] = positions[:, None]
    out = model(**inputs, **rest)
    return out


@torch.no_grad()
def greedy(model, inputs, steps=STEPS):
    """Greedy ids through the cache, ends of text ignored, and each step's logits."""
    cache = DynamicCache(config=model.config)
    positions, delta = position_ids(model, inputs)
    count = positions.shape[1]
    out = call(model, inputs, positions, cache=cache, use_cache=True)
    ids, logits = [], []
    for step in range(steps):
        logits.append(out.logits[0, -1])
        ids.append(int(logits[-1].argmax()))
        at = torch.full((3, 1), count + step + delta)
        fed = bare([ids[-1]])
        out = call(model, fed, at, cache=cache, use_cache=True)
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
    grown = extended(inputs, ids)
    out = call(model, grown, position_ids(model, grown)[0], use_cache=False)
    return out.logits[0, -len(ids) :]


@torch.no_grad()
def features(model, inputs):
    """What each medium gives to the text model: of a picture and of a frame group the rows that
    replace embeddings, followed in the same row by those that are added after each of the first
    layers; in the order of the kinds."""
    found = {"image": [], "video": []}
    for kind, (grid_key, pixel_key) in zip(found, PIXELS):
        if pixel_key not in inputs:
            continue
        grids = inputs[grid_key]
        visual = model.model.visual
        out = visual(inputs[pixel_key].to(visual.dtype), grid_thw=grids, return_dict=True)
        rows = torch.cat([out.pooler_output, *(getattr(out, "deepstack_features", None) or [])], 1)
        sizes = [int(h * w) // 4 for t, h, w in grids.tolist() for _ in range(t)]
        found[kind] = list(torch.split(rows, sizes))
    return found


def media_inputs(inputs):
    """Grid and hash of each picture's and video's patches, for a reader of pixels to compare with."""
    found = {}
    for kind, (grid_key, pixel_key) in zip(("images", "videos"), PIXELS):
        grids = inputs.get(grid_key, torch.zeros(0, 3, dtype=torch.long)).tolist()
        pixels = inputs.get(pixel_key, torch.zeros(0))
        parts = torch.split(pixels, [t * h * w for t, h, w in grids]) if grids else []
        found[kind] = [
            {"grid_thw": grid, "sha256": hashlib.sha256(p.numpy().astype("<f4").tobytes()).hexdigest()}
            for grid, p in zip(grids, parts)
        ]
    return found


def architecture(config):
    return getattr(transformers, config["architectures"][0])
