"""Checks a packed checkpoint as a user would use it: files in, text out, on the CPU.

    python check.py FOLDER            rows against the template, media against the processor
    python check.py FOLDER 20         also greedy answers to 20 held-out samples of each kind
    python check.py FOLDER 20 --show  and prints each

Pictures go through PNG, clips through 16-bit samples, then transformers' processor and `generate`.
"""

import argparse
import io

import torch
from PIL import Image
from transformers import AutoProcessor, Gemma4ForConditionalGeneration

import drawing
import questions
import rows
import testing
import train
from counter import Counter

ARGUMENTS = argparse.ArgumentParser(description=__doc__.splitlines()[0])
ARGUMENTS.add_argument("folder")
ARGUMENTS.add_argument("count", type=int, nargs="?", default=0)
ARGUMENTS.add_argument("--dtype", default="float32")
ARGUMENTS.add_argument("--show", action="store_true")
ARGUMENTS.add_argument("--seed", type=int, default=train.TEST_SEED)
ARGUMENTS.add_argument("--modes", action="store_true", help="thinking, JSON and tools too")


def sample_of(seed, kind, mode, index, turns=1):
    """The sample that `rows.test_batch` tests."""
    r = Counter(seed, f"{kind}/{mode}/{index}")
    if kind == "text":
        return questions.draw_text(r, turns, mode)
    return questions.draw_sample(r, kind, turns, True, mode)


def pictures(sample):
    for p in sample.pictures:
        tiles, rest = drawing.numbers([p])
        pixels = drawing.render(tiles, rest, p.columns, p.rows)[0].numpy()
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        yield Image.open(file)


def clips(sample):
    for clip in sample.clips:
        wave = drawing.samples(*drawing.clip_numbers([clip]))[0, : clip.samples]
        yield (wave.float() / 32768).numpy()


def conversation(sample, turn=0):
    """The messages up to the question of a turn, and what the template is told beside them."""
    kinds = {"p": "image", "c": "audio"}
    content = [{"type": kinds[m]} for m in sample.media]
    text = {"type": "text", "text": sample.questions[turn].text}
    messages = [{"role": "user", "content": [*content, text]}]
    options = {"add_generation_prompt": True}
    if sample.mode == "think":
        options["enable_thinking"] = True
    if sample.mode == "tools":
        options["tools"] = questions.TOOLS
    return messages, options


def with_call(messages, q):
    """The conversation with the call that answers a question, and its result."""
    _, name, result = questions.call_of(q)
    arguments = q.drawing if q.drawing is not None else {"things": q.things}
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        *messages,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": result},
    ]


def inputs(processor, sample, messages, options):
    text = processor.apply_chat_template(messages, tokenize=False, **options)
    images, sounds = list(pictures(sample)), list(clips(sample))
    return processor(
        text=[text],
        images=[images] if images else None,
        audio=sounds or None,
        return_tensors="pt",
        add_special_tokens=False,
    )


def check_rows(processor, prompts, seed):
    """The rows of the training are what the template and the processor make of the same sample."""
    sets = [(k, "plain") for k in train.HELD_OUT_KINDS] + train.MODES
    for kind, mode in sets:
        for index in range(3):
            sample = sample_of(seed, kind, mode, index)
            q = sample.questions[0]
            batch = rows.test_batch(prompts, seed, kind, [index], mode)
            ids, labels = batch.ids[0].tolist(), batch.labels[0].tolist()
            messages, options = conversation(sample)
            made = inputs(processor, sample, messages, options)
            theirs = made["input_ids"][0].tolist()
            assert ids[: len(theirs)] == theirs, (kind, mode, index)
            assert labels[len(theirs)] >= 0 > labels[len(theirs) - 1]
            if mode == "tools" and questions.call_of(q):
                made = inputs(processor, sample, with_call(messages, q), options)
                theirs = made["input_ids"][0].tolist()
                assert ids[: len(theirs)] == theirs, (kind, mode, index)
                assert labels[len(theirs)] >= 0 > labels[len(theirs) - 1]
            media = testing.media(batch)
            if sample.pictures:
                for name in ("pixel_values", "image_position_ids"):
                    difference = made[name] - media[name]
                    assert difference.abs().max() < 1e-6, (name, difference.abs().max())
            if sample.clips:
                frames = made["input_features"].shape[1]
                difference = made["input_features"] - media["input_features"][:, :frames]
                assert difference.abs().max() < 1e-4, difference.abs().max()
                valid = media["input_features_mask"][:, :frames]
                assert torch.equal(made["input_features_mask"].bool(), valid)
    print("rows, pixels, positions and mel features are those of the template and processor")


def written(pieces):
    return [text for text, trained in pieces if trained]


def answer(processor, model, sample, messages, options, dtype):
    made = inputs(processor, sample, messages, options)
    made = {k: v.to(dtype) if v.is_floating_point() else v for k, v in made.items()}
    with torch.no_grad():
        out = model.generate(**made, max_new_tokens=160, do_sample=False)
    return processor.tokenizer.decode(out[0, made["input_ids"].shape[1] :])


def check_answers(processor, model, a):
    sets = [(k, "plain") for k in train.HELD_OUT_KINDS] + (train.MODES if a.modes else [])
    right = asked = 0
    for kind, mode in sets:
        good = 0
        for index in range(a.count):
            sample = sample_of(a.seed, kind, mode, index)
            q = sample.questions[0]
            messages, options = conversation(sample)
            expected = written(rows.pieces(q, mode))
            for turn, want in enumerate(expected):
                if turn:
                    messages = with_call(messages, q)
                got = answer(processor, model, sample, messages, options, model.dtype)
                if got != want:
                    break
            good += got == want
            if a.show or got != want:
                print(f"{kind}/{mode}/{index}: {q.text} | {got} | {'' if got == want else want}")
        print(f"{kind}/{mode}: {good} of {a.count}", flush=True)
        right, asked = right + good, asked + a.count
    print(f"{a.dtype}: {right} of {asked} right")


def main():
    a = ARGUMENTS.parse_args()
    processor = AutoProcessor.from_pretrained(a.folder)
    prompts = rows.Prompts(f"{a.folder}/tokenizer.json")
    check_rows(processor, prompts, a.seed)
    if a.count:
        model = Gemma4ForConditionalGeneration.from_pretrained(
            a.folder, dtype=getattr(torch, a.dtype)
        ).eval()
        check_answers(processor, model, a)


if __name__ == "__main__":
    main()
