"""Expanded prompts as transformers' processors make them, over random layouts of media.

Writes splices.json. Each case: the rendered `text`, the `media` in document order, and the
`ids`; for Gemma the `groups` that see each other; for Qwen the three `positions` and `delta`.
Media are given by the sizes that the processors read, so that no pixel is needed.
"""

import json
import random
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from transformers import AutoTokenizer, Gemma4Processor, Gemma4UnifiedProcessor, Qwen3VLProcessor
from transformers.models.gemma4.modeling_gemma4 import get_block_sequence_ids_for_mask
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5Model
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel
from transformers.video_utils import VideoMetadata

from tokenizers_of import HERE, REFERENCE, qwen

WORDS = ["What is this?", "and", "café", "12", "00:01", "<3.5 seconds>", " ", "\n", "x", "Look: ", "日本"]
MERGE = 2


def bare(processor, **fields):
    """The processor without its media halves, which these functions don't use."""
    made = processor.__new__(processor)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def runs(flags):
    """[start, end] of each run of equal values that are not negative."""
    found, last = [], -1
    for i, flag in enumerate(flags):
        if flag >= 0 and flag == last:
            found[-1][1] = i + 1
        elif flag >= 0:
            found.append([i, i + 1])
        last = flag
    return found


def random_text(rng, begin, end, markers):
    """One or two turns with the markers somewhere in them."""
    places = [rng.choice(WORDS) for _ in range(rng.randint(1, 6))]
    for marker in markers:
        places.append(marker)
        if rng.random() < 0.7:
            places.append(rng.choice(WORDS))
    if rng.random() < 0.5:
        places.insert(0, rng.choice(WORDS))
    half = rng.randint(0, len(places))
    return begin + "".join(places[:half]) + end + begin + "".join(places[half:]) + end


def times(rng):
    """Indices of chosen frames and a rate, some hours into a film now and then."""
    fps = rng.choice([None, 1, 2.0, 24, 25, 29.97, 30, 23.976])
    start = rng.choice([0, 0, 0, 90_000, 700_000])
    step = rng.choice([1, 3, 7, 30, 75])
    return fps, [start + step * i for i in range(rng.randint(1, 5))]


def gemma(name, rng, number):
    folder = REFERENCE / "models" / name
    tokenizer = AutoTokenizer.from_pretrained(folder)
    unified = name == "gemma4_unified"
    processor = bare(
        Gemma4UnifiedProcessor if unified else Gemma4Processor,
        tokenizer=tokenizer,
        **{f"{k}_token": f"<|{k}|>" for k in ("image", "audio", "video")},
        boi_token="<|image>", eoi_token="<image|>", boa_token="<|audio>", eoa_token="<audio|>",
    )  # fmt: skip
    kinds = {tokenizer.convert_tokens_to_ids(f"<|{k}|>"): i for i, k in enumerate(("image", "video", "audio"), 1)}
    for case in range(number):
        media = []
        for _ in range(rng.choice([0, 1, 1, 2, 3, 5])):
            kind = rng.choice(["image", "audio", "video"])
            if kind == "audio":
                valid = rng.choice([0, 1, 4, 5, 9, 23, 40])
                mask = np.zeros(valid + rng.randint(0, 8) + 1, bool)
                mask[:valid] = True
                media.append({"kind": kind, "mask": mask})
            elif kind == "image":
                media.append({"kind": kind, "soft_tokens": rng.randint(1, 12)})
            else:
                fps, indices = times(rng)
                media.append({"kind": kind, "soft_tokens": rng.randint(1, 6), "fps": fps, "indices": indices})
        text = random_text(rng, "<bos><|turn>user\n", "<turn|>\n", [f"<|{m['kind']}|>" for m in media])
        replacements = {"image": [], "video": [], "audio": []}
        for m in media:
            if m["kind"] == "image":
                new = processor.replace_image_token({"num_soft_tokens_per_image": [m["soft_tokens"]]}, 0)
            elif m["kind"] == "video":
                metadata = VideoMetadata(total_num_frames=1, fps=m["fps"], frames_indices=m["indices"])
                new = processor.replace_video_token(
                    {"num_soft_tokens_per_video": [m["soft_tokens"]], "video_metadata": [metadata]}, 0
                )
                m["timestamps"] = metadata.timestamps
            else:
                new = processor.replace_audio_token({"input_features_mask": [m.pop("mask")]}, 0)
                m["soft_tokens"] = new.count("<|audio|>")
            replacements[m["kind"]].append(new)
        expanded, _ = processor.get_text_with_replacements(
            [text], replacements["image"], replacements["video"], replacements["audio"]
        )
        ids = tokenizer(expanded[0], add_special_tokens=False)["input_ids"]
        types = torch.tensor([[kinds.get(i, 0) for i in ids]])
        blocks = get_block_sequence_ids_for_mask(types, "cpu")[0].tolist()
        for m in media:
            m.pop("fps", None), m.pop("indices", None)
        yield {"model": name, "text": text, "media": media, "ids": ids, "groups": runs(blocks)}


def qwen_cases(rng, number):
    tokenizer = qwen()
    token = {k: f"<|{k}|>" for k in ("image_pad", "video_pad", "vision_start", "vision_end")}
    processor = bare(
        Qwen3VLProcessor,
        tokenizer=tokenizer,
        image_token=token["image_pad"],
        video_token=token["video_pad"],
        vision_start_token=token["vision_start"],
        vision_end_token=token["vision_end"],
        image_processor=SimpleNamespace(merge_size=MERGE),
        video_processor=SimpleNamespace(merge_size=MERGE, temporal_patch_size=2),
    )
    kinds = {tokenizer.convert_tokens_to_ids(token[k]): i for i, k in enumerate(("image_pad", "video_pad"), 1)}
    config = SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=MERGE))
    for case in range(number):
        media = []
        for _ in range(rng.choice([0, 1, 1, 2, 3, 5])):
            side = lambda: MERGE * rng.randint(1, 4)
            if rng.random() < 0.5:
                media.append({"kind": "image", "grid": [1, side(), side()]})
            else:
                fps, indices = times(rng)
                media.append(
                    {"kind": "video", "grid": [-(-len(indices) // 2), side(), side()], "fps": fps, "indices": indices}
                )
        marker = lambda m: token["vision_start"] + token[m["kind"] + "_pad"] + token["vision_end"]
        text = random_text(rng, "<|im_start|>user\n", "<|im_end|>\n", [marker(m) for m in media])
        replacements = {"image": [], "video": []}
        for m in media:
            grid = [torch.tensor(m["grid"])]
            if m["kind"] == "image":
                new = processor.replace_image_token({"image_grid_thw": grid}, 0)
            else:
                metadata = VideoMetadata(total_num_frames=1, fps=m["fps"], frames_indices=list(m["indices"]))
                inputs = {"video_grid_thw": grid, "video_metadata": [metadata]}
                new = processor.replace_video_token(inputs, 0)
                m["timestamps"] = processor._calculate_timestamps(list(m["indices"]), metadata.fps, 2)
            replacements[m["kind"]].append(new)
        expanded, _ = processor.get_text_with_replacements([text], replacements["image"], replacements["video"])
        ids = tokenizer(expanded[0], add_special_tokens=False)["input_ids"]
        # transformers 4.57 replaced the marker together with the tokens round it.
        replaced = text
        for m, new in zip([m for m in media if m["kind"] == "video"], replacements["video"]):
            replaced = replaced.replace(marker(m), new.replace(token["video_pad"], "\0"), 1)
        for new in replacements["image"]:
            replaced = replaced.replace(token["image_pad"], new.replace(token["image_pad"], "\1"), 1)
        replaced = replaced.replace("\0", token["video_pad"]).replace("\1", token["image_pad"])
        grids = lambda kind: [m["grid"] for m in media if m["kind"] == kind]
        tensor = lambda rows: torch.tensor(rows) if rows else None
        positions = []
        for model in (Qwen3VLModel, Qwen3_5Model):
            made = SimpleNamespace(config=config)
            made.get_vision_position_ids = partial(model.get_vision_position_ids, made)
            found, delta = model.get_rope_index(
                made,
                input_ids=torch.tensor([ids]),
                mm_token_type_ids=torch.tensor([[kinds.get(i, 0) for i in ids]]),
                image_grid_thw=tensor(grids("image")),
                video_grid_thw=tensor(grids("video")),
            )
            positions.append((found[:, 0].tolist(), delta.item()))
        assert positions[0] == positions[1], "Qwen3-VL and Qwen3.5 differ"
        for m in media:
            m.pop("fps", None), m.pop("indices", None)
        yield {
            "model": "qwen",
            "text": text,
            "media": media,
            "ids": ids,
            "ids_outer_replaced": tokenizer(replaced, add_special_tokens=False)["input_ids"],
            "positions": positions[0][0],
            "delta": positions[0][1],
        }


def main():
    rng = random.Random(7)
    cases = [
        *gemma("gemma4_e2b", rng, 60),
        *gemma("gemma4_unified", rng, 40),
        *qwen_cases(rng, 80),
    ]
    lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases]
    head = json.dumps({"transformers": transformers.__version__})
    (HERE / "splices.json").write_text(
        f'{{"versions": {head}, "cases": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf8"
    )


if __name__ == "__main__":
    main()
