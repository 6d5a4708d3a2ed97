"""Rows of token ids with labels, positions and segments, from samples.

A row's questions are either turns of one chat, or *parallel*: then each sees the media and itself
only, at the positions it would have alone. Parallel rows are single-turn rows of the same media
that share one encoding; in a chat, later answers can be copied from earlier ones.
"""

from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import torch
from tokenizers import Tokenizer

import drawing
import questions
from counter import Counter
from scenes import GRIDS

IGNORED = -100  # a label that the loss leaves out
CLIP_SLOTS = drawing.audio_tokens(drawing.LONGEST)
# Every batch of the training has one shape for a size of picture, so that a recorded CUDA graph
# fits: so many ids a row, and so many labels a row on average.
LENGTH, LABELS = 320, 52
MIX = [*questions.KINDS, ("text", 3)]


class Prompts:
    """A tokenizer and the chat template."""

    def __init__(self, tokenizer_file):
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file))
        environment = jinja2.Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        source = (Path(__file__).parent / "chat_template.jinja").read_text()
        self.template = environment.from_string(source)
        self._heads = {}

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def id(self, token):
        return self.tokenizer.token_to_id(token)

    def head(self, system, tools, thinks):
        """The ids of `<bos>` and the system turn, as the template writes them."""
        key = (system, tools, thinks)
        if key not in self._heads:
            messages = [{"role": "user", "content": ""}]
            if system:
                messages.insert(0, {"role": "system", "content": system})
            text = self.template.render(
                messages=messages,
                bos_token="<bos>",
                tools=[t for t in questions.TOOLS if t["function"]["name"] in tools] or None,
                enable_thinking=thinks,
            )
            self._heads[key] = self.ids(text.removesuffix("<|turn>user\n<turn|>\n"))
        return self._heads[key]


@dataclass
class Row:
    ids: list = field(default_factory=list)
    labels: list = field(default_factory=list)
    segments: list = field(default_factory=list)
    positions: list = field(default_factory=list)
    # (task, where the answer begins, where it ends) of each question.
    answers: list = field(default_factory=list)

    def add(self, ids, trained=False, segment=0, restart=None):
        """Appends ids, at the positions after the last one or from `restart` on."""
        first = restart if restart is not None else (self.positions[-1] + 1 if self.ids else 0)
        self.ids += ids
        self.labels += ids if trained else [IGNORED] * len(ids)
        self.segments += [segment] * len(ids)
        self.positions += range(first, first + len(ids))


def medium_ids(p, sample):
    """The placeholder ids of each medium, in order."""
    pictures, clips = iter(sample.pictures), iter(sample.clips)
    for kind in sample.media:
        if kind == "p":
            picture = next(pictures)
            count = picture.columns * picture.rows
            yield [p.id("<|image>")] + [p.id("<|image|>")] * count + [p.id("<image|>")]
        else:
            count = drawing.audio_tokens(next(clips).samples)
            yield [p.id("<|audio>")] + [p.id("<|audio|>")] * count + [p.id("<audio|>")]


def pieces(q, mode):
    """The text after `<|turn>model`, cut into (text, whether the model writes it)."""
    if mode == "think":
        return [(f"<|channel>thought\n{q.thought}\n<channel|>{q.answer}<turn|>", True)]
    call = questions.call_of(q) if mode == "tools" else None
    if call:
        text, name, result = call
        response = f"response:{name}{{value:{questions.quoted(result)}}}<tool_response|>"
        return [(f"{text}<|tool_response>", True), (response, False), (f"{q.answer}<turn|>", True)]
    return [(f"{q.answer}<turn|>", True)]


def build(p, sample, system="", tools=(), parallel=False, late=()):
    """One row. `late` are the indices of media that come with the second question of a chat."""
    row = Row()
    media = list(medium_ids(p, sample))
    first = [ids for i, ids in enumerate(media) if i not in late]
    row.add(p.head(system, tuple(tools), sample.mode == "think"))
    for turn, q in enumerate(sample.questions):
        segment = turn + 1 if parallel else 0
        if not parallel or turn == 0:
            row.add(p.ids("<|turn>user\n"))
            arriving = first if turn == 0 else [media[i] for i in late] if turn == 1 else []
            for ids in arriving:
                row.add(ids)
            base = row.positions[-1] + 1
        ask = p.ids(f"{q.text}<turn|>\n<|turn>model\n")
        row.add(ask, segment=segment, restart=base if parallel else None)
        begin = len(row.ids)
        for text, trained in pieces(q, sample.mode):
            row.add(p.ids(text), trained, segment)
        row.answers.append((q.task, begin, len(row.ids)))
        if not parallel:
            row.add(p.ids("\n"))
    return row


def draw_training_row(p, r, kind, grid, turns=4):
    """A sample of a kind and its row, of at most LENGTH ids."""
    while True:
        sample, tools, parallel, late = draw_training_sample(r, kind, grid, turns)
        system = r.choice(questions.SYSTEM) if r.chance(5) else ""
        while True:
            row = build(p, sample, system, tools, parallel, late)
            if len(row.ids) <= LENGTH:
                return sample, row
            # A medium that comes late needs its question.
            if len(sample.questions) == (2 if late else 1):
                break
            sample.questions.pop()


def draw_training_sample(r, kind, grid, turns):
    """A sample, the tools that it has, whether its questions are parallel, and which media come
    late."""
    if kind == "text":
        mode = "tools" if r.chance(35) else "plain"
        sample = questions.draw_text(r, turns, mode)
    else:
        mode = r.weighted([("plain", 89), ("think", 4), ("json", 4), ("tools", 3)])
        # These would be too long.
        turns = 2 if mode == "json" or (kind, mode) == ("three", "think") else turns
        turns = 3 if mode == "tools" or (kind, mode) == ("three", "plain") else turns
        sample = questions.draw_sample(r, kind, turns, False, mode, grid)
        if mode == "plain" and r.chance(5):
            # In a chat about pictures, a turn of another kind.
            odd = questions.missing(r, kind) if kind in ("one", "clip") else questions.talk(r)
            sample.questions[r.below(turns)] = odd
    tools = r.choice([("count", "draw"), ("count",), ("draw",)]) if mode == "tools" else ()
    if mode == "tools" and len(tools) == 1:
        kept = [q for q in sample.questions if allowed(q, tools)]
        if kept:
            sample.questions = kept
        else:
            tools = ("count", "draw")
    parallel = mode == "think" or r.chance(70)
    late = ()
    if not parallel and kind == "two" and mode == "plain" and r.chance(30):
        late = (1,)
        sample.questions[0] = questions.about_picture(r, sample.pictures[0], False)
    return sample, tools, parallel, late


def allowed(q, tools):
    """With one tool alone, a count is only called for if `count` is it, and so on."""
    call = questions.call_of(q)
    return call is None or call[1] in tools


@dataclass
class Batch:
    ids: torch.Tensor  # [rows, length]
    labels: torch.Tensor
    segments: torch.Tensor  # -1 where padded
    positions: torch.Tensor
    pictures: list  # (grid, tiles, rest, indices among all pictures), one for each size
    clips: tuple | None
    answers: list  # of each row
    kinds: list
    # The flat indices where the pictures' soft tokens go, in the order of `pictures`, then the
    # clips', CLIP_SLOTS each. What a clip has too many goes behind the last row.
    places: torch.Tensor
    at: torch.Tensor  # the flat indices of the places whose next id is trained
    targets: torch.Tensor  # those ids

    def tensors(self, move):
        """The same batch with `move` done to each tensor."""
        return Batch(
            *(move(t) for t in (self.ids, self.labels, self.segments, self.positions)),
            [(grid, move(tiles), move(rest), at) for grid, tiles, rest, at in self.pictures],
            self.clips and tuple(move(t) for t in self.clips),
            self.answers,
            self.kinds,
            move(self.places),
            move(self.at),
            move(self.targets),
        )


def collate(p, samples_and_rows, length=None, labelled=None):
    """A batch; of rows of `length` ids and `labelled` labels in all, if these are given."""
    samples = [s for s, _ in samples_and_rows]
    rows = [row for _, row in samples_and_rows]
    length = length or -(-max(len(row.ids) for row in rows) // 32) * 32

    def padded(name, value):
        lists = (getattr(row, name) for row in rows)
        return torch.tensor([x + [value] * (length - len(x)) for x in lists])

    ids = padded("ids", 0)
    flat = ids.flatten()

    pictures, grids, places = [x for s in samples for x in s.pictures], [], []
    soft = (flat == p.id("<|image|>")).nonzero()[:, 0].split([x.columns * x.rows for x in pictures])
    for grid, _ in GRIDS:
        indices = [i for i, x in enumerate(pictures) if (x.columns, x.rows) == grid]
        if indices:
            tiles, rest = drawing.numbers([pictures[i] for i in indices])
            grids.append((grid, tiles, rest, indices))
            places += [soft[i] for i in indices]
    clips = [x for s in samples for x in s.clips]
    counts = [drawing.audio_tokens(x.samples) for x in clips]
    for heard in (flat == p.id("<|audio|>")).nonzero()[:, 0].split(counts):
        behind = torch.full((CLIP_SLOTS - len(heard),), len(flat))
        places += [heard, behind]
    labels = padded("labels", IGNORED)
    following = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED).flatten()
    at = (following != IGNORED).nonzero()[:, 0]
    if labelled:
        # Filled up with places that have no label; none is there twice.
        at = torch.cat((at, (following == IGNORED).nonzero()[:, 0]))[:labelled]
    return Batch(
        ids,
        labels,
        padded("segments", -1),
        padded("positions", 0),
        grids,
        drawing.clip_numbers(clips) if clips else None,
        [row.answers for row in rows],
        [f"{s.kind}/{s.mode}" for s in samples],
        torch.cat(places) if places else torch.zeros(0, dtype=torch.long),
        at,
        following[at],
    )


def composition(size):
    """How many rows of each kind a batch has: the mix, rounded."""
    total = sum(weight for _, weight in MIX)
    counts = {kind: size * weight // total for kind, weight in MIX}
    counts["one"] += size - sum(counts.values())
    return counts


def training_batch(p, r, size, grid=None):
    """A batch whose pictures all have one size, so that nothing is padded. Its shape is a function
    of that size."""
    grid = grid or r.weighted(GRIDS)
    kinds = [kind for kind, count in composition(size).items() for _ in range(count)]
    rows = [draw_training_row(p, r, kind, grid) for kind in kinds]
    return collate(p, rows, LENGTH, LABELS * size)


def test_batch(p, seed, kind, indices, mode="plain", held_out=True, turns=1, grid=None):
    """A test's samples of a kind; each is a function of (seed, name)."""
    made = []
    for index in indices:
        r = Counter(seed, f"{kind}/{mode}/{index}")
        if kind == "text":
            sample = questions.draw_text(r, turns, mode)
        else:
            sample = questions.draw_sample(r, kind, turns, held_out, mode, grid)
        tools = ("count", "draw") if mode == "tools" else ()
        made.append((sample, build(p, sample, "", tools)))
    return collate(p, made)
