"""Writes digests of what these generators draw, for the test of their twin in Rust.

    python digests.py > ../../crates/demo-scenes/tests/digests.json
"""

import hashlib
import json
import struct

import numpy as np
import torch

import drawing
import questions
from counter import Counter

SEED, COUNT = 2026, 8
KINDS = ["one", "two", "three", "clip", "both"]
MODES = ["plain", "think", "json", "tools"]


def start_of_digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def picture_bytes(p):
    pixels = drawing.render(*drawing.numbers([p]), p.columns, p.rows)[0]
    return struct.pack("<II", p.width, p.height) + pixels.numpy().tobytes()


def clip_bytes(clip):
    wave = drawing.samples(*drawing.clip_numbers([clip]))[0, : clip.samples]
    return wave.numpy().astype(np.dtype("<i2")).tobytes()


def call_text(q):
    _, name, result = questions.call_of(q)
    arguments = q.drawing if q.drawing is not None else {"things": q.things}
    said = lambda value: value if isinstance(value, str) else ", ".join(value)
    return "\n".join([name, result, *(f"{key} {said(value)}" for key, value in arguments.items())])


def digests(kind, mode, index, held_out):
    r = Counter(SEED, f"{kind}/{mode}/{index}")
    s = questions.draw_sample(r, kind, 1, held_out, mode)
    pictures, clips = iter(s.pictures), iter(s.clips)
    media = [
        picture_bytes(next(pictures)) if m == "p" else clip_bytes(next(clips)) for m in s.media
    ]
    q = s.questions[0]
    call = call_text(q) if mode == "tools" and questions.call_of(q) else ""
    text = "\n".join([q.task, q.text, q.answer, q.thought, call])
    return [[start_of_digest(m) for m in media], start_of_digest(text.encode())]


def main():
    torch.set_num_threads(1)
    sets = {}
    for kind in KINDS:
        for mode in MODES:
            for name, held_out in (("held out", True), ("seen", False)):
                drawn = [digests(kind, mode, index, held_out) for index in range(COUNT)]
                sets[f"{kind}/{mode}, {name}"] = drawn
    lines = [f"  {json.dumps(name)}: {json.dumps(drawn)}" for name, drawn in sets.items()]
    print(f'{{\n "seed": {SEED},\n "sets": {{\n' + ",\n".join(lines) + "\n }\n}")


if __name__ == "__main__":
    main()
