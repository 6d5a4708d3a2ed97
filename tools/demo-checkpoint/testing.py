"""Tests a model by transformers' own forward pass, as the engine would run it.

A greedy answer is right exactly if each of its ids is the likeliest after the ids before it, so
one forward pass over question and answer tells what generation would.
"""

import collections

import torch

import drawing

BUDGET = 630  # patches of a picture, padded as the processor pads


def media(batch):
    """The model's media inputs."""
    inputs = {}
    device = batch.ids.device
    if batch.pictures:
        total = sum(len(indices) for *_, indices in batch.pictures)
        values = torch.zeros(total, BUDGET, 768, device=device)
        places = torch.full((total, BUDGET, 2), -1, device=device)
        for grid, tiles, rest, indices in batch.pictures:
            drawn, where = drawing.patches(drawing.render(tiles, rest, *grid), *grid)
            values[indices, : len(where)] = drawn
            places[indices, : len(where)] = where
        inputs["pixel_values"], inputs["image_position_ids"] = values, places
    if batch.clips:
        features, valid = sound(batch)
        inputs["input_features"], inputs["input_features_mask"] = features, valid
    return inputs


def sound(batch):
    """Mel features of a batch's clips, and which frames are valid."""
    beeps, rest = batch.clips
    # A fixed length spares a synchronisation.
    wave = drawing.samples(beeps, rest, drawing.LONGEST)
    return drawing.mel(wave.float() / 32768, rest[:, 0])


@torch.no_grad()
def logits(m, batch):
    mask = (batch.segments >= 0).long()
    return m(input_ids=batch.ids, attention_mask=mask, use_cache=False, **media(batch)).logits


@torch.no_grad()
def evaluate(m, batch):
    """{task: (right, asked)} with the batch's kind as one more task."""
    best = logits(m, batch).argmax(-1).cpu()
    ids, labels = batch.ids.cpu(), batch.labels.cpu()
    right, asked = collections.Counter(), collections.Counter()
    for i, answers in enumerate(batch.answers):
        for task, begin, end in answers:
            trained = labels[i, begin:end] >= 0
            good = (best[i, begin - 1 : end - 1] == ids[i, begin:end]) | ~trained
            for key in (task, "ALL"):
                right[key] += bool(good.all())
                asked[key] += 1
    return {key: (right[key], asked[key]) for key in sorted(asked)}


def share(result):
    return {key: round(right / asked, 4) for key, (right, asked) in result.items()}
