"""Times a 32,000-token conversation with 8 pictures, beside transformers on the same text.

    cargo build --release -p prefill-multimodal-prompt --example bench_prompt
    python tests/reference/prompt/bench.py target/release/examples/bench_prompt [ROUNDS]

Rounds alternate; each step's best counts. transformers' side is `apply_chat_template`, then what its
processor does to the text (expansion, tokenising, token types), without any work on pixels.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import transformers
from transformers import AutoTokenizer, Gemma4Processor

from tokenizers_of import HERE, REFERENCE

FOLDER = REFERENCE / "models" / "gemma4_e2b"
SOFT_TOKENS = 256


def conversation(tokenizer):
    """Turns of the corpus until there are 32,000 tokens, eight pictures among them."""
    words = (REFERENCE / "corpus.txt").read_text(encoding="utf8").split()
    messages = [{"role": "system", "content": "Be brief, and say what is in the pictures."}]
    per_turn, used, turn = 160, 8 * (SOFT_TOKENS + 2), 0
    while used < 32_000:
        start = turn * 37 % len(words)
        text = " ".join((words * 2)[start : start + per_turn])
        used += len(tokenizer.encode(text, add_special_tokens=False)) + 4
        role = "assistant" if turn % 2 else "user"
        pictured = role == "user" and turn % 4 == 0 and turn < 32
        parts = [{"type": "text", "text": text}]
        messages.append({"role": role, "content": [{"type": "image"}, *parts] if pictured else text})
        turn += 1
    if messages[-1]["role"] == "assistant":
        messages.pop()
    return messages


def main(binary, rounds=7):
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    template = HERE / "templates" / "gemma.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf8")
    processor = Gemma4Processor.__new__(Gemma4Processor)
    processor.tokenizer = tokenizer
    processor.image_token, processor.boi_token, processor.eoi_token = "<|image|>", "<|image>", "<image|>"
    processor.audio_token, processor.video_token = "<|audio|>", "<|video|>"
    image_id = tokenizer.convert_tokens_to_ids("<|image|>")
    messages = conversation(tokenizer)
    images = sum(isinstance(m["content"], list) for m in messages)
    ours, theirs = {}, {}
    best = lambda into, key, value: into.__setitem__(key, min(value, into.get(key, 1e9)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "messages.json"
        path.write_text(json.dumps(messages))
        for _ in range(int(rounds)):
            output = subprocess.run([binary, FOLDER, template, path, "5"], check=True, capture_output=True)
            found = json.loads(output.stdout)
            for key in ("read", "render", "splice", "keys", "encode"):
                best(ours, key, found[key])
            for _ in range(3):
                started = time.perf_counter()
                text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
                rendered = time.perf_counter()
                sizes = {"num_soft_tokens_per_image": [SOFT_TOKENS] * images}
                new = [processor.replace_image_token(sizes, i) for i in range(images)]
                expanded, _ = processor.get_text_with_replacements([text], new)
                ids = tokenizer(expanded, add_special_tokens=False)["input_ids"]
                types = np.isin(np.array(ids[0]), [image_id])
                done = time.perf_counter()
                assert types.sum() == images * SOFT_TOKENS
                best(theirs, "render", (rendered - started) * 1e3)
                best(theirs, "expand and tokenise", (done - rendered) * 1e3)
    digest = hashlib.sha256(np.array(ids[0], "<u4").tobytes()).hexdigest()
    assert digest == found["sha256"], "the ids differ"
    ours["splice without the tokenizer"] = max(0.0, ours["splice"] - ours["encode"])
    beyond = ours["read"] + ours["render"] + ours["splice without the tokenizer"] + ours["keys"]
    print(f"transformers {transformers.__version__}; {len(messages)} messages, {images} pictures, {len(ids[0])} ids, the same")
    for name, times in (("ours", ours), ("transformers", theirs)):
        print(name, {k: round(v, 2) for k, v in times.items()}, "ms")
    total = ours["read"] + ours["render"] + ours["splice"]
    print(f"beyond the tokenizer: {beyond:.2f} ms")
    print(f"messages to ids: {total:.2f} ms, transformers {sum(theirs.values()):.2f} ms: {sum(theirs.values()) / total:.2f} times")
    print(f"rendering alone: {theirs['render'] / ours['render']:.2f} times")


if __name__ == "__main__":
    main(*sys.argv[1:])
