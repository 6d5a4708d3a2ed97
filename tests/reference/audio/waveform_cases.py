#!/usr/bin/env python3
"""What transformers makes of the clips: the waveform at 16 kHz, Gemma 4's features and soft tokens.

Needs transformers 5.24.0, numpy 2.4, soundfile 0.14, soxr 1.1.0.
Usage: waveform_cases.py CLIPS     (crates/media-preprocess/tests/goldens/audio; writes expected.json and an .npy there)
"""
import hashlib
import json
import math
import os
import sys
import warnings

import numpy as np
import soundfile
import soxr
import transformers
from transformers.audio_utils import load_audio
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor

warnings.simplefilter("ignore")


def sha(values):
    return hashlib.sha256(np.ascontiguousarray(values, "<f4").tobytes()).hexdigest()


def tower(mask):
    """Frames after the two halving convolutions, and the tokens that the processor counts."""
    for _ in range(2):
        mask = mask[::2][: (len(mask) - 1) // 2 + 1]
    return len(mask), int(mask.sum())


def main():
    os.chdir(sys.argv[1])
    extractor = Gemma4AudioFeatureExtractor()
    clips = {}
    for name in sorted(file for file in os.listdir(".") if file.endswith((".wav", ".flac", ".mp3"))):
        info = soundfile.info(name)
        wave = load_audio("./" + name, sampling_rate=16000, backend="soundfile")
        out = extractor([wave])
        features, mask = np.asarray(out["input_features"][0]), np.asarray(out["input_features_mask"][0])
        tower_frames, soft_tokens = tower(mask)
        clips[name] = {
            "source_rate": info.samplerate, "channels": info.channels, "source_frames": info.frames,
            "samples_16k": len(wave), "wave_sha256": sha(wave),
            "frames": len(mask), "valid_frames": int(mask.sum()), "tower_frames": tower_frames, "soft_tokens": soft_tokens,
            "soft_tokens_ms_formula": min(math.ceil(len(wave) / 16000 * 1000 / 40), 750), "unified_tokens": -(-len(wave) // 640),
            "features_shape": list(features.shape), "features_sha256": sha(features),
            "features_min": float(features.min()) if features.size else None,
            "features_max": float(features.max()) if features.size else None,
            "features_sum_f64": float(features.astype(np.float64).sum()),
        }
        if name == "stereo44k1.wav":
            np.save(name + ".wave16k.npy", wave.astype("<f4"))
    versions = {
        "transformers": transformers.__version__, "numpy": np.__version__, "soundfile": soundfile.__version__,
        "libsndfile": soundfile.__libsndfile_version__, "soxr": soxr.__version__, "libsoxr": soxr.__libsoxr_version__,
    }
    with open("expected.json", "w") as file:
        json.dump({"versions": versions, "clips": clips}, file, indent=1)


main()
