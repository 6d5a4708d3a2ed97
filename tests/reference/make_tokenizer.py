"""A small Gemma-style tokenizer (BPE with byte fallback), trained on corpus.txt.

It has the family's real special strings, normaliser, decoder and post-processor, so that a
reader of `tokenizer.json` meets the same structure as in a published checkpoint.
"""

import json
from collections import Counter
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent

SPECIAL = [
    "<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>",
    "<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>", "<|video|>",
    "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>",
    "<|tool_response>", "<tool_response|>", '<|"|>',
]  # fmt: skip
NAMED = {
    "image_token": "<|image|>", "boi_token": "<|image>", "eoi_token": "<image|>",
    "audio_token": "<|audio|>", "boa_token": "<|audio>", "eoa_token": "<audio|>",
    "sot_token": "<|turn>", "eot_token": "<turn|>", "video_token": "<|video|>",
}  # fmt: skip
SPACE = "\u2581"
ALPHABET = 110


def alphabet(text):
    """The most frequent characters. Left to itself, the trainer breaks ties by chance."""
    counts = Counter(text.replace(" ", SPACE))
    return sorted(counts, key=lambda c: (-counts[c], c))[:ALPHABET]


def train(vocab_size):
    """`tokenizer.json` as a dict."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(SPACE, "merged_with_next"),
            pre_tokenizers.Split(Regex(r"[.,:;?!\n]+"), "isolated"),
        ]
    )
    text = (HERE / "corpus.txt").read_text(encoding="utf8")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)],
        initial_alphabet=alphabet(text),
        limit_alphabet=ALPHABET,
        max_token_length=12,
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    document = json.loads(tokenizer.to_str())
    # The byte tokens are ordinary entries of the vocabulary, not added tokens.
    document["added_tokens"] = [
        a for a in document["added_tokens"] if not a["content"].startswith("<0x")
    ]
    document["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    }
    bos = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = [
        {"SpecialToken": {"id": "<bos>", "type_id": 1}},
        {"Sequence": {"id": "B", "type_id": 1}},
    ]
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [bos, first],
        "pair": [bos, first, *second],
        "special_tokens": {
            "<bos>": {"id": "<bos>", "ids": [SPECIAL.index("<bos>")], "tokens": ["<bos>"]}
        },
    }
    return document


def tokenizer_config():
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
        "padding_side": "left",
        "model_max_length": 131072,
        "clean_up_tokenization_spaces": False,
        "processor_class": "Gemma4Processor",
        **NAMED,
        "extra_special_tokens": NAMED,
    }


def token_id(string):
    return SPECIAL.index(string)
