"""Trains the demo's model from random weights and packs it: one command, one GPU.

    python train.py --out OUT                                      the real thing: under 10 minutes
    python train.py --out OUT --seconds 20 --tests 50 --compare    does it work on this machine?

Writes OUT/checkpoint.tar (the packed checkpoint, at intervals and at the end), OUT/log.txt and
OUT/result.json. See README.md.
"""

import time

BEGAN = time.time()

import argparse
import json
import math
import os
import sys
import tempfile
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
import testing
import tokens
from counter import Counter
from scenes import GRIDS

ARGUMENTS = argparse.ArgumentParser(description=__doc__.splitlines()[0])
ARGUMENTS.add_argument("--out", default=os.environ.get("OUT", "out"))
ARGUMENTS.add_argument("--seconds", type=float, default=500, help="of training")
ARGUMENTS.add_argument("--wall", type=float, default=575, help="seconds for everything")
ARGUMENTS.add_argument("--rows", type=int, default=128, help="in a batch, of four questions each")
ARGUMENTS.add_argument("--rate", type=float, default=1.5e-3, help="the highest learning rate")
ARGUMENTS.add_argument("--seed", type=int, default=0)
ARGUMENTS.add_argument("--workers", type=int, default=max(1, min(14, (os.cpu_count() or 2) - 1)))
ARGUMENTS.add_argument("--tests", type=int, default=1000, help="samples of each kind at the end")
ARGUMENTS.add_argument("--eager", action="store_true", help="without torch.compile")
ARGUMENTS.add_argument("--compare", action="store_true", help="time and profile first")
# Kept for packing and testing.
RESERVE = 50
WARM_UP = 200  # steps
TEST_SEED = 2026
HELD_OUT_KINDS = ["one", "two", "three", "clip", "both"]
# (kind, mode) of the further tests.
MODES = [
    ("one", "think"), ("two", "think"), ("clip", "think"), ("one", "json"), ("clip", "json"),
    ("one", "tools"), ("clip", "tools"), ("text", "tools"), ("text", "plain"),
]  # fmt: skip
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


class Batches(IterableDataset):
    def __init__(self, prompts, seed, size):
        self.prompts, self.seed, self.size = prompts, seed, size

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        r = Counter(self.seed, f"training/{info.id if info else 0}")
        while True:
            yield rows.training_batch(self.prompts, r, self.size)


class Log:
    def __init__(self, path):
        self.file = open(path, "w")

    def __call__(self, *words):
        line = f"[{time.time() - BEGAN:6.1f}] " + " ".join(str(w) for w in words)
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


def to_device(batch):
    return batch.tensors(lambda t: t.to(DEVICE, non_blocking=True))


def loss_of(forward, batch):
    m = forward.m
    with torch.no_grad():
        drawn = [
            (drawing.patches(forward.render(tiles, rest, *grid), *grid), grid)
            for grid, tiles, rest, _ in batch.pictures
        ]
        features = testing.sound(batch) if batch.clips else None
    with torch.autocast(DEVICE, torch.bfloat16, enabled=CUDA):
        images = [forward.pictures(*patches, grid) for patches, grid in drawn]
        sounds = forward.clips(*features) if features else None
        logits = forward.logits(
            batch.ids,
            batch.positions,
            batch.segments,
            torch.cat(images) if images else None,
            sounds,
            batch.at,
        )
    return torch.nn.functional.cross_entropy(logits, batch.targets), m


def make_optimiser(m, rate):
    is_matrix = lambda n, p: p.ndim >= 2 and "embed_tokens" not in n and "position" not in n
    matrices = [p for n, p in m.named_parameters() if is_matrix(n, p)]
    rest = [p for n, p in m.named_parameters() if not is_matrix(n, p)]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=CUDA)


def step(forward, optimiser, batch):
    loss, m = loss_of(forward, batch)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    optimiser.step()
    return loss.detach(), norm


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
        images = [
            forward_picture(m, grid, tiles, rest) for grid, tiles, rest, _ in batch.pictures
        ]
        plain = model.Forward(m, False)
        ours = plain.logits(
            batch.ids,
            batch.positions,
            batch.segments,
            torch.cat(images) if images else None,
            plain.clips(*testing.sound(batch)) if batch.clips else None,
            batch.at,
        )
        worst = max(worst, (ours - theirs).abs().max().item())
    log(f"largest difference of our logits from transformers': {worst:.2e}")
    return worst


def forward_picture(m, grid, tiles, rest):
    patches = drawing.patches(drawing.render(tiles, rest, *grid), *grid)
    return model.Forward(m, False).pictures(*patches, grid)


def synchronise():
    if CUDA:
        torch.cuda.synchronize()


def time_steps(forward, optimiser, batches, count):
    """Seconds a step, without the waiting for data."""
    held = [to_device(next(batches)) for _ in range(count)]
    synchronise()
    began = time.time()
    for batch in held:
        step(forward, optimiser, batch)
    synchronise()
    return (time.time() - began) / count


def profile(forward, optimiser, batches):
    """What takes the time of five steps on the GPU."""
    held = [to_device(next(batches)) for _ in range(5)]
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profiler:
        for batch in held:
            step(forward, optimiser, batch)
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
                num_workers=a.workers,
                prefetch_factor=4 if a.workers else None,
                pin_memory=CUDA,
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

    def compile(self):
        """The compiled forward pass, tried on a few batches, or the plain one if it fails."""
        plain = model.Forward(self.m, False)
        optimiser = make_optimiser(self.m, 0.0)
        if self.a.compare:
            time_steps(plain, optimiser, self.batches, 3)
            seconds = time_steps(plain, optimiser, self.batches, 20)
            self.log(f"eager: {seconds:.4f} s a step")
        if self.a.eager:
            return plain
        try:
            import torch._dynamo

            # Each layer type, shared or not, with gradients or without, is a variant.
            for name in ("cache_size_limit", "recompile_limit"):
                if hasattr(torch._dynamo.config, name):
                    setattr(torch._dynamo.config, name, 64)
            compiled = model.Forward(self.m, True)
            self.compile_drawing(compiled)
            time_steps(compiled, optimiser, self.batches, 3)
            batch = to_device(next(self.batches))
            with torch.no_grad():
                losses = [loss_of(f, batch)[0].item() for f in (plain, compiled)]
            self.log(f"compiled; the loss of a batch, eager and compiled: {losses}")
            if abs(losses[0] - losses[1]) > 0.02 * losses[0]:
                raise ValueError("the compiled pass gives another loss")
            seconds = time_steps(compiled, optimiser, self.batches, 20 if self.a.compare else 3)
            self.log(f"compiled: {seconds:.4f} s a step")
            if self.a.compare and CUDA:
                self.log(profile(compiled, optimiser, self.batches))
            return compiled
        except Exception:
            self.log(f"compiling failed, going on without:\n{traceback.format_exc()}")
            return plain

    def compile_drawing(self, forward):
        """Draws by a compiled function, if that gives the same pixels."""
        drawn = torch.compile(drawing.render, dynamic=True)
        for grid in ((8, 8), (9, 7)):
            batch = rows.test_batch(self.prompts, 1, "one", range(6), grid=grid)
            for grid, tiles, rest, _ in to_device(batch).pictures:
                if not torch.equal(drawn(tiles, rest, *grid), drawing.render(tiles, rest, *grid)):
                    self.log("compiled drawing differs: drawing eagerly")
                    return
        forward.render = drawn

    def train(self):
        a, log = self.a, self.log
        forward = self.compile()
        optimiser = make_optimiser(self.m, a.rate)
        began = time.time()
        seconds = min(a.seconds, BEGAN + a.wall - RESERVE - began)
        log(f"training for {seconds:.0f} s")
        count, waited, losses, packed, tested = 0, 0.0, [], 0, 0
        while True:
            # Packing and testing on the way take part of the time, not of the schedule's end.
            done = (time.time() - began) / seconds
            if done >= 1:
                break
            rate = a.rate * min(1, (count + 1) / WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * done))
            for group in optimiser.param_groups:
                group["lr"] = rate + 1e-6
            before = time.time()
            batch = to_device(next(self.batches))
            waited += time.time() - before
            loss, norm = step(forward, optimiser, batch)
            count += 1
            losses.append(loss)
            if count % 100 == 0:
                mean = torch.stack(losses[-100:]).mean().item()
                log(
                    f"step {count}, {time.time() - began:.0f} s, waited {waited:.1f} s, "
                    f"loss {mean:.4f}, gradient {norm.item():.2f}, rate {rate:.2e}"
                )
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
        log(f"trained {count} steps, waited {waited:.1f} s")
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


def main():
    a = ARGUMENTS.parse_args()
    Path(a.out).mkdir(parents=True, exist_ok=True)
    log = Log(Path(a.out) / "log.txt")
    log(f"torch {torch.__version__}, transformers {transformers.__version__}, {vars(a)}")
    if CUDA:
        log(torch.cuda.get_device_name())
    trainer = Trainer(a, log)
    set_precision(False)
    if check_forward(trainer.m, trainer.prompts, log) > 1e-2:
        sys.exit("our forward pass differs from transformers'")
    trainer.clip(False)
    set_precision(True)
    trainer.train()
    packing.extend_positions(trainer.m, 3 * max(grid[0] for grid, _ in GRIDS))
    trainer.pack()
    trainer.final_tests()
    trainer.check_packed()
    log("done")


if __name__ == "__main__":
    main()
