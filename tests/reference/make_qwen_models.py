"""Writes the descriptions of the tiny Qwen models under models/.

usage: make_qwen_models.py [MODEL...]
"""

import sys

from make_models import describe, shapes, write_description, write_json
from qwen_configs import IMAGE_PROCESSOR, MODELS, VIDEO_PROCESSOR
from qwen_tokenizer import TEMPLATE, token_id, tokenizer_config, train
from weights import MODELS as FOLDER

# See make_models.py. Norms of Qwen3.5's text are stored around 0 (it multiplies by 1 + w).
WEIGHTS = [
    (r"\.A_log$", -1.5, 1.5),
    (r"\.dt_bias$", 0.0, 1.0),
    (r"linear_attn\.norm\.weight$", 0.8, 0.4),
    (r"\.conv1d\.weight$", 0.0, 0.8),
    (r"[qk]_norm\.weight$", 1.6, 0.5),
    (r"\.post_attention_layernorm\.weight$", 1.4, 0.5),
    (r"norm\d?\.weight$", 1.0, 0.4),
    (r"embed_tokens\.weight$", 0.0, 0.4),
    (r"pos_embed\.weight$", 0.0, 0.6),
    (r"\.bias$", 0.0, 0.2),
    # What depends on the last token outweighs what is averaged over the context.
    (r"mlp\..*down_proj", 0.0, 0.35),
    (r"", 0.0, None),
]
ZERO_CENTRED = [
    (r"language_model.*[qk]_norm\.weight$", 0.6, 0.5),
    (r"language_model.*post_attention_layernorm\.weight$", 0.4, 0.5),
    (r"language_model.*(input_layernorm|model\.norm)\.weight$", -0.2, 0.4),
    (r"language_model\.norm\.weight$", 0.3, 0.4),
]


def stored(config, folder):
    """Name and shape of each tensor as published files have it."""
    found = shapes(config, folder)
    if config["tie_word_embeddings"]:
        del found["lm_head.weight"]
    if config["model_type"] == "qwen3_vl_moe":
        # Published files hold these experts as [experts, in, out].
        for name, shape in found.items():
            if ".mlp.experts." in name:
                found[name] = [shape[0], shape[2], shape[1]]
    return found


def rules(config):
    zero_centred = config["model_type"].startswith("qwen3_5")
    return ZERO_CENTRED + WEIGHTS if zero_centred else WEIGHTS


def make(name):
    config, seed = MODELS[name]
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    tokens = tokenizer_config()
    if "vision_config" in config:
        write_json(folder / "preprocessor_config.json", IMAGE_PROCESSOR)
        write_json(folder / "video_preprocessor_config.json", VIDEO_PROCESSOR)
    else:
        del tokens["processor_class"]
    write_json(folder / "tokenizer_config.json", tokens)
    write_json(folder / "tokenizer.json", train(), indent=None)
    ends = [token_id("<|im_end|>"), token_id("<|endoftext|>")]
    generation = {"eos_token_id": ends, "pad_token_id": ends[1], "do_sample": False}
    write_json(folder / "generation_config.json", generation)
    (folder / "chat_template.jinja").write_text(TEMPLATE)

    found = sorted(stored(config, folder).items())
    write_description(name, seed, [describe(n, s, False, rules(config)) for n, s in found])


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
