"""Writes the model descriptions under models/: configuration, tokenizer and tensors.json.

usage: make_models.py [MODEL...]
"""

import json
import math
import re
import sys

import torch
import transformers

from make_tokenizer import tokenizer_config, train
from model_configs import MODELS, SLIDING, VOCAB
from weights import HERE, fingerprints
from weights import MODELS as FOLDER

TEMPLATE = """\
{{ bos_token }}{% for m in messages %}<|turn>{{ 'model' if m.role == 'assistant' else m.role }}
{% if m.content is string %}{{ m.content | trim }}{% else %}{% for c in m.content %}\
{% if c.type == 'text' %}{{ c.text | trim }}\
{% elif c.type == 'image' %}<|image|>\
{% elif c.type == 'audio' %}<|audio|>\
{% elif c.type == 'video' %}<|video|>\
{% endif %}{% endfor %}{% endif %}<turn|>
{% endfor %}{% if add_generation_prompt %}<|turn>model
{% endif %}"""

# (name pattern, offset, scale): the first match counts. `None` as scale: 1.2 * sqrt(3 / fan_in),
# which makes a matrix keep the size of its input.
GEMMA4_WEIGHTS = [
    (r"\.input_min$", -1.5, 0.25),
    (r"\.input_max$", 1.5, 0.25),
    (r"\.output_min$", -1.75, 0.25),
    (r"\.output_max$", 1.75, 0.25),
    (r"\.layer_scalar$", 0.8, 0.15),
    (r"\.per_dim_scale$", 0.25, 0.5),
    # Attention has no scale of its own in this family: these weights set how sharp it is.
    (r"language_model\..*[qk]_norm\.weight$", 0.65, 0.3),
    (r"\.[qk]_norm\.weight$", 0.55, 0.25),
    # What depends on the last token outweighs what is averaged over the context, or greedy
    # decoding would repeat one token.
    (r"language_model\..*post_attention_layernorm\.weight$", 0.8, 0.3),
    (r"language_model\..*post_feedforward_layernorm\.weight$", 1.4, 0.5),
    (r"\.post_per_layer_input_norm\.weight$", 1.5, 0.5),
    (r"(norm|patch_ln).*\.weight$", 1.0, 0.4),
    (r"\.(std_scale|router\.scale|per_expert_scale)$", 1.0, 0.4),
    (r"\.std_bias$", 0.0, 0.5),
    (r"\.embed_tokens\.weight$", 0.0, 0.4),
    (r"\.embed_tokens_per_layer\.weight$", 0.0, 0.5),
    (r"\.(position_embedding_table|pos_embedding)$", 0.0, 0.6),
    (r"\.bias$", 0.0, 0.2),
    (r"", 0.0, None),
]
# Norm weights are what is added to one.
GEMMA3_WEIGHTS = [
    (r"\.[qk]_norm\.weight$", 0.6, 0.3),
    (r"post_attention_layernorm\.weight$", -0.4, 0.3),
    (r"post_feedforward_layernorm\.weight$", 2.0, 0.6),
    (r"norm\.weight$", 0.0, 0.4),
    (r"\.embed_tokens\.weight$", 0.0, 0.4),
    (r"", 0.0, None),
]
RULES = {"gemma3_text": GEMMA3_WEIGHTS}
# With neither per-layer embeddings nor experts, the last token needs yet more weight.
WITHOUT_PER_LAYER = [
    (r"\.layer_scalar$", 0.5, 0.15),
    (r"language_model\..*post_attention_layernorm\.weight$", 0.6, 0.2),
    (r"language_model\..*post_feedforward_layernorm\.weight$", 1.8, 0.6),
]
RULES["gemma4_unified"] = WITHOUT_PER_LAYER + GEMMA4_WEIGHTS


def shapes(config, folder):
    """Name and shape of each tensor in the Hugging Face layout, from transformers itself."""
    architecture = getattr(transformers, config["architectures"][0])
    parsed = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        state = architecture(parsed).state_dict()
    return {name: list(t.shape) for name, t in state.items() if not name.endswith("inv_freq")}


def on_disk(name):
    """The unified model's picture embedder has other names in files than in transformers."""
    name = name.replace("embed_vision.multimodal_embedder.", "embed_vision.")
    return re.sub(r"embed_vision\.(patch_|pos_)", r"vision_embedder.\1", name)


def shared_projections(config):
    """Keys and values of KV-shared layers: published checkpoints may carry them, none reads them."""
    text = config.get("text_config", {"num_hidden_layers": 0, "num_kv_shared_layers": 0})
    layers, shared = text["num_hidden_layers"], text["num_kv_shared_layers"]
    found = {}
    for layer in range(layers - shared, layers):
        head = text["head_dim" if text["layer_types"][layer] == SLIDING else "global_head_dim"]
        prefix = f"model.language_model.layers.{layer}.self_attn."
        for part in "kv":
            rows = head * text["num_key_value_heads"]
            found[f"{prefix}{part}_proj.weight"] = [rows, text["hidden_size"]]
        found[f"{prefix}k_norm.weight"] = [head]
    return found


def describe(name, shape, unused, rules):
    offset, scale = next((o, s) for p, o, s in rules if re.search(p, name))
    if scale is None:
        # A stack of experts is a stack of matrices; any other tensor is one matrix or kernel.
        fan_in = shape[-1] if ".experts." in name else math.prod(shape[1:])
        scale = round(1.2 * math.sqrt(3 / fan_in), 4)
    tensor = {"name": name, "shape": shape, "dtype": "F32", "offset": offset, "scale": scale}
    return tensor | ({"unused": True} if unused else {})


def write_json(path, value, indent=1):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf8")


def write_description(name, seed, tensors):
    """tensors.json, and what its weights are known by."""
    rows = ",\n  ".join(json.dumps(t) for t in tensors)
    path = FOLDER / name / "tensors.json"
    path.write_text(f'{{\n "seed": {seed},\n "tensors": [\n  {rows}\n ]\n}}\n')
    golden = HERE / "goldens" / name
    golden.mkdir(parents=True, exist_ok=True)
    marks = fingerprints(name)
    lines = ",\n ".join(f"{json.dumps(n)}: {json.dumps(v)}" for n, v in marks.items())
    (golden / "weights.json").write_text(f"{{\n {lines}\n}}\n")


def make(name):
    config, processor, seed = MODELS[name]
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    if processor:
        write_json(folder / "processor_config.json", processor)
    write_json(folder / "tokenizer_config.json", tokenizer_config())
    # The last ids have no token, as in published checkpoints.
    write_json(folder / "tokenizer.json", train(VOCAB - 8), indent=None)
    generation = {"eos_token_id": config["eos_token_id"], "pad_token_id": 0, "do_sample": False}
    write_json(folder / "generation_config.json", generation)
    (folder / "chat_template.jinja").write_text(TEMPLATE)

    found = {on_disk(name): shape for name, shape in shapes(config, folder).items()}
    found.pop("lm_head.weight", None)
    unused = shared_projections(config)
    rules = RULES.get(name, GEMMA4_WEIGHTS)
    rows = [describe(n, s, n in unused, rules) for n, s in sorted((found | unused).items())]
    write_description(name, seed, rows)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
