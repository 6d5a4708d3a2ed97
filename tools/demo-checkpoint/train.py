"""Trains the demo's model from random weights and packs it: one command, one GPU.

    python train.py --out OUT                                      the real thing: under 10 minutes
    python train.py --out OUT --seconds 20 --tests 50 --compare    does it work on this machine?

Writes OUT/checkpoint.tar (the packed checkpoint, at intervals and at the end), OUT/log.txt and
OUT/result.json. See README.md.
"""

import sys
import time

# A program that started itself anew goes on with the first one's clock.
BEGAN = float(sys.argv[sys.argv.index("--began") + 1]) if "--began" in sys.argv else time.time()

import argparse
import json
import math
import os
import tempfile
import threading
import traceback
from pathlib import Path

import torch
import transformers
import transformers.models.gemma4.modeling_gemma4 as gemma4
from torch.utils.data import DataLoader, IterableDataset
from transformers import AutoConfig, Gemma4ForConditionalGeneration

import drawing
import model
import packing
import rows
import steps
import testing
import tokens
from counter import Counter
from scenes import GRIDS

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
MODES_OF_TRAINING = ["both", "graphs", "compiled", "eager"]

ARGUMENTS = argparse.ArgumentParser(description=__doc__.splitlines()[0])
ARGUMENTS.add_argument("--out", default=os.environ.get("OUT", "out"))
ARGUMENTS.add_argument("--seconds", type=float, default=500, help="of training")
ARGUMENTS.add_argument("--wall", type=float, default=575, help="seconds for everything")
ARGUMENTS.add_argument("--rows", type=int, default=128, help="in a batch, of four questions each")
ARGUMENTS.add_argument("--rate", type=float, default=1.5e-3, help="the highest learning rate")
ARGUMENTS.add_argument("--seed", type=int, default=0)
ARGUMENTS.add_argument("--workers", type=int, default=max(1, min(14, (os.cpu_count() or 2) - 1)))
ARGUMENTS.add_argument("--tests", type=int, default=1000, help="samples of each kind at the end")
ARGUMENTS.add_argument(
    "--mode",
    choices=MODES_OF_TRAINING,
    default=MODES_OF_TRAINING[0] if CUDA else "eager",
    help="CUDA graphs of compiled layers, graphs alone, compiled layers alone, neither; one that "
    "fails is followed by the next",
)
ARGUMENTS.add_argument("--compare", action="store_true", help="profile first")
ARGUMENTS.add_argument("--began", type=float, help="for this program alone: when it first started")
# Seconds kept for packing and testing, and allowed for compiling and recording.
RESERVE = 50
PATIENCE = 170
WARM_UP = 200  # steps
TEST_SEED = 2026
HELD_OUT_KINDS = ["one", "two", "three", "clip", "both"]
# (kind, mode) of the further tests.
MODES = [
    ("one", "think"), ("two", "think"), ("clip", "think"), ("one", "json"), ("clip", "json"),
    ("one", "tools"), ("clip", "tools"), ("text", "tools"), ("text", "plain"),
]  # fmt: skip


class Batches(IterableDataset):
    """(size of the pictures, a batch as one tensor)"""

    def __init__(self, prompts, seed, size):
        self.prompts, self.seed, self.size = prompts, seed, size

    def __iter__(self):
        torch.set_num_threads(1)
        info = torch.utils.data.get_worker_info()
        r = Counter(self.seed, f"training/{info.id if info else 0}")
        while True:
            yield steps.flat(rows.training_batch(self.prompts, r, self.size))


class Log:
    def __init__(self, path, how):
        self.file = open(path, how)

    def __call__(self, *words):
        line = f"[{time.time() - BEGAN:6.1f}] " + " ".join(str(w) for w in words)
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


def to_device(batch):
    return batch.tensors(lambda t: t.to(DEVICE, non_blocking=True))


@torch.no_grad()
def check_forward(m, prompts, log):
    """The largest difference of our logits from transformers', in f32."""
    worst = 0.0
    batches = [
        rows.test_batch(prompts, 1, kind, range(6), grid=grid)
        for kind, grid in (("one", (9, 7)), ("two", (8, 8)), ("clip", None), ("both", (5, 14)))
    ]
    for batch in batches:
        batch = to_device(batch)
        theirs = testing.logits(m, batch).flatten(0, 1)[batch.at]
        plain = model.Forward(m, False)
        ours = plain.logits(
            batch.ids,
            batch.positions,
            batch.segments,
            torch.cat([plain.pictures(*drawn) for drawn in pictures(batch)] + sounds(plain, batch)),
            batch.places,
            batch.at,
        )
        worst = max(worst, (ours - theirs).abs().max().item())
    log(f"largest difference of our logits from transformers': {worst:.2e}")
    return worst


def pictures(batch):
    for grid, tiles, rest, _ in batch.pictures:
        yield *drawing.patches(drawing.render(tiles, rest, *grid), *grid), grid


def sounds(forward, batch):
    return [forward.clips(*testing.sound(batch))] if batch.clips else []


def synchronise():
    if CUDA:
        torch.cuda.synchronize()


def agree(one, other):
    """Loss and gradient of the same batch and weights are the same to bfloat16's accuracy."""
    for a, b, tolerance in zip(one, other, (0.02, 0.1)):
        if not abs(a - b) <= tolerance * abs(a):
            raise ValueError(f"{one} is not {other}")


def profile(taker, samples):
    """What takes the time of five steps."""
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profiler:
        for grid, _ in GRIDS[:5]:
            taker.take(grid, samples[grid])
        synchronise()
    averages = profiler.key_averages()
    return averages.table(sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=60)


def set_precision(fast):
    torch.backends.cuda.matmul.allow_tf32 = fast
    torch.backends.cudnn.allow_tf32 = fast


def test(m, prompts, kind, mode, count, turns=1, held_out=True):
    """{task: (right, asked)} over samples 0 to `count` of a test set."""
    total = {}
    for first in range(0, count, 250):
        indices = range(first, min(first + 250, count))
        batch = rows.test_batch(prompts, TEST_SEED, kind, indices, mode, held_out, turns)
        for key, (right, asked) in testing.evaluate(m, to_device(batch)).items():
            old = total.get(key, (0, 0))
            total[key] = (old[0] + right, old[1] + asked)
    return total


class Trainer:
    def __init__(self, a, log):
        self.a, self.log, self.out = a, log, Path(a.out)
        self.work = Path(tempfile.mkdtemp())
        tokenizer_file = self.work / "tokenizer.json"
        vocabulary = -(-tokens.train(tokenizer_file) // 32) * 32
        self.tokenizer_file = tokenizer_file
        self.prompts = rows.Prompts(tokenizer_file)
        # The workers are started before CUDA is.
        self.batches = iter(
            DataLoader(
                Batches(self.prompts, a.seed, a.rows),
                batch_size=None,
                # Otherwise the size of the pictures becomes a list.
                collate_fn=lambda item: item,
                num_workers=a.workers,
                prefetch_factor=4 if a.workers else None,
            )
        )
        next(self.batches)
        log(f"vocabulary {vocabulary}, first batch made")
        self.config = model.config(vocabulary, self.prompts.id)
        packing.write_json(self.work / "config.json", self.config)
        torch.manual_seed(a.seed)
        m = Gemma4ForConditionalGeneration(AutoConfig.from_pretrained(self.work)).float()
        model.initialise(m)
        self.m = m.to(DEVICE).eval()
        count = lambda part: sum(p.numel() for p in part.parameters())
        log(
            f"{count(m)} parameters: text {count(m.model.language_model)}, "
            f"vision {count(m.model.vision_tower)}, audio {count(m.model.audio_tower)}"
        )
        self.clipped = [x for x in m.modules() if isinstance(x, gemma4.Gemma4ClippableLinear)]

    def clip(self, on):
        """While the bounds are infinite, clamping is a waste."""
        for layer in self.clipped:
            layer.use_clipped_linears = on

    def pack(self):
        """Sets the bounds of the clipped linears and writes the archive."""
        # Every size of picture is among these.
        sets = [("one", "plain", grid, 12) for grid, _ in GRIDS]
        sets += [(kind, "plain", None, 96) for kind in HELD_OUT_KINDS]

        def run():
            for kind, mode, grid, count in sets:
                if self.a.tests < 20:
                    count = 2
                batch = rows.test_batch(
                    self.prompts, self.a.seed + 7, kind, range(count), mode, False, 1, grid
                )
                testing.logits(self.m, to_device(batch))

        self.clip(False)
        packing.set_clip_bounds(self.m, run)
        size = packing.write(
            self.work / "checkpoint", self.m, self.config, self.tokenizer_file,
            self.out / "checkpoint.tar",
        )  # fmt: skip
        self.log(f"packed: model.safetensors has {size} bytes")

    def report(self, name, kind, mode, count, **options):
        """One test set, logged: the share of right answers by task."""
        share = testing.share(test(self.m, self.prompts, kind, mode, count, **options))
        self.log(f"{name}: {kind}/{mode} {json.dumps(share)}")
        return share

    def prepare(self):
        """What takes a step, by `a.mode`, tried on a batch of each size of picture."""
        a, log = self.a, self.log
        set_precision(True)
        taker = steps.Taker(self.m, a.rows, a.mode in ("both", "compiled"))
        samples = {}
        r = Counter(a.seed, "preparation")
        for grid, _ in GRIDS:
            samples[grid] = steps.flat(rows.training_batch(self.prompts, r, a.rows, grid))[1]
        grid = GRIDS[0][0]
        plain = taker.plain(grid, samples[grid])
        first = taker.eager(grid, samples[grid])
        log(f"loss and gradient of a batch: plain {plain}, as trained {first}")
        agree(plain, first)
        if a.mode in ("both", "graphs"):
            for grid, _ in GRIDS:
                before = taker.eager(grid, samples[grid])
                taker.record(grid)
                after = taker.replay(grid, samples[grid])
                log(f"recorded {grid}: {before} {after}")
                agree(before, after)
        few = [grid for grid, _ in GRIDS[:5]] if CUDA else [grid, grid]
        for grid in few:
            taker.take(grid, samples[grid])
        synchronise()
        began = time.time()
        for grid in few:
            taker.take(grid, samples[grid])
        synchronise()
        log(f"{(time.time() - began) / len(few):.4f} s a step")
        if a.compare and CUDA:
            log(profile(taker, samples))
        taker.forget()
        return taker

    def train(self, taker):
        a, log = self.a, self.log
        began = time.time()
        seconds = min(a.seconds, BEGAN + a.wall - RESERVE - began)
        log(f"training for {seconds:.0f} s")
        count, waited, packed, tested = 0, 0.0, 0, 0
        while True:
            # Packing and testing on the way take part of the time, not of the schedule's end.
            done = (time.time() - began) / seconds
            if done >= 1:
                break
            warm = min(1, (count + 1) / WARM_UP)
            taker.rate(1e-6 + a.rate * warm * (0.5 + 0.5 * math.cos(math.pi * done)))
            before = time.time()
            grid, numbers = next(self.batches)
            waited += time.time() - before
            taker.take(grid, numbers)
            count += 1
            if count % 100 == 0:
                loss, norm = taker.means(100)
                passed = time.time() - began
                log(
                    f"step {count}, {passed:.0f} s, {passed / count:.4f} s a step, waited "
                    f"{waited:.1f} s for data, {taker.waited:.1f} s for the GPU; "
                    f"loss {loss:.4f}, gradient {norm:.2f}"
                )
                if not math.isfinite(loss):
                    raise ValueError("the loss is not finite")
            if int(4 * done) > tested:
                tested = int(4 * done)
                self.clip(False)
                for kind in HELD_OUT_KINDS:
                    self.report(f"at {done:.2f}", kind, "plain", min(128, a.tests))
            # In case that the machine is taken away.
            if int(4 * done) > packed and done > 0.5:
                packed = int(4 * done)
                self.pack()
                self.clip(False)
        synchronise()
        log(f"trained {count} steps")
        return count

    def final_tests(self):
        """Of the weights as packed: rounded to bfloat16, bounds set, computed in f32."""
        set_precision(False)
        self.clip(True)
        with torch.no_grad():
            for p in self.m.state_dict().values():
                if p.is_floating_point():
                    p.copy_(p.to(torch.bfloat16))
        results = {}
        for kind in HELD_OUT_KINDS:
            results[kind] = self.report("held out", kind, "plain", self.a.tests)
            self.save(results)
        for kind, mode in MODES:
            if self.left() < 12:
                self.log("no time for more tests")
                break
            results[f"{kind}/{mode}"] = self.report("held out", kind, mode, self.a.tests // 4)
        for kind in ("one", "two", "clip", "both"):
            if self.left() < 12:
                break
            n = self.a.tests // 4
            results[f"{kind} in 3 turns"] = self.report(
                "held out, 3 turns", kind, "plain", n, turns=3
            )
            results[f"{kind} seen"] = self.report("seen", kind, "plain", n, held_out=False)
        self.save(results)

    def save(self, results):
        (self.out / "result.json").write_text(json.dumps(results, indent=1) + "\n")

    def left(self):
        return BEGAN + self.a.wall - time.time()

    @torch.no_grad()
    def check_packed(self):
        """The packed checkpoint, as transformers loads it, gives the logits of the model here."""
        loaded, info = Gemma4ForConditionalGeneration.from_pretrained(
            self.work / "checkpoint", dtype=torch.float32, output_loading_info=True
        )
        wrong = {key: value for key, value in info.items() if value}
        batch = to_device(rows.test_batch(self.prompts, 1, "both", range(4)))
        theirs = testing.logits(loaded.to(DEVICE).eval(), batch)
        difference = (theirs - testing.logits(self.m, batch)).abs().max().item()
        self.log(f"loaded again: {wrong or 'no key missing'}, difference {difference:.2e}")


def restart(trainer, a, log, why):
    """The program anew, in the next of the modes, for the time that is left."""
    following = MODES_OF_TRAINING[MODES_OF_TRAINING.index(a.mode) + 1 :]
    if not following or a.wall - (time.time() - BEGAN) < 150:
        sys.exit(f"no other mode or no time left: {why}")
    log(f"{a.mode} failed, going on with {following[0]}:\n{why}")
    for worker in getattr(trainer.batches, "_workers", []):
        worker.kill()
    changed = ["--mode", following[0], "--began", str(BEGAN)]
    if CUDA and following[0] in ("compiled", "eager"):
        # A step's time is that of starting its kernels: more rows cost little.
        changed += ["--rows", "256"]
    os.execv(sys.executable, [sys.executable, *sys.argv, *changed])


def main():
    a = ARGUMENTS.parse_args()
    Path(a.out).mkdir(parents=True, exist_ok=True)
    log = Log(Path(a.out) / "log.txt", "a" if a.began else "w")
    log(f"torch {torch.__version__}, transformers {transformers.__version__}, {vars(a)}")
    trainer = Trainer(a, log)
    if CUDA:
        log(torch.cuda.get_device_name())
    set_precision(False)
    if check_forward(trainer.m, trainer.prompts, log) > 1e-2:
        sys.exit("our forward pass differs from transformers'")
    trainer.clip(False)
    # A hanging preparation would cost the whole run.
    late = threading.Timer(PATIENCE, restart, (trainer, a, log, "the preparation takes too long"))
    late.daemon = True
    late.start()
    try:
        taker = trainer.prepare()
        late.cancel()
        trainer.train(taker)
    except Exception:
        restart(trainer, a, log, traceback.format_exc())
    packing.extend_positions(trainer.m, 3 * max(grid[0] for grid, _ in GRIDS))
    trainer.pack()
    trainer.final_tests()
    trainer.check_packed()
    log("done")


if __name__ == "__main__":
    main()
