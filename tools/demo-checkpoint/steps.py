"""Steps of the training: a batch as one tensor, the update, and its record as a CUDA graph.

The model is so small that starting a step's thousands of kernels takes longer than running them.
A CUDA graph starts them all at once, but knows one shape only: so all batches with pictures of one
size have one shape (`rows.training_batch`), and each size has its graph.
"""

import time

import drawing
import model
import rows
import testing
import torch
from torch.nn.functional import cross_entropy

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
# So many batches are under way to the GPU at most.
AHEAD = 4


def fields(batch):
    """The numbers of a batch of the training."""
    ((_, tiles, rest, _),) = batch.pictures
    return [
        batch.ids, batch.positions, batch.segments, batch.places, batch.at, batch.targets,
        tiles, rest, *batch.clips,
    ]  # fmt: skip


def flat(batch):
    """(the size of its pictures, its numbers in one tensor): one copy instead of ten."""
    return batch.pictures[0][0], torch.cat([t.flatten() for t in fields(batch)])


def shapes(size, grid):
    """The shapes of `fields`."""
    kinds = rows.composition(size)
    pictures = kinds["one"] + 2 * kinds["two"] + 3 * kinds["three"] + kinds["both"]
    clips = kinds["clip"] + kinds["both"]
    row, labels = (size, rows.LENGTH), (rows.LABELS * size,)
    soft = (pictures * grid[0] * grid[1] + clips * rows.CLIP_SLOTS,)
    media = [(pictures, 9, 7), (pictures, 5), (clips, 4, 4), (clips, 3)]
    return [row, row, row, soft, labels, labels, *media]


class Inputs:
    """Where the batches with pictures of one size lie on the device."""

    def __init__(self, size, grid):
        self.grid = grid
        every = shapes(size, grid)
        lengths = [torch.Size(shape).numel() for shape in every]
        self.numbers = torch.zeros(sum(lengths), dtype=torch.long, device=DEVICE)
        parts = [t.view(s) for t, s in zip(self.numbers.split(lengths), every)]
        *self.text, self.tiles, self.rest, self.beeps, self.clip_rest = parts
        self.drawn = None

    @torch.no_grad()
    def draw(self):
        """Draws the media of the numbers. The tensors stay where they are: the graph reads them."""
        values, self.where = drawing.patches(
            drawing.render(self.tiles, self.rest, *self.grid), *self.grid
        )
        wave = drawing.samples(self.beeps, self.clip_rest, drawing.LONGEST)
        features, valid = drawing.mel(wave.float() / 32768, self.clip_rest[:, 0])
        if self.drawn is None:
            self.drawn = [t.clone() for t in (values, features, valid)]
        else:
            for mine, new in zip(self.drawn, (values, features, valid)):
                mine.copy_(new)


class Taker:
    """Takes steps, recorded or not."""

    def __init__(self, m, size, compiled):
        self.m, self.size = m, size
        if CUDA:
            # Plans of cuDNN's attention are slow to make; and a graph can't be recorded on the
            # default stream, so everything is on this one.
            torch.backends.cuda.enable_cudnn_sdp(False)
            torch.cuda.synchronize()
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)
        if compiled:
            from torch import _dynamo

            # Each type of layer, shared or not, is a variant.
            _dynamo.config.recompile_limit = 64
        self.forwards = [model.Forward(m, False), model.Forward(m, compiled)]
        self._rate = torch.zeros((), device=DEVICE)
        self.optimiser = make_optimiser(m, self._rate)
        self.inputs, self.graphs, self.pool = {}, {}, None
        # The loss and the gradient's norm of the last step, and their sums.
        self.result, self.sum = torch.zeros(2, device=DEVICE), torch.zeros(2, device=DEVICE)
        # Copies to the GPU are from these, in turn.
        longest = max(
            sum(torch.Size(s).numel() for s in shapes(size, grid)) for grid, _ in rows.GRIDS
        )
        self.host = [torch.zeros(longest, dtype=torch.long, pin_memory=CUDA) for _ in range(AHEAD)]
        self.copied = [torch.cuda.Event() for _ in range(AHEAD)] if CUDA else []
        self.count, self.waited = 0, 0.0

    def rate(self, value):
        self._rate.fill_(value)

    def bring(self, grid, numbers):
        """Copies a batch to the device and draws its media."""
        if grid not in self.inputs:
            self.inputs[grid] = Inputs(self.size, grid)
        to = self.inputs[grid]
        if CUDA:
            slot = self.count % AHEAD
            before = time.time()
            if self.count >= AHEAD:
                self.copied[slot].synchronize()
            self.waited += time.time() - before
            host = self.host[slot][: len(numbers)]
            host.copy_(numbers)
            to.numbers.copy_(host, non_blocking=True)
            self.copied[slot].record()
        else:
            to.numbers.copy_(numbers)
        self.count += 1
        to.draw()
        return to

    def update(self, forward, x):
        ids, positions, segments, places, at, targets = x.text
        values, features, valid = x.drawn
        with torch.autocast(DEVICE, torch.bfloat16, enabled=CUDA):
            soft = torch.cat(
                (forward.pictures(values, x.where, x.grid), forward.clips(features, valid))
            )
            logits = forward.logits(ids, positions, segments, soft, places, at)
        loss = cross_entropy(logits, targets, ignore_index=rows.IGNORED)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.m.parameters(), 1.0)
        self.optimiser.step()
        self.result[0].copy_(loss.detach())
        self.result[1].copy_(norm)

    def plain(self, grid, numbers):
        """A step of the plain forward pass: (loss, norm of the gradient)."""
        self.update(self.forwards[0], self.bring(grid, numbers))
        return self.result.tolist()

    def eager(self, grid, numbers):
        """A step that is not recorded."""
        self.update(self.forwards[1], self.bring(grid, numbers))
        return self.result.tolist()

    def record(self, grid):
        """Records the step for pictures of a size. One such step must have been taken."""
        graph = torch.cuda.CUDAGraph()
        self.optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
            self.update(self.forwards[1], self.inputs[grid])
        # Graphs never run at once, and none reads what another leaves: they share their memory.
        self.pool = self.pool or graph.pool()
        self.graphs[grid] = graph

    def replay(self, grid, numbers):
        self.take(grid, numbers)
        return self.result.tolist()

    def take(self, grid, numbers):
        """A step, by the graph if there is one; nothing waits for its end."""
        x = self.bring(grid, numbers)
        if grid in self.graphs:
            self.graphs[grid].replay()
        else:
            self.update(self.forwards[1], x)
        self.sum += self.result

    def means(self, count):
        """(loss, norm of the gradient), the means over the last `count` steps."""
        means = (self.sum / count).tolist()
        self.sum.zero_()
        return means

    def forget(self):
        """Undoes what steps at rate zero did: the optimiser's moments and counts."""
        for state in self.optimiser.state.values():
            for tensor in state.values():
                tensor.zero_()
        self.sum.zero_()
        self.waited = 0.0


def make_optimiser(m, rate):
    is_matrix = lambda n, p: p.ndim >= 2 and "embed_tokens" not in n and "position" not in n
    matrices = [p for n, p in m.named_parameters() if is_matrix(n, p)]
    rest = [p for n, p in m.named_parameters() if not is_matrix(n, p)]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=CUDA, capturable=CUDA)
