"""A tokenizer in Gemma's form, with byte fallback, trained on the generators' own sentences."""

import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import questions
from counter import Counter

# Gemma 4's special strings. The first four ids are the family's own.
SPECIAL = [
    "<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>",
    "<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>", "<|video|>",
    "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>",
    "<|tool_response>", "<tool_response|>", '<|"|>',
]  # fmt: skip
ALPHABET = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    ".,?!:;'\"()[]{}-_/\n\u2581"
)
VOCABULARY = 768


def sentences(count=2500):
    """What is asked and answered, in every mode."""
    r = Counter(1, "tokenizer")
    for _ in range(count):
        mode = r.weighted([("plain", 60), ("think", 15), ("json", 15), ("tools", 10)])
        kind = r.weighted(questions.KINDS + [("text", 15)])
        if kind == "text":
            sample = questions.draw_text(r, 2, "tools" if mode == "tools" else "plain")
        else:
            sample = questions.draw_sample(r, kind, 2, r.chance(30), mode)
        for q in sample.questions:
            yield f"user\n{q.text}"
            yield f"model\n{q.answer}"
            if mode == "think":
                yield f"thought\n{q.thought}\n"
            call = questions.call_of(q) if mode == "tools" else None
            if call:
                text, name, result = call
                yield from text.replace("<|tool_call>", "").split('<|"|>')
                yield f"response:{name}{{value:"
                yield result
    for text in questions.SYSTEM:
        yield f"system\n{text}"
    # How the template declares the tools, less the special strings.
    for text in questions.TOOLS * 60:
        function = text["function"]
        yield f"declaration:{function['name']}{{description:"
        yield function["description"]
        yield from (",parameters:{properties:{", "}},required:[", "],type:", "},type:", "type:")
        for name, schema in function["parameters"]["properties"].items():
            yield from (f"{name}:{{type:", f"}},{name}:{{type:", schema["type"].upper())
        yield from ("things:{items:{type:", "OBJECT", "}}")
    yield from ("user\n", "model\n", "system\n", "\n", "\n\n") * 200


def train(path):
    """Writes tokenizer.json; the number of its entries."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # Runs of punctuation, in JSON with the spaces between, are apart from words: so a word
            # has one form within quotes, and another after a space.
            pre_tokenizers.Split(Regex('[.?!\n]+|(?:\u2581?["{}\\[\\]:,])+'), "isolated"),
            pre_tokenizers.Split("\u2581", "merged_with_next"),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)],
        max_token_length=16,
        show_progress=False,
        initial_alphabet=list(ALPHABET),
    )
    tokenizer.train_from_iterator(sentences(), trainer)
    document = json.loads(tokenizer.to_str())
    # Bytes are ordinary entries, which the fallback uses.
    document["added_tokens"] = [
        token for token in document["added_tokens"] if not token["content"].startswith("<0x")
    ]
    template = [
        {"SpecialToken": {"id": "<bos>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": template,
        "pair": template
        + [
            {"SpecialToken": {"id": "<bos>", "type_id": 1}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
    }
    path.write_text(json.dumps(document, ensure_ascii=False))
    return len(document["model"]["vocab"])
