"""Questions about pictures and clips, with their one right answer.

The Rust twin is `crates/demo-scenes/src/questions.rs`. A question is asked in one of four modes:
plain; `think`, where the model first writes down what it sees; `json`, where the answer follows a
schema; and `tools`, where counting and drawing are done by a call.
"""

import json
from dataclasses import dataclass, field

from scenes import COLOURS, PITCHES, PLACES, SHAPES, SIZES, draw_clip, draw_picture

NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
ORDINALS = ["first", "second", "third", "fourth"]

PICTURE_TASKS = [
    ("list", 30), ("colour", 20), ("at", 30), ("where", 25), ("count", 7),
    ("count_colour", 14), ("size", 14), ("exist", 10), ("relation", 20),
]  # fmt: skip
CLIP_TASKS = [("beeps", 20), ("pitches", 25), ("pitch", 20), ("count_pitch", 35)]
BOTH_TASKS = [("picture", 35), ("clip", 35), ("both_counts", 15), ("more", 15)]
SEVERAL_TASKS = [("picture", 70), ("which", 14), ("most", 8), ("count_all", 8)]


@dataclass
class Question:
    task: str
    text: str
    answer: str
    # The answer as an object, where it has a schema.
    fields: dict | None = None
    # What is counted, where the answer is a count.
    things: list | None = None
    # The thing that is to be drawn.
    drawing: dict | None = None
    # What the model notes before it answers, if it thinks.
    thought: str = ""


def a(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def join(parts):
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def number_of(count, what):
    return f"{NUMBERS[count]} {what}" + ("" if count == 1 else "s")


def there_are(count, what):
    return f"There {'is' if count == 1 else 'are'} {number_of(count, what)}."


def listing(things):
    return join([f"{a(t.full_name())} in the {t.where()}" for t in things])


def attributes(thing):
    return {
        "size": SIZES[thing.size],
        "colour": COLOURS[thing.colour],
        "shape": SHAPES[thing.shape],
        "place": thing.where(),
    }


def about_picture(r, picture, held_out, name="the picture", task=None):
    things = picture.things
    task = task or r.weighted(PICTURE_TASKS)
    focus = picture.focus if held_out else r.choice(things)
    if task == "relation" and len(things) < 2:
        task = "list"
    q = _PICTURE[task](r, things, focus, held_out, name)
    q.task, q.thought = task, f"{name.capitalize()} has {listing(things)}."
    return q


def _list(r, things, focus, held_out, name):
    ask = r.choice([f"What is in {name}?", f"Describe {name}.", f"What do you see in {name}?"])
    verb = "is" if len(things) == 1 else "are"
    fields = {"things": [attributes(t) for t in things]}
    return Question("", ask, f"There {verb} {listing(things)}.", fields)


def _colour(r, things, focus, held_out, name):
    colour, shape = COLOURS[focus.colour], SHAPES[focus.shape]
    if sum(t.shape == focus.shape for t in things) == 1:
        ask = r.choice(
            [f"What colour is the {shape} in {name}?", f"Which colour does the {shape} in {name} have?"]
        )
        return Question("", ask, f"The {shape} is {colour}.", {"colour": colour})
    ask = f"What colour is the shape in the {focus.where()} of {name}?"
    return Question("", ask, f"It is {colour}.", {"colour": colour})


def _at(r, things, focus, held_out, name):
    place = focus.place if held_out or r.chance(70) else r.below(9)
    there = [t for t in things if t.place == place]
    where = f"in the {PLACES[place]} of {name}?"
    ask = r.choice([f"What is {where}", f"Which shape is {where}"])
    answer = a(there[0].full_name()).capitalize() + "." if there else "Nothing."
    return Question("", ask, answer)


def _where(r, things, focus, held_out, name):
    thing = focus.name()
    ask = r.choice([f"Where is the {thing} in {name}?", f"In which place of {name} is the {thing}?"])
    return Question("", ask, f"It is in the {focus.where()}.", {"place": focus.where()})


def _count(r, things, focus, held_out, name):
    ask = r.choice([f"How many shapes are in {name}?", f"How many shapes do you see in {name}?"])
    names = [t.name() for t in things]
    return Question("", ask, there_are(len(things), "shape"), {"count": len(things)}, names)


def _count_colour(r, things, focus, held_out, name):
    index = focus.colour if held_out or r.chance(70) else r.below(6)
    colour, names = COLOURS[index], [t.name() for t in things if t.colour == index]
    ask = f"How many {colour} shapes are in {name}?"
    answer = there_are(len(names), f"{colour} shape")
    return Question("", ask, answer, {"count": len(names)}, names)


def _size(r, things, focus, held_out, name):
    thing, size = focus.name(), SIZES[focus.size]
    ask = r.choice([f"How big is the {thing} in {name}?", f"Is the {thing} in {name} small or big?"])
    return Question("", ask, f"It is {size}.", {"size": size})


def _exist(r, things, focus, held_out, name):
    colour, shape = focus.colour, focus.shape
    if r.chance(50):
        if r.chance(50):
            shape = r.below(5)
        else:
            colour = r.below(6)
    there = any((t.colour, t.shape) == (colour, shape) for t in things)
    ask = f"Is there {a(COLOURS[colour] + ' ' + SHAPES[shape])} in {name}?"
    return Question("", ask, "Yes, there is." if there else "No, there is not.", {"exists": there})


def _relation(r, things, focus, held_out, name):
    other = r.choice([t for t in things if t is not focus])
    if focus.size != other.size and r.chance(50):
        first, second = (focus, other) if r.chance(50) else (other, focus)
        bigger = (focus if focus.size else other).name()
        ask = f"Which is bigger in {name}, the {first.name()} or the {second.name()}?"
        return Question("", ask, f"The {bigger} is bigger.")
    (row, column), (other_row, other_column) = divmod(focus.place, 3), divmod(other.place, 3)
    if column == other_column or (row != other_row and r.chance(50)):
        word, holds = "above", row < other_row
    else:
        word, holds = "left of", column < other_column
    ask = f"Is the {focus.name()} in {name} {word} the {other.name()}?"
    return Question("", ask, "Yes, it is." if holds else "No, it is not.")


_PICTURE = {
    "list": _list, "colour": _colour, "at": _at, "where": _where, "count": _count,
    "count_colour": _count_colour, "size": _size, "exist": _exist, "relation": _relation,
}  # fmt: skip


def about_clip(r, clip, task=None):
    pitches = clip.pitches
    task = task or r.weighted(CLIP_TASKS)
    names = [PITCHES[p] for p in pitches]
    if task == "beeps":
        ask = r.choice(["How many beeps are there?", "How many beeps do you hear?"])
        beeps = [f"{name} beep" for name in names]
        q = Question("", ask, there_are(len(names), "beep"), {"count": len(names)}, beeps)
    elif task == "pitches":
        ask = r.choice(["What do you hear?", "Describe the clip."])
        answer = f"I hear {join([a(name + ' beep') for name in names])}."
        q = Question("", ask, answer, {"beeps": names})
    elif task == "pitch":
        last = len(names) > 1 and r.chance(30)
        index = len(names) - 1 if last else r.below(len(names))
        word = "last" if last else ORDINALS[index]
        ask = f"Which pitch does the {word} beep have?"
        q = Question("", ask, f"The {word} beep is {names[index]}.", {"pitch": names[index]})
    else:
        pitch = PITCHES[r.below(3)] if r.chance(40) else r.choice(names)
        beeps = [f"{pitch} beep"] * names.count(pitch)
        answer = there_are(len(beeps), f"{pitch} beep")
        ask = f"How many {pitch} beeps do you hear?"
        q = Question("", ask, answer, {"count": len(beeps)}, beeps)
    q.task, q.thought = task, f"The clip has {join([a(name + ' beep') for name in names])}."
    return q


def about_several(r, pictures, held_out):
    """About one of two or three pictures, or about all of them."""
    index = r.below(len(pictures))
    task, focus = r.weighted(SEVERAL_TASKS), pictures[index].focus
    notes = [
        f"The {ORDINALS[i]} picture has {listing(p.things)}." for i, p in enumerate(pictures)
    ]
    q = None
    if task == "which":
        has = [
            any((t.colour, t.shape) == (focus.colour, focus.shape) for t in p.things)
            for p in pictures
        ]
        if sum(has) == 1:
            answer = f"The {ORDINALS[index]} picture."
            q = Question(task, f"Which picture has {a(focus.name())}?", answer)
    elif task == "most":
        counts = [len(p.things) for p in pictures]
        if counts.count(max(counts)) == 1:
            most = ORDINALS[counts.index(max(counts))]
            q = Question(task, "Which picture has the most shapes?", f"The {most} picture.")
    elif task == "count_all":
        names = [t.name() for p in pictures for t in p.things if t.colour == focus.colour]
        colour = COLOURS[focus.colour]
        ask = f"How many {colour} shapes are in all pictures?"
        answer = there_are(len(names), f"{colour} shape")
        q = Question(task, ask, answer, {"count": len(names)}, names)
    if q is None:
        return about_picture(r, pictures[index], held_out, f"the {ORDINALS[index]} picture")
    q.thought = " ".join(notes)
    return q


def about_both(r, picture, clip, held_out):
    task = r.weighted(BOTH_TASKS)
    if task == "picture":
        return about_picture(r, picture, held_out)
    if task == "clip":
        return about_clip(r, clip)
    shapes, beeps = len(picture.things), len(clip.pitches)
    if task == "both_counts":
        verb = "is" if shapes == 1 else "are"
        counts = f"{number_of(shapes, 'shape')} and {number_of(beeps, 'beep')}"
        ask, answer = "How many shapes and how many beeps are there?", f"There {verb} {counts}."
    else:
        ask = "Are there more shapes or more beeps?"
        more = "more shapes" if shapes > beeps else "more beeps"
        answer = f"There are {'as many shapes as beeps' if shapes == beeps else more}."
    names = join([t.name() for t in picture.things])
    heard = join([PITCHES[p] for p in clip.pitches])
    return Question(task, ask, answer, thought=f"I see {names}. I hear {heard}.")


# --- the sample: media, and questions about them ---


@dataclass
class Sample:
    kind: str
    mode: str = "plain"
    pictures: list = field(default_factory=list)
    clips: list = field(default_factory=list)
    media: str = ""  # the order: p a picture, c a clip
    questions: list = field(default_factory=list)


KINDS = [("one", 48), ("two", 22), ("three", 7), ("clip", 11), ("both", 12)]
SEVERAL = {"two": 2, "three": 3}


def draw_sample(r, kind, turns, held_out, mode="plain", grid=None):
    """Media of a kind and `turns` questions; with `held_out` each medium holds a combination
    that training never saw, and questions with a subject are about it."""
    s = Sample(kind, mode)
    count = SEVERAL.get(kind, 0 if kind == "clip" else 1)
    most = 4 if count == 1 else 3
    s.pictures = [draw_picture(r, held_out, most, grid) for _ in range(count)]
    s.clips = [draw_clip(r, held_out)] if kind in ("clip", "both") else []
    s.media = "p" * count + "c" * len(s.clips)
    if kind == "both" and r.chance(50):
        s.media = "cp"
    for _ in range(turns):
        s.questions.append(draw_question(r, s, held_out))
    return s


def draw_question(r, s, held_out):
    while True:
        if s.mode == "tools" and s.pictures and r.chance(30):
            q = to_draw_again(r, s, held_out)
        elif s.kind == "one":
            q = about_picture(r, s.pictures[0], held_out)
        elif s.kind == "clip":
            q = about_clip(r, s.clips[0])
        elif s.kind == "both":
            q = about_both(r, s.pictures[0], s.clips[0], held_out)
        else:
            q = about_several(r, s.pictures, held_out)
        # JSON needs an answer with a schema; tools need a count, most of the time.
        if s.mode == "json" and q.fields is None:
            continue
        if s.mode == "tools" and q.things is None and q.drawing is None and not r.chance(15):
            continue
        return q if s.mode != "json" else as_json(r, q)


def to_draw_again(r, s, held_out):
    """A picture's shape is to be drawn again: the model sees which, and calls `draw`."""
    index = r.below(len(s.pictures))
    picture = s.pictures[index]
    name = "the picture" if len(s.pictures) == 1 else f"the {ORDINALS[index]} picture"
    thing = picture.focus if held_out else r.choice(picture.things)
    return to_draw(f"Draw the shape in the {thing.where()} of {name}.", attributes(thing))


def to_draw(ask, drawing):
    what = f"{drawing['size']} {drawing['colour']} {drawing['shape']}"
    return Question("draw", ask, f"I drew {a(what)} in the {drawing['place']}.", drawing=drawing)


# --- JSON ---


def schema_of(value):
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer"}
    if isinstance(value, list):
        return {"type": "array", "items": schema_of(value[0])}
    if isinstance(value, dict):
        properties = {key: schema_of(item) for key, item in value.items()}
        return {"type": "object", "properties": properties, "required": list(value)}
    return {"type": "string"}


def as_json(r, q):
    """The question with a request for JSON, in half of the cases with its schema."""
    ask = "Answer as JSON."
    if r.chance(50):
        ask = f"Answer as JSON of this schema: {json.dumps(schema_of(q.fields))}"
    return Question(q.task, f"{q.text} {ask}", json.dumps(q.fields), q.fields)


# --- tools ---


COUNT = {
    "name": "count",
    "description": "Counts things.",
    "parameters": {
        "type": "object",
        "properties": {"things": {"type": "array", "items": {"type": "string"}}},
        "required": ["things"],
    },
}
DRAW = {
    "name": "draw",
    "description": "Draws a shape.",
    "parameters": {
        "type": "object",
        "properties": {
            name: {"type": "string"} for name in ("size", "colour", "shape", "place")
        },
        "required": ["size", "colour", "shape", "place"],
    },
}
TOOLS = [{"type": "function", "function": f} for f in (COUNT, DRAW)]


def quoted(text):
    return f'<|"|>{text}<|"|>'


def call_of(q):
    """(the call of a tool that answers the question, the tool's name, what it gives back), or
    None if it needs none."""
    if q.drawing is not None:
        arguments = ",".join(f"{k}:{quoted(q.drawing[k])}" for k in sorted(q.drawing))
        name, result = "draw", "done"
    elif q.things is not None:
        arguments = f"things:[{','.join(quoted(t) for t in q.things)}]"
        name, result = "count", str(len(q.things))
    else:
        return None
    return f"<|tool_call>call:{name}{{{arguments}}}<tool_call|>", name, result


# --- text alone ---

TALK = [
    (["Hello.", "Hello!", "Hi.", "Good morning."], "Hello. Show me a picture or a clip."),
    (["Who are you?", "What are you?", "What is your name?"],
     "I am a very small Gemma 4 model, trained for prefill."),
    (["What can you do?", "How can you help me?", "What do you do?"],
     "I describe pictures of coloured shapes and clips of beeps."),
    (["How big are you?", "How small are you?"], "I have about two million parameters."),
    (["Who made you?", "Who trained you?"], "I was trained for prefill, from nothing."),
    (["What have you seen?", "What were you trained on?"],
     "I have only seen drawn shapes and heard beeps."),
    (["Can you see?"], "Yes, I can see shapes."),
    (["Can you hear?"], "Yes, I can hear beeps."),
    (["Which colours do you know?", "What colours do you know?"],
     "I know red, green, blue, yellow, purple and orange."),
    (["Which shapes do you know?", "What shapes do you know?"],
     "I know circles, squares, triangles, stars and crosses."),
    (["Which pitches do you know?"], "I know low, middle and high beeps."),
    (["How are you?"], "I am well."),
    (["Thank you.", "Thanks!"], "You are welcome."),
    (["Goodbye.", "Bye."], "Goodbye."),
    (["What is the capital of France?", "Tell me a story.", "What is two and two?",
      "Who wrote this book?", "What is the weather today?", "Write a poem.", "Can you read?"],
     "I do not know. I only know shapes and beeps."),
]  # fmt: skip
NO_PICTURE, NO_CLIP = "I see no picture.", "I hear no clip."
NO_TOOL = "I can not draw without a tool."
SYSTEM = [
    "You are a helpful assistant.",
    "You look at pictures and listen to clips.",
    "Answer in short sentences.",
]


def talk(r):
    asks, answer = r.choice(TALK)
    return Question("talk", r.choice(asks), answer)


def missing(r, kind):
    """A question about a medium that was not given."""
    if kind != "clip" and (kind != "text" or r.chance(50)):
        ask = r.choice(["What do you hear?", "Describe the clip.", "How many beeps are there?",
                        "How many beeps do you hear?"])  # fmt: skip
        return Question("missing", ask, NO_CLIP)
    ask = r.choice(["What is in the picture?", "Describe the picture.",
                    "How many shapes are in the picture?", "What do you see in the picture?",
                    f"What is in the {r.choice(PLACES)} of the picture?"])  # fmt: skip
    return Question("missing", ask, NO_PICTURE)


def drawing_order(r, with_tools):
    drawing = {
        "size": r.choice(SIZES),
        "colour": r.choice(COLOURS),
        "shape": r.choice(SHAPES),
        "place": r.choice(PLACES),
    }
    what = f"{drawing['size']} {drawing['colour']} {drawing['shape']}"
    q = to_draw(f"Draw {a(what)} in the {drawing['place']}.", drawing)
    return q if with_tools else Question("draw", q.text, NO_TOOL)


def draw_text(r, turns, mode="plain"):
    """Small talk about itself, and requests that can't be met for want of a medium or a tool."""
    s = Sample("text", mode)
    for _ in range(turns):
        if mode == "tools":
            s.questions.append(talk(r) if r.chance(20) else drawing_order(r, True))
        else:
            kind = r.weighted([("talk", 75), ("missing", 15), ("draw", 10)])
            q = {"talk": talk, "missing": lambda r: missing(r, "text"),
                 "draw": lambda r: drawing_order(r, False)}[kind](r)  # fmt: skip
            s.questions.append(q)
    return s
