#!/usr/bin/env python3
"""What transformers' Qwen2VLVideoProcessor makes of synthetic videos, and which sizes.

Needs transformers 5.24.0, torch 2.15.0, torchvision 0.29.2 and numpy.
Usage: "$PREFILL_REFERENCE_PYTHON" qwen2_video_cases.py > crates/media-preprocess/tests/goldens/qwen2_video_cases.json
"""
import hashlib
import json
import random

import numpy as np
import torch
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.video_utils import VideoMetadata

SIZE = dict(shortest_edge=6272, longest_edge=100352)


def synth(w, h, seed):
    y, x, c = np.meshgrid(*(np.arange(n, dtype=np.uint64) for n in (h, w, 3)), indexing="ij")
    v = (x * 2654435761 + y * 2246822519 + c * 3266489917 + seed * 668265263) & 0xFFFFFFFF
    v ^= v >> 15
    v = (v * 2246822519) & 0xFFFFFFFF
    v ^= v >> 13
    v = (v * 3266489917) & 0xFFFFFFFF
    v ^= v >> 16
    return (v & 255).astype(np.uint8)


def video(total, w, h):
    return torch.from_numpy(np.stack([synth(w, h, 10 + i).transpose(2, 0, 1) for i in range(total)]))


def case(total, w, h, source_fps, **config):
    config = dict(size=SIZE, **config)
    processor = Qwen2VLVideoProcessor(**config)
    metadata = VideoMetadata(total_num_frames=total, fps=source_fps)
    out = processor(videos=[video(total, w, h)], video_metadata=[metadata], return_tensors="pt", return_metadata=True)
    meta = out["video_metadata"][0]
    indices = range(total) if meta.frames_indices is None else meta.frames_indices
    pixels = out["pixel_values_videos"]
    return dict(
        total=total, width=w, height=h, fps=source_fps, config=config, indices=[int(i) for i in indices],
        grid=out["video_grid_thw"][0].tolist(), shape=list(pixels.shape),
        # The expression of Qwen2_5_VLProcessor._process_videos.
        seconds_per_group=processor.temporal_patch_size / meta.sampled_fps,
        sha256_f32le=hashlib.sha256(np.ascontiguousarray(pixels.numpy(), dtype="<f4").tobytes()).hexdigest(),
    )


def sampling(total, source_fps, **config):
    processor = Qwen2VLVideoProcessor(do_sample_frames=True, **config)
    try:
        indices = processor.sample_frames(VideoMetadata(total_num_frames=total, fps=source_fps)).tolist()
    except (ValueError, ZeroDivisionError):
        indices = None
    return dict(total=total, fps=source_fps, config=config, indices=indices)


def samplings():
    rng = random.Random(7)
    for _ in range(120):
        total, fps = int(10 ** rng.uniform(0, 4)), rng.choice([None, 1.0, 5.5, 23.976, 24.0, 29.97, 30.0, 60.0])
        if rng.random() < 0.4:
            config = dict(num_frames=rng.randint(1, 40))
        else:
            config = dict(fps=rng.choice([0.5, 1, 2, 2.5]), min_frames=rng.randint(1, 9), max_frames=rng.randint(5, 60))
        if rng.random() < 0.2:
            config["temporal_patch_size"] = rng.choice([1, 3, 4])
        yield sampling(total, fps, **config)


class Sizes(Qwen2VLVideoProcessor):
    """Stops where the size is known."""

    def target(self, frames, w, h):
        empty = torch.empty((1, 1, 1), dtype=torch.uint8).expand(h, w, 1).permute(2, 0, 1)
        stack = empty.expand(1, frames, 3, h, w)
        base = Qwen2VLVideoProcessor.__mro__[1]
        original = base.resize
        base.resize = lambda _, image, size, **rest: (size.width, size.height)
        try:
            return self.resize(
                stack, self.size, None, factor=self.patch_size * self.merge_size,
                temporal_factor=self.temporal_patch_size, cap_pixels_per_frame=self.cap_pixels_per_frame,
            )
        except ValueError:
            return None
        finally:
            base.resize = original


def sizes():
    rng = random.Random(8)
    for cap, tokens in [(False, 128000), (True, 128000), (True, 900)]:
        processor = Sizes(size=SIZE, cap_pixels_per_frame=cap, max_video_tokens=tokens)
        for _ in range(100):
            frames, w, h = (int(10 ** rng.uniform(0, top)) for top in (2.9, 3.7, 3.7))
            yield dict(cap=cap, tokens=tokens, frames=frames, width=w, height=h, target=processor.target(frames, w, h))


sampled = dict(do_sample_frames=True)
cases = [
    case(2, 112, 56, None), case(3, 100, 70, 24.0), case(5, 84, 84, 12.5), case(1, 60, 200, None), case(4, 640, 360, 30.0),
    case(5, 20, 9, 10.0), case(40, 96, 64, 10.0, fps=2, **sampled), case(30, 70, 40, 29.97, fps=4, min_frames=6, **sampled),
    case(31, 64, 64, 2.0, fps=2, max_frames=7, **sampled), case(11, 90, 120, None, num_frames=5, **sampled),
    case(24, 320, 240, 4.0, fps=2, cap_pixels_per_frame=True, max_video_tokens=300, **sampled),
    case(9, 90, 64, 3.0, temporal_patch_size=4), case(3, 112, 56, None, do_resize=False, do_normalize=False),
    case(6, 112, 84, 2.0, patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3),
]
lines = lambda rows: "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"
print('{"made_with": "transformers 5.24.0, torch 2.15.0, torchvision 0.29.2",')
print(f'"videos": {lines(cases)},\n"samplings": {lines(samplings())},\n"sizes": {lines(sizes())}}}')
