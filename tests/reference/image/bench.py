#!/usr/bin/env python3
"""Times prefill-media-preprocess and its peers in one run, in alternating rounds, best of all rounds.

Ratios are of processor time, on one thread each; of wall time for several threads.

Needs pillow, numpy, torch, torchvision and transformers; hf-processors-rs if it is importable.
Build first: cargo build --release -p prefill-media-preprocess --example bench_peer
Usage: bench.py [ROUNDS]
"""
import io
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import PIL
import torch
import transformers
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional as tvf
from transformers.models.gemma4.image_processing_gemma4 import Gemma4ImageProcessor
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

torch.set_num_threads(1)
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
PEER = subprocess.Popen(
    [os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "release/examples/bench_peer")],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)


def ours(**command):
    PEER.stdin.write(json.dumps(command) + "\n")
    PEER.stdin.flush()
    return json.loads(PEER.stdout.readline())


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
        ratios = f"{best[base][1] / cpu:6.2f} x {base}" if "threads" not in name else f"({best[base][0] / wall:.2f} x by wall time)"
        print(f"  {name:32} wall {wall * 1e3:8.2f} ms  cpu {cpu * 1e3:8.2f} ms  {ratios}")


def peer(**command):
    def run():
        answer = ours(**command)
        return answer["wall"], answer["cpu"]

    return run


def photo(w, h):
    """A photograph's worth of detail: smooth shapes and sensor noise, 4:2:0."""
    source = Image.open(os.path.join(ROOT, "crates/media-preprocess/tests/goldens/inputs/photo_161x123.png")).convert("RGB")
    pixels = np.asarray(source.resize((w, h), Image.BICUBIC)).astype(np.int16)
    pixels += np.random.default_rng(1).normal(0, 4, pixels.shape).astype(np.int16)
    out = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90, subsampling=2)
    return out.getvalue()


def main():
    print("Pillow", PIL.__version__, "transformers", transformers.__version__, "torch", torch.__version__, ours(do="about"))
    for w, h, ow, oh in [(4032, 3024, 960, 720), (640, 480, 912, 672), (1080, 2400, 528, 1200)]:
        noise = np.random.default_rng(2).integers(0, 256, (h, w, 3), dtype=np.uint8)
        image = Image.fromarray(noise)
        tensor = torch.from_numpy(noise).permute(2, 0, 1)
        size = dict(w=w, h=h, out_w=ow, out_h=oh)
        race(f"resize {w}x{h} to {ow}x{oh}, bicubic", "Pillow", {
            "Pillow": timed(lambda: image.resize((ow, oh), Image.BICUBIC)),
            "torchvision u8, channels last": timed(lambda: tvf.resize(tensor, [oh, ow], interpolation=tvf.InterpolationMode.BICUBIC, antialias=True)),
            "fast_image_resize (inexact)": peer(do="fir", **size),
            "ours, scalar": peer(do="resize", instructions="scalar", **size),
            "ours, AVX2": peer(do="resize", instructions="avx2", **size),
            "ours, best": peer(do="resize", **size),
            "ours, best, 2 threads": peer(do="resize", threads=2, **size),
        })
    with tempfile.TemporaryDirectory() as folder:
        for w, h in [(4032, 3024), (1280, 720)]:
            data = photo(w, h)
            path = os.path.join(folder, f"{w}x{h}.jpg")
            with open(path, "wb") as file:
                file.write(data)
            load = lambda: ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
            race(f"decode a JPEG of {w}x{h}, {len(data) // 1024} KiB", "Pillow", {
                "Pillow": timed(load), "ours": peer(do="decode", file=path),
            })
            pil, tv = Gemma4ImageProcessorPil(), Gemma4ImageProcessor()
            race(f"JPEG bytes of {w}x{h} to Gemma 4 patches (280 soft tokens)", "transformers, Pillow", {
                "transformers, Pillow": timed(lambda: pil(images=[load()])),
                "transformers, torchvision": timed(lambda: tv(images=[load()], return_tensors="pt")),
                "ours": peer(do="gemma4", file=path),
                "ours, 2 threads": peer(do="gemma4", file=path, threads=2),
            })
            q3 = dict(patch_size=16, size=dict(shortest_edge=65536, longest_edge=16777216), image_mean=[0.5] * 3, image_std=[0.5] * 3)
            pil, tv = Qwen2VLImageProcessorPil(**q3), Qwen2VLImageProcessor(**q3)
            runners = {
                "transformers, Pillow": timed(lambda: pil(images=[load()])),
                "transformers, torchvision": timed(lambda: tv(images=[load()], return_tensors="pt")),
                "ours": peer(do="qwen3", file=path),
                "ours, 2 threads": peer(do="qwen3", file=path, threads=2),
            }
            try:
                runners["hf-processors-rs"] = timed(hf_processors_rs(data, q3))
            except Exception as error:
                print("hf-processors-rs left out:", type(error).__name__, error)
            race(f"JPEG bytes of {w}x{h} to Qwen3-VL patches", "transformers, Pillow", runners)
    with open(f"/proc/{PEER.pid}/status") as status:
        print("\npeak memory of our side, all of the above:", next(line for line in status if "VmHWM" in line).strip())
    PEER.stdin.close()


def hf_processors_rs(data, config):
    import hf_processors_rs

    config = dict(config, image_processor_type="Qwen2VLImageProcessor", temporal_patch_size=2, merge_size=2)
    processor = hf_processors_rs.AutoImageProcessor.from_dict(config, backend="pil")
    processor(data, num_threads=1)
    return lambda: processor(data, num_threads=1)


main()
