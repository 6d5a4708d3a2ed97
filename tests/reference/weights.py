"""Weights from a counter: every value is a function of (seed, tensor name, element index).

The Rust twin is `crates/test-support/src/weights.rs`. Only integer arithmetic modulo 2^64 and
exactly rounded f32 operations are used, so both give the same bits everywhere and no weights
need to be committed, only their description (`models/NAME/tensors.json`).

    key  = mix64(mix64(seed + GAMMA) ^ fnv1a64(name))
    bits = mix64(key + (index + 1) * GAMMA)                 SplitMix64 with `key` as its state
    u    = float32(bits >> 40) * 2^-23 - 1                  exact, in [-1, 1)
    w    = float32(offset) + float32(scale) * u             two rounded operations, no FMA
"""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).resolve().parent
MODELS = HERE / "models"

# SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
GAMMA = np.uint64(0x9E3779B97F4A7C15)
# FNV-1a: Fowler, Noll and Vo.
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
MASK = (1 << 64) - 1


def mix64(x):
    """The output function of SplitMix64, over a uint64 array."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fnv1a64(name):
    h = FNV_OFFSET
    for byte in name.encode():
        h = ((h ^ byte) * FNV_PRIME) & MASK
    return h


def generate(seed, name, shape, offset, scale):
    """The tensor as float32."""
    count = int(np.prod(shape, dtype=np.int64))
    with np.errstate(over="ignore"):
        state = mix64(np.array([seed], np.uint64) + GAMMA)
        key = mix64(state ^ np.uint64(fnv1a64(name)))
        bits = mix64(key + np.arange(1, count + 1, dtype=np.uint64) * GAMMA)
    u = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    return (np.float32(offset) + np.float32(scale) * u).reshape(shape)


def describe(model):
    return json.loads((MODELS / model / "tensors.json").read_text())


def tensors(model):
    """Every tensor of a described model, by name."""
    d = describe(model)
    return {
        t["name"]: generate(d["seed"], t["name"], t["shape"], t["offset"], t["scale"])
        for t in d["tensors"]
    }


def build_checkpoint(model, folder, patches=()):
    """Writes a float32 checkpoint that transformers and mlx-vlm load.

    `patches` is a list of {file, pointer, value}: one value of a JSON file replaced each.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file in (MODELS / model).iterdir():
        if file.name != "tensors.json":
            shutil.copy(file, folder)
    for patch in patches:
        path = folder / patch["file"]
        document = json.loads(path.read_text())
        *parents, last = patch["pointer"].strip("/").split("/")
        target = document
        for key in parents:
            target = target[key]
        target[last] = patch["value"]
        path.write_text(json.dumps(document, indent=1))
    save_file(tensors(model), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def fingerprints(model):
    """What the Rust twin is checked against: of each tensor the SHA-256 and the bits of the first
    values (bits, because JSON readers differ in the last place of a decimal)."""
    return {
        name: {
            "first_bits": w.reshape(-1)[:3].view(np.uint32).tolist(),
            "sha256": hashlib.sha256(w.astype("<f4").tobytes()).hexdigest(),
        }
        for name, w in tensors(model).items()
    }
