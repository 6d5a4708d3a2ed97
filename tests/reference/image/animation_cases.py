#!/usr/bin/env python3
"""Small animations with every disposal and blending, and Pillow's frames of them.

Needs pillow 13.0.0 and numpy.
Usage: animation_cases.py FOLDER
Writes the files and `animations.json`: for each file, the SHA-256 of each frame's RGB bytes. The golden folder is
crates/media-preprocess/tests/goldens/animations.
"""
import hashlib
import json
import os
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageSequence

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
rng = np.random.default_rng(3)


def picture(seed, mode="RGB"):
    base = Image.linear_gradient("L").resize((40, 30)).rotate(40 * seed)
    image = Image.merge("RGB", (base, base.transpose(0), base.transpose(1)))
    draw = ImageDraw.Draw(image)
    draw.rectangle((3 + 5 * seed, 4, 12 + 5 * seed, 14 + 2 * seed), fill=(250, 30 * seed, 5))
    if mode == "RGBA":
        image = image.convert("RGBA")
        alpha = Image.new("L", image.size, 0)
        ImageDraw.Draw(alpha).ellipse((5 + 4 * seed, 5, 25 + 4 * seed, 25), fill=255)
        ImageDraw.Draw(alpha).rectangle((0, 25, 39, 29), fill=60 + 40 * seed)
        image.putalpha(alpha)
    return image


frames = [picture(i) for i in range(4)]
clear = [picture(i, "RGBA") for i in range(4)]
rest = dict(save_all=True, duration=100)
for disposal in (0, 1, 2, 3):
    frames[0].save(f"{folder}/opaque_{disposal}.gif", append_images=frames[1:], disposal=disposal, **rest)
    clear[0].save(f"{folder}/clear_{disposal}.gif", append_images=clear[1:], disposal=disposal, **rest)
clear[0].save(f"{folder}/mixed.gif", append_images=clear[1:], disposal=[1, 2, 3, 1], **rest)
frames[0].convert("L").save(f"{folder}/gray.gif", append_images=[f.convert("L") for f in frames[1:]], **rest)
for disposal in (0, 1):
    for blend in (0, 1):
        clear[0].save(f"{folder}/clear_{disposal}_{blend}.png", append_images=clear[1:], disposal=disposal, blend=blend, **rest)
        frames[0].save(f"{folder}/opaque_{disposal}_{blend}.png", append_images=frames[1:], disposal=disposal, blend=blend, **rest)
clear[0].save(f"{folder}/previous.png", append_images=clear[1:], disposal=2, blend=0, **rest)
frames[3].save(f"{folder}/apart.png", append_images=clear[1:], default_image=True, **rest)
pal = [f.quantize(16) for f in frames]
pal[0].save(f"{folder}/palette_1.png", append_images=pal[1:], disposal=1, blend=0, **rest)
frames[0].save(f"{folder}/opaque.webp", append_images=frames[1:], lossless=True, **rest)
frames[0].save(f"{folder}/lossy.webp", append_images=frames[1:], quality=60, **rest)
clear[0].save(f"{folder}/clear.webp", append_images=clear[1:], lossless=True, **rest)
clear[0].save(f"{folder}/clear_lossy.webp", append_images=clear[1:], quality=70, **rest)

# The Rust decoder blends this one by a level otherwise: its second frame, to measure by.
second = Image.open(f"{folder}/opaque.webp")
second.seek(1)
second.convert("RGB").save(f"{folder}/opaque.webp.1.png")

out = {}
for name in sorted(os.listdir(folder)):
    if name.endswith((".json", ".1.png")):
        continue
    image = Image.open(f"{folder}/{name}")
    out[name] = [hashlib.sha256(f.convert("RGB").tobytes()).hexdigest() for f in ImageSequence.Iterator(image)]
with open(f"{folder}/animations.json", "w") as file:
    json.dump(out, file, indent=0)
