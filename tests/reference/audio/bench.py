#!/usr/bin/env python3
"""Times the audio of prefill-media-preprocess and its peers in one run, in alternating rounds, best of all rounds.

Ratios are of processor time, on one thread each.

Needs numpy, transformers, librosa, soundfile, soxr, mlx-audio and mlx-vlm; ffmpeg to make the clips.
Build first: cargo build --release -p prefill-media-preprocess --features soxr --example bench_peer
Usage: OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 bench.py [ROUNDS]
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import librosa
import numpy as np
import soundfile
import soxr
import transformers
from mlx_audio.audio_io import read as mlx_read
from mlx_audio.resample import resample_audio_array
from transformers.audio_utils import load_audio
from transformers.models.gemma3n.feature_extraction_gemma3n import Gemma3nAudioFeatureExtractor
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor

warnings.simplefilter("ignore")
try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    pass
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
CLIPS = os.path.join(ROOT, "crates/media-preprocess/tests/goldens/audio")
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
PEER = subprocess.Popen(
    [os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "release/examples/bench_peer")],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)


def peer(**command):
    def run():
        PEER.stdin.write(json.dumps(command) + "\n")
        PEER.stdin.flush()
        answer = json.loads(PEER.stdout.readline())
        return answer["wall"], answer["cpu"]

    return run


def timed(function):
    def run():
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        return time.perf_counter() - wall, time.process_time() - cpu

    return run


def race(title, base, runners):
    """Runs each once a round, in turn; prints best times and how many times faster than `base`."""
    best = {name: (float("inf"), float("inf")) for name in runners}
    for _ in range(ROUNDS):
        for name, run in runners.items():
            best[name] = tuple(map(min, best[name], run()))
    print(f"\n{title}")
    for name, (wall, cpu) in best.items():
        print(f"  {name:42} wall {wall * 1e3:8.2f} ms  cpu {cpu * 1e3:8.2f} ms  {best[base][1] / cpu:6.2f} x {base}")


def main():
    versions = {"transformers": transformers.__version__, "librosa": librosa.__version__, "numpy": np.__version__, "soxr": soxr.__version__}
    print(versions)
    second, rate = soundfile.read(os.path.join(CLIPS, "stereo44k1.wav"))
    noise = np.random.default_rng(1).normal(0, 0.003, (30 * rate, 2))
    speech = np.tile(second, (30, 1)) * 0.9 + noise
    with tempfile.TemporaryDirectory() as folder:
        wav, mp3, flac, mono = (os.path.join(folder, name) for name in ("speech.wav", "speech.mp3", "speech.flac", "mono.wav"))
        soundfile.write(wav, speech, rate, subtype="PCM_16")
        for path in (mp3, flac):
            subprocess.run(["ffmpeg", "-v", "error", "-i", wav, "-b:a", "128k", path], check=True)
        soundfile.write(mono, soxr.resample(speech.mean(axis=1), rate, 16000), 16000, subtype="PCM_16")
        wave = soundfile.read(mono, dtype="float32")[0]
        gemma4, gemma3n, whisper = Gemma4AudioFeatureExtractor(), Gemma3nAudioFeatureExtractor(), WhisperFeatureExtractor()
        mel = dict(sr=16000, n_fft=512, win_length=320, hop_length=160, power=1.0, n_mels=128, htk=True, norm=None)
        race("Gemma 4 features of 30 s", "transformers", {
            "transformers": timed(lambda: gemma4([wave])),
            "librosa, a comparable spectrogram": timed(lambda: np.log(librosa.feature.melspectrogram(y=wave, **mel) + 1e-3)),
            "ours": peer(do="mel_gemma4", file=mono),
        })
        race("Gemma 3n features of 30 s", "transformers", {
            "transformers": timed(lambda: gemma3n([wave])),
            "ours": peer(do="mel_gemma3n", file=mono),
        })
        race("Whisper features of 30 s", "transformers (torch)", {
            "transformers (torch)": timed(lambda: whisper(wave, sampling_rate=16000)),
            "ours": peer(do="mel_whisper", file=mono),
        })
        native = soundfile.read(wav, dtype="float32")[0].mean(axis=1).astype(np.float32)
        race("resample 30 s from 44.1 to 16 kHz", "soxr HQ (Python)", {
            "soxr HQ (Python)": timed(lambda: soxr.resample(native, rate, 16000, quality="HQ")),
            "mlx-audio": timed(lambda: resample_audio_array(native, rate, 16000)),
            "ours, Kaiser": peer(do="audio_resample", file=wav),
            "ours, mlx-audio's parameters": peer(do="audio_resample", file=wav, resampler="mlx-audio"),
            "ours, soxr": peer(do="audio_resample", file=wav, resampler="soxr"),
        })
        for name, path in (("MP3", mp3), ("FLAC", flac), ("WAV", wav)):
            def mlx():
                samples, found = mlx_read(path, dtype="float32")
                return resample_audio_array(np.asarray(samples, np.float32).mean(axis=1), found, 16000)

            race(f"decode 30 s of stereo {name}", "libsndfile (Python)", {
                "libsndfile (Python)": timed(lambda: soundfile.read(path, dtype="float32")),
                "ours": peer(do="audio_decode", file=path),
            })
            race(f"{name} bytes of 30 s, stereo, 44.1 kHz, to Gemma 4 features", "librosa + transformers", {
                "librosa + transformers": timed(lambda: gemma4([librosa.load(path, sr=16000)[0]])),
                "load_audio (soundfile) + transformers": timed(lambda: gemma4([load_audio(path, backend="soundfile")])),
                "mlx-audio + transformers": timed(lambda: gemma4([mlx()])),
                "ours": peer(do="audio_gemma4", file=path),
                "ours, mlx-audio's parameters": peer(do="audio_gemma4", file=path, resampler="mlx-audio"),
                "ours, soxr": peer(do="audio_gemma4", file=path, resampler="soxr"),
            })
    with open(f"/proc/{PEER.pid}/status") as status:
        print("\npeak memory of our side, all of the above:", next(line for line in status if "VmHWM" in line).strip())
    PEER.stdin.close()


main()
