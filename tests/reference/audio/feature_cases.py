#!/usr/bin/env python3
"""What transformers' feature extractors make of the clips beside the goldens.

Needs transformers 5.24.0, numpy 2.4 on a processor with fused multiply-add, soundfile 0.14.
Usage: feature_cases.py CLIPS > features.json     (CLIPS: crates/media-preprocess/tests/goldens/audio)
For each extractor, configuration and clip: shape, valid rows, SHA-256 of the little-endian f32 values, and every 97th
value. For Gemma 4 also frames and valid frames of many lengths of noise.
Whisper's is the numpy form of the class, the one that doesn't depend on torch's convolutions.
"""
import hashlib
import json
import os
import sys
import warnings

import numpy as np
import soundfile
import transformers
from transformers.models.gemma3n.feature_extraction_gemma3n import Gemma3nAudioFeatureExtractor
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.whisper import feature_extraction_whisper
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor

warnings.simplefilter("ignore")
feature_extraction_whisper.is_torch_available = lambda: False
CLIPS = ["speech16k_32050.wav", "silence16k.wav", "tiny_160.wav", "tiny_161.wav", "tiny_640.wav", "tiny_641.wav"]
BINS = [round(0.01 * i - 0.3, 4) for i in range(128)]
GEMMA4 = [
    {},
    {"preemphasis": 0.97, "fft_overdrive": True, "frame_length_ms": 32.0},
    {"preemphasis": 0.9, "preemphasis_htk_flavor": False, "feature_size": 80, "min_frequency": 60.0, "max_frequency": 7000.0},
    {"input_scale_factor": 0.3, "mel_floor": 1e-5, "hop_length_ms": 12.5},
    {"per_bin_mean": BINS, "per_bin_stddev": [1.0 + abs(b) for b in BINS]},
]
GEMMA3N = [{}, {"preemphasis": 0.0, "fft_overdrive": False}]
WHISPER = [({}, "max_length"), ({"feature_size": 128}, "longest"), ({"chunk_length": 2}, "max_length")]


def facts(features, mask):
    features = np.ascontiguousarray(features, "<f4")
    return {
        "shape": list(features.shape),
        "valid": int(np.sum(mask)),
        "sha256": hashlib.sha256(features.tobytes()).hexdigest(),
        "values": [float(v) for v in features.ravel()[::97]],
    }


def main():
    folder = sys.argv[1]
    waves = {name: soundfile.read(os.path.join(folder, name), dtype="float32")[0] for name in CLIPS}
    cases = []
    for family, extractor, configs in (
        ("gemma4", Gemma4AudioFeatureExtractor, GEMMA4),
        ("gemma3n", Gemma3nAudioFeatureExtractor, GEMMA3N),
    ):
        for config in configs:
            made = extractor(**config)
            for name, wave in waves.items():
                out = made([wave])
                cases.append({"family": family, "config": config, "clip": name, **facts(out["input_features"][0], out["input_features_mask"][0])})
    for config, padding in WHISPER:
        made = WhisperFeatureExtractor(**config)
        for name, wave in waves.items():
            if padding == "longest" and len(wave) < 320:
                continue  # no frame at all: the reference fails on it
            out = made(wave, sampling_rate=16000, padding=padding, truncation=padding == "max_length", return_attention_mask=True)
            cases.append({"family": "whisper", "config": config, "padding": padding, "clip": name, **facts(out["input_features"][0], out["attention_mask"][0])})
    lengths = []
    made = Gemma4AudioFeatureExtractor()
    rng = np.random.default_rng(3)
    for n in sorted({0, 1, 127, 128, 129, *range(150, 170), *range(318, 324), *range(478, 484), *range(635, 645), *rng.integers(1, 480000, 40).tolist(), 479999, 480000, 480001}):
        mask = np.asarray(made([np.zeros(n, np.float32)])["input_features_mask"][0])
        lengths.append([int(n), len(mask), int(mask.sum())])
    # Two clips of different lengths at once, the shorter one first.
    both = made([waves["tiny_641.wav"], waves["silence16k.wav"]])
    batch = [facts(f, m) for f, m in zip(both["input_features"], both["input_features_mask"])]
    json.dump({"versions": {"transformers": transformers.__version__, "numpy": np.__version__}, "cases": cases, "lengths": lengths, "batch": batch}, sys.stdout)


main()
