#!/usr/bin/env python3
"""Random resizes by Pillow and torchvision, as JSON lines: what was resized and the SHA-256 of the result.

Needs pillow 13.0.0, numpy, torch and torchvision.
Usage: resize_cases.py COUNT [SEED [LARGEST_SIDE]]
The golden file is `resize_cases.py 180 1 120`; the long test of prefill-media-preprocess runs
`resize_cases.py 2000 2 1200` (crates/media-preprocess/tests/long_pillow.rs).
"""
import hashlib
import json
import random
import sys

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as tvf

FILTERS = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
MODES = {"L": 1, "RGB": 3, "RGBA": 4}


def synth(w, h, channels, seed):
    """A hash of position, channel and seed; reproducible in any language."""
    axes = (np.arange(n, dtype=np.uint64) for n in (h, w, channels))
    y, x, c = np.meshgrid(*axes, indexing="ij")
    v = (x * 2654435761 + y * 2246822519 + c * 3266489917 + seed * 668265263) & 0xFFFFFFFF
    v ^= v >> 15
    v = (v * 2246822519) & 0xFFFFFFFF
    v ^= v >> 13
    v = (v * 3266489917) & 0xFFFFFFFF
    v ^= v >> 16
    return (v & 255).astype(np.uint8)


def side(rng, largest):
    """Mostly anything, at times an edge case."""
    return rng.choice([1, 2, 3, largest]) if rng.random() < 0.12 else rng.randint(1, largest)


def main():
    count = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    largest = int(sys.argv[3]) if len(sys.argv) > 3 else 120
    rng = random.Random(seed)
    for i in range(count):
        w, h, ow, oh = (side(rng, largest) for _ in range(4))
        case = dict(w=w, h=h, out_w=ow, out_h=oh, seed=i)
        if i % 4 == 3 and (ow, oh) != (1, 1):  # torchvision fails on a target of 1x1
            case.update(backend="torchvision", mode="RGB", filter=rng.choice(["bicubic", "bilinear"]))
            image = torch.from_numpy(synth(w, h, 3, i).transpose(2, 0, 1))
            out = tvf.resize(image, [oh, ow], interpolation=tvf.InterpolationMode(case["filter"]), antialias=True)
            out = out.numpy().transpose(1, 2, 0)
        else:
            mode = rng.choice(["RGB", "RGB", "L", "RGBA"])
            name = "bicubic" if rng.random() < 0.5 else rng.choice(FILTERS)
            case.update(backend="pillow", mode=mode, filter=name)
            image = Image.fromarray(synth(w, h, MODES[mode], i).squeeze(2) if mode == "L" else synth(w, h, MODES[mode], i))
            out = np.asarray(image.resize((ow, oh), getattr(Image.Resampling, name.upper())))
        case["sha256"] = hashlib.sha256(np.ascontiguousarray(out).tobytes()).hexdigest()
        print(json.dumps(case))


main()
