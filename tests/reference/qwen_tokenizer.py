"""A small Qwen-style tokenizer (byte-level BPE), trained on corpus.txt, and a template.

It has the family's real special strings, normaliser, splitting pattern and decoder. The
template is a short one of ours that writes media as the published ones do.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent

SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
]  # fmt: skip
PLAIN = ["<think>", "</think>"]
# Qwen2's splitting pattern, as its tokenizer.json writes it.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MERGED = 420  # bytes and merges; the special tokens follow

TEMPLATE = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}\
{% if c.type == 'text' %}{{ c.text }}\
{% elif c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>\
{% elif c.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>\
{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def train():
    """`tokenizer.json` as a dict."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    text = (HERE / "corpus.txt").read_text(encoding="utf8")
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    assert tokenizer.get_vocab_size() == MERGED
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    tokenizer.add_tokens([AddedToken(s, special=False, normalized=False) for s in PLAIN])
    return json.loads(tokenizer.to_str())


def tokenizer_config():
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "model_max_length": 262144,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
        "processor_class": "Qwen3VLProcessor",
        "extra_special_tokens": {
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "vision_bos_token": "<|vision_start|>",
            "vision_eos_token": "<|vision_end|>",
        },
    }


def token_id(string):
    return MERGED + (SPECIAL + PLAIN).index(string)
