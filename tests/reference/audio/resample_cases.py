#!/usr/bin/env python3
"""What the references' resamplers make of two clips beside the goldens, at 16 kHz.

Needs soundfile 0.14, soxr 1.1.0, mlx-audio 0.5.9 (scipy 1.17), safetensors.
Usage: resample_cases.py CLIPS     (crates/media-preprocess/tests/goldens/audio; writes resampled.safetensors there)
Every 3rd sample of: the mean of the channels, resampled by soxr's HQ recipe and by mlx-audio.
"""
import os
import sys

import numpy as np
import soundfile
import soxr
from mlx_audio.resample import resample_audio_array
from safetensors.numpy import save_file

folder = sys.argv[1]
tensors = {}
for name in ("stereo44k1.wav", "noise48k_s24.flac"):
    samples, rate = soundfile.read(os.path.join(folder, name), dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    tensors[f"{name}.soxr"] = np.ascontiguousarray(soxr.resample(mono, rate, 16000, quality="HQ")[::3])
    tensors[f"{name}.mlx-audio"] = np.ascontiguousarray(resample_audio_array(mono, rate, 16000)[::3])
save_file(tensors, os.path.join(folder, "resampled.safetensors"))
