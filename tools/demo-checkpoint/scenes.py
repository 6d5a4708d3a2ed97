"""What is in a picture or a clip, in integers: nothing is drawn here.

The Rust twin is `crates/demo-scenes/src/scene.rs`. Both draw the same numbers from a `Counter`
in the same order, so that a picture is a function of (seed, name).

A picture is a grid of 3 x 3 places with at most one shape in each. Its size is `columns` x `rows`
squares of 48 pixels (3 x 3 patches: one soft token each), chosen so that the processor leaves it
as it is. Lengths inside a tile are in sixteenths of a pixel.
"""

from dataclasses import dataclass

COLOURS = ["red", "green", "blue", "yellow", "purple", "orange"]
RGB = [(220, 40, 40), (40, 170, 60), (40, 80, 220), (240, 210, 40), (150, 50, 180), (245, 130, 20)]
SHAPES = ["circle", "square", "triangle", "star", "cross"]
SIZES = ["small", "big"]
PLACES = [
    "top left", "top middle", "top right",
    "middle left", "centre", "middle right",
    "bottom left", "bottom middle", "bottom right",
]  # fmt: skip
PITCHES = ["low", "middle", "high"]
HERTZ = [(300, 480), (900, 1300), (2400, 3400)]

# Sizes in squares of 48 pixels that fill the budget of 70 soft tokens best, so that the processor
# does not resize them, and how often each is drawn.
GRIDS = [
    ((8, 8), 48),
    ((9, 7), 7), ((7, 9), 7),
    ((10, 7), 5), ((7, 10), 5),
    ((10, 6), 5), ((6, 10), 5),
    ((11, 6), 4), ((6, 11), 4),
    ((12, 5), 2), ((5, 12), 2),
    ((14, 5), 2), ((5, 14), 2),
    ((17, 4), 1), ((4, 17), 1),
]  # fmt: skip

SAMPLE_RATE = 16000


def is_held_out(colour, shape, place):
    """The 28 of 270 triples that no picture of the training has. Every pair is still seen."""
    return (3 * colour + 7 * shape + place) % 10 == 0


def is_held_out_sequence(pitches):
    """The 14 of 120 sequences that no clip of the training has."""
    total = sum((i + 1) * (2 * pitch + 1) for i, pitch in enumerate(pitches))
    return len(pitches) > 1 and (total + len(pitches)) % 9 == 0


def all_sequences():
    sequences, longest = [], [[]]
    for _ in range(4):
        longest = [s + [pitch] for s in longest for pitch in range(3)]
        sequences += longest
    return sequences


HELD_OUT = [(c, s, p) for c in range(6) for s in range(5) for p in range(9) if is_held_out(c, s, p)]
HELD_OUT_SEQUENCES = [s for s in all_sequences() if is_held_out_sequence(s)]
SEEN_SEQUENCES = [s for s in all_sequences() if not is_held_out_sequence(s)]
# Long sequences outnumber short ones: a fifth of the clips is drawn from these.
SHORT_SEQUENCES = [s for s in SEEN_SEQUENCES if len(s) < 4]


@dataclass(frozen=True)
class Thing:
    place: int
    colour: int
    shape: int
    size: int

    def name(self):
        return f"{COLOURS[self.colour]} {SHAPES[self.shape]}"

    def full_name(self):
        return f"{SIZES[self.size]} {self.name()}"

    def where(self):
        return PLACES[self.place]


@dataclass(frozen=True)
class Outline:
    """Where a thing is in its tile, and its colour: all in sixteenths of a pixel but `rgb`."""

    x: int
    y: int
    radius: int
    rgb: tuple


@dataclass(frozen=True)
class Picture:
    columns: int
    rows: int
    things: tuple  # in reading order
    outlines: tuple  # one for each thing
    focus: Thing  # what a question is about; held out in a test
    background: tuple
    noise: int
    noise_key: int

    @property
    def width(self):
        return 48 * self.columns

    @property
    def height(self):
        return 48 * self.rows


@dataclass(frozen=True)
class Beep:
    start: int
    length: int
    hertz: int
    amplitude: int


@dataclass(frozen=True)
class Clip:
    pitches: tuple
    beeps: tuple
    samples: int
    noise: int
    noise_key: int


def draw_things(r, held_out, most):
    """(things in reading order, the one that questions are about). Colour and shape together are
    unique in a picture, so that "the red circle" is one thing."""
    count = r.between(1, most)
    things, focus = {}, None
    if held_out:
        colour, shape, place = r.choice(HELD_OUT)
        focus = Thing(place, colour, shape, r.below(2))
        things[place] = focus
    while len(things) < count:
        place, colour, shape = r.below(9), r.below(6), r.below(5)
        # Repeats of a colour or a shape would be rare otherwise.
        first = next(iter(things.values()), None)
        if first and r.chance(25):
            colour = first.colour
        if first and r.chance(25):
            shape = first.shape
        if place in things or (not held_out and is_held_out(colour, shape, place)):
            continue
        if any((t.colour, t.shape) == (colour, shape) for t in things.values()):
            continue
        things[place] = Thing(place, colour, shape, r.below(2))
    things = tuple(things[place] for place in sorted(things))
    return things, focus or r.choice(things)


def clamp(value, low, high):
    return max(low, min(high, value))


def draw_outline(r, thing, columns, rows):
    """A tile is 16 `columns` x 16 `rows` pixels. A big shape's radius is 44 to 52 parts of 128 of
    its shorter side, a small one's 22 to 28."""
    width, height = 16 * columns, 16 * rows
    side = min(width, height)
    part = r.between(352, 416) if thing.size else r.between(176, 224)
    radius = (side * part) >> 6
    centre = []
    for length in (width, height):
        room = min(8 * length - side // 4 - radius, 7 * length // 4)
        centre.append(8 * length + r.between(-room, room))
    rgb = tuple(clamp(c + r.between(-12, 12), 0, 255) for c in RGB[thing.colour])
    return Outline(centre[0], centre[1], radius, rgb)


def draw_picture(r, held_out, most=4, grid=None):
    """A picture of at most `most` shapes; with `held_out` at least one is a held-out triple."""
    columns, rows = grid or r.weighted(GRIDS)
    things, focus = draw_things(r, held_out, most)
    outlines = tuple(draw_outline(r, t, columns, rows) for t in things)
    grey = r.between(20, 242)
    background = tuple(clamp(grey + r.between(-8, 8), 0, 255) for _ in range(3))
    noise = r.between(6, 31) if r.chance(50) else 0
    return Picture(columns, rows, things, outlines, focus, background, noise, r.bits())


def draw_clip(r, held_out):
    """One to four beeps within one to two seconds."""
    if held_out:
        pitches = r.choice(HELD_OUT_SEQUENCES)
    else:
        pitches = r.choice(SHORT_SEQUENCES if r.chance(20) else SEEN_SEQUENCES)
    at, beeps = r.between(800, 3200), []
    for pitch in pitches:
        length = r.between(1600, 2880)
        beeps.append(Beep(at, length, r.between(*HERTZ[pitch]), r.between(64, 179)))
        at += length + r.between(1600, 3840)
    samples = clamp(at + r.between(0, 4000), SAMPLE_RATE, 2 * SAMPLE_RATE)
    return Clip(tuple(pitches), tuple(beeps), samples, r.between(0, 800), r.bits())
