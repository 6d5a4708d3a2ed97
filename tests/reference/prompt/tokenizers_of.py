"""The tokenizers of the prompt goldens: Gemma's from ../models, and a small Qwen-style one."""

import json
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
REFERENCE = HERE.parent
sys.path.insert(0, str(REFERENCE))

QWEN_SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|image_pad|>", "<|video_pad|>",
]  # fmt: skip
# Added, but not special: they are part of the decoded text.
QWEN_PLAIN = [
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
]  # fmt: skip
# Qwen 2's pattern: words, single digits, punctuation, newlines.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_qwen(vocab_size=640):
    """`tokenizer.json` as text: byte-level BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    corpus = (REFERENCE / "corpus.txt").read_text(encoding="utf8")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=QWEN_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus.splitlines(keepends=True), trainer)
    tokenizer.add_tokens(QWEN_PLAIN)
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))


def qwen():
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(HERE / "qwen_tokenizer.json")),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )


if __name__ == "__main__":
    (HERE / "qwen_tokenizer.json").write_text(train_qwen() + "\n", encoding="utf8")
