#!/usr/bin/env python3
"""What transformers' and mlx-vlm's video processors make of synthetic videos.

Needs transformers 5.24.0, torch, torchvision, pillow 13.0.0, numpy and mlx-vlm 0.6.15.
Usage: video_cases.py > crates/media-preprocess/tests/goldens/video_cases.json
"""
import hashlib
import json

import numpy as np
import torch
from transformers.models.gemma4.video_processing_gemma4 import Gemma4VideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata


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
    return np.stack([synth(w, h, 10 + i).transpose(2, 0, 1) for i in range(total)])


def sha(array):
    return hashlib.sha256(np.ascontiguousarray(np.asarray(array), dtype="<f4").tobytes()).hexdigest()


def metadata(total, fps):
    return VideoMetadata(total_num_frames=total, fps=fps)


def gemma4(total, w, h, fps, num_frames):
    frames = torch.from_numpy(video(total, w, h))
    out = Gemma4VideoProcessor(num_frames=num_frames)(
        videos=[frames], video_metadata=[metadata(total, fps)], return_tensors="pt", return_metadata=True
    )
    meta = out["video_metadata"][0]
    meta.fps = meta.fps or 24  # the processor that writes the prompt does so
    # The expression of Gemma4Processor.replace_video_token.
    stamps = [f"{int(seconds // 60):02d}:{int(seconds % 60):02d}" for seconds in meta.timestamps]
    return dict(
        total=total, width=w, height=h, fps=fps, num_frames=num_frames, indices=[int(i) for i in meta.frames_indices],
        timestamps=stamps, soft_tokens=int(out["num_soft_tokens_per_video"][0]), sha256_f32le=sha(out["pixel_values_videos"]),
    )


def qwen(total, w, h, source_fps, **config):
    frames = torch.from_numpy(video(total, w, h))
    processor = Qwen3VLVideoProcessor(size=dict(shortest_edge=4096, longest_edge=25165824), **config)
    out = processor(videos=[frames], video_metadata=[metadata(total, source_fps)], return_tensors="pt", return_metadata=True)
    meta = out["video_metadata"][0]
    times = Qwen3VLProcessor._calculate_timestamps(None, list(map(int, meta.frames_indices)), meta.fps or 24, 2)
    return dict(
        total=total, width=w, height=h, fps=source_fps, config=config, indices=[int(i) for i in meta.frames_indices],
        grid=out["video_grid_thw"][0].tolist(), timestamps=[f"<{t:.1f} seconds>" for t in times],
        sha256_f32le=sha(out["pixel_values_videos"]),
    )


def mlx_vlm():
    from mlx_vlm.models.gemma4.processing_gemma4 import Gemma4VideoProcessor as Gemma
    from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import Qwen3VLVideoProcessor as Qwen

    cases = []
    for total, w, h in [(3, 70, 50), (11, 64, 48), (9, 40, 200)]:
        out = Gemma(num_frames=4)([video(total, w, h)])
        cases.append(dict(family="gemma4", total=total, width=w, height=h, sha256_f32le=sha(out["pixel_values_videos"])))
    for total, w, h in [(2, 96, 64), (3, 100, 70), (5, 64, 200)]:
        out = Qwen(patch_size=16, min_pixels=4096, max_pixels=25165824)([video(total, w, h)])
        grid = np.asarray(out["video_grid_thw"])[0].tolist()
        cases.append(dict(family="qwen", total=total, width=w, height=h, grid=grid, sha256_f32le=sha(out["pixel_values_videos"])))
    return cases


print(json.dumps(dict(
    gemma4=[gemma4(*case) for case in [(32, 64, 48, 24.0, 32), (10, 80, 60, 1.0, 4), (7, 33, 91, 0.1, 3), (9, 200, 50, None, 8), (40, 48, 48, 29.97, 5)]],
    qwen=[
        qwen(40, 96, 64, 10.0), qwen(11, 70, 40, 5.5), qwen(90, 64, 64, 30.0), qwen(5, 40, 20, None), qwen(13, 200, 130, 3.0),
        qwen(24, 320, 240, 4.0, cap_pixels_per_frame=True), qwen(30, 64, 64, 2.0, max_frames=7), qwen(30, 64, 64, 30.0, min_frames=6, fps=1),
        qwen(6, 640, 480, 2.0, cap_pixels_per_frame=True, max_video_tokens=40),
    ],
    mlx_vlm=mlx_vlm(),
), indent=1))
