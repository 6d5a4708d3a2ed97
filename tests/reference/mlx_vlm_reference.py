"""Runs the same inputs through mlx-vlm on MLX's CPU back end."""

import importlib.metadata
import json
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_vlm.models import cache as mlx_cache
from mlx_vlm.utils import load_model

mx.set_default_device(mx.cpu)


def versions():
    return {name: importlib.metadata.version(name) for name in ("mlx", "mlx-vlm")}


def load(folder):
    return load_model(Path(folder))


def load_text(folder):
    """A model without towers, from the package beside mlx-vlm."""
    from mlx_lm.utils import load_model as load_text_model

    return load_text_model(Path(folder))[0]


def logits(model, inputs):
    """The logits of every position, [tokens, vocab], from inputs made by transformers."""
    inputs = {k: mx.array(v.numpy()) for k, v in inputs.items() if hasattr(v, "numpy")}
    inputs.pop("attention_mask", None)
    ids = inputs.pop("input_ids")
    if not hasattr(model, "get_input_embeddings"):
        return np.array(model(ids)[0].astype(mx.float32))
    pixels = inputs.pop("pixel_values", None)
    embedded = model.get_input_embeddings(ids, pixels, **inputs).to_dict()
    embeddings = embedded.pop("inputs_embeds")
    rest = {k: v for k, v in embedded.items() if v is not None}
    caches = mlx_cache.make_prompt_cache(model.language_model)
    out = model.language_model(ids, inputs_embeds=embeddings, cache=caches, **rest)
    return np.array(out.logits[0].astype(mx.float32))
