"""Writes the model descriptions under models/: configuration, tokenizer and tensors.json.

The configurations are made to expose mistakes: see "Why these sizes and weights" in README.md.
"""

import json
import math
import re
from pathlib import Path

import torch
import transformers

from make_tokenizer import token_id, tokenizer_config, train
from weights import MODELS, fingerprints

# Chosen among sixty so that no case generates a media token or an id beyond the per-layer table,
# repeats one token, or comes near a tie: make_goldens.py checks this.
SEED = 7
# The tokenizer has VOCAB - 8 entries or fewer; the ids above the per-layer table's end are legal
# for `embed_tokens` only, as in a model whose two tables differ in size.
VOCAB, VOCAB_PER_LAYER = 768, 764

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

SLIDING, FULL = "sliding_attention", "full_attention"

GEMMA4_E2B = {
    "model_type": "gemma4",
    "architectures": ["Gemma4ForConditionalGeneration"],
    "dtype": "float32",
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "gemma4_text",
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "global_head_dim": 64,
        "num_global_key_value_heads": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
            FULL: {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.25,
                "rope_theta": 1000000.0,
            },
        },
        "sliding_window": 32,
        "layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL],
        "final_logit_softcapping": 30.0,
        "use_bidirectional_attention": None,
        "vocab_size_per_layer_input": VOCAB_PER_LAYER,
        "hidden_size_per_layer_input": 16,
        "attention_k_eq_v": False,
        "num_kv_shared_layers": 2,
        "enable_moe_block": False,
        "use_double_wide_mlp": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
        "attention_bias": False,
    },
    "vision_config": {
        "model_type": "gemma4_vision",
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "head_dim": 32,
        "global_head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
        "patch_size": 16,
        "pooling_kernel_size": 3,
        "position_embedding_size": 256,
        "use_clipped_linears": True,
        "standardize": False,
        "default_output_length": 70,
        "max_position_embeddings": 131072,
    },
    # The first convolution has 128 channels because transformers takes the width of the
    # flattened features from them, right only when they equal the number of mel bins.
    "audio_config": {
        "model_type": "gemma4_audio",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_act": "silu",
        "subsampling_conv_channels": [128, 8],
        "conv_kernel_size": 5,
        "residual_weight": 0.5,
        "attention_chunk_size": 12,
        "attention_context_left": 13,
        "attention_context_right": 0,
        "attention_logit_cap": 50.0,
        "attention_invalid_logits_value": -1e9,
        "use_clipped_linears": True,
        "rms_norm_eps": 1e-6,
        "gradient_clipping": 1e10,
        "output_proj_dims": 80,
    },
    "vision_soft_tokens_per_image": 70,
    "eos_token_id": [token_id("<eos>"), token_id("<turn|>")],
    "image_token_id": token_id("<|image|>"),
    "audio_token_id": token_id("<|audio|>"),
    "video_token_id": token_id("<|video|>"),
    "boi_token_id": token_id("<|image>"),
    "eoi_token_id": token_id("<image|>"),
    "boa_token_id": token_id("<|audio>"),
    "eoa_token_id": token_id("<audio|>"),
    "eoa_token_index": token_id("<audio|>"),
}

PIXELS = {
    "do_convert_rgb": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.0, 0.0, 0.0],
    "image_std": [1.0, 1.0, 1.0],
    "max_soft_tokens": 70,
    "patch_size": 16,
    "pooling_kernel_size": 3,
    "resample": 3,
    "rescale_factor": 1 / 255,
}
PROCESSOR = {
    "processor_class": "Gemma4Processor",
    "image_seq_length": 70,
    "audio_seq_length": 750,
    "audio_ms_per_token": 40,
    "image_processor": {
        "image_processor_type": "Gemma4ImageProcessor",
        "do_normalize": False,
        **PIXELS,
    },
    "video_processor": {
        "video_processor_type": "Gemma4VideoProcessor",
        "do_normalize": True,
        "do_sample_frames": True,
        "num_frames": 8,
        "return_metadata": False,
        **PIXELS,
    },
    "feature_extractor": {
        "feature_extractor_type": "Gemma4AudioFeatureExtractor",
        "dither": 0.0,
        "feature_size": 128,
        "fft_length": 512,
        "fft_overdrive": False,
        "frame_length": 320,
        "hop_length": 160,
        "input_scale_factor": 1.0,
        "max_frequency": 8000.0,
        "mel_floor": 0.001,
        "min_frequency": 0.0,
        "padding_side": "right",
        "padding_value": 0.0,
        "per_bin_mean": None,
        "per_bin_stddev": None,
        "preemphasis": 0.0,
        "preemphasis_htk_flavor": True,
        "return_attention_mask": True,
        "sampling_rate": 16000,
    },
}

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
    (r"norm.*\.weight$", 1.0, 0.4),
    (r"\.embed_tokens\.weight$", 0.0, 0.4),
    (r"\.embed_tokens_per_layer\.weight$", 0.0, 0.5),
    (r"\.position_embedding_table$", 0.0, 0.6),
    (r"\.bias$", 0.0, 0.2),
    (r"", 0.0, None),
]


def shapes(config, folder):
    """Name and shape of each tensor in the Hugging Face layout, from transformers itself."""
    architecture = getattr(transformers, config["architectures"][0])
    parsed = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        state = architecture(parsed).state_dict()
    found = {name: list(t.shape) for name, t in state.items()}
    found.pop("lm_head.weight", None)
    return {n: s for n, s in found.items() if not n.endswith("inv_freq")}


def shared_projections(config):
    """Keys and values of KV-shared layers: published checkpoints may carry them, none reads them."""
    text = config["text_config"]
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


def describe(name, shape, unused):
    offset, scale = next((o, s) for p, o, s in GEMMA4_WEIGHTS if re.search(p, name))
    if scale is None:
        scale = round(1.2 * math.sqrt(3 / math.prod(shape[1:])), 4)
    tensor = {"name": name, "shape": shape, "dtype": "F32", "offset": offset, "scale": scale}
    return tensor | ({"unused": True} if unused else {})


def write_json(path, value, indent=1):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf8")


def write_tensors(path, tensors):
    rows = ",\n  ".join(json.dumps(t) for t in tensors)
    path.write_text(f'{{\n "seed": {SEED},\n "tensors": [\n  {rows}\n ]\n}}\n')


def main():
    name, config = "gemma4_e2b", GEMMA4_E2B
    folder = MODELS / name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    write_json(folder / "processor_config.json", PROCESSOR)
    write_json(folder / "tokenizer_config.json", tokenizer_config())
    write_json(folder / "tokenizer.json", train(VOCAB - 8), indent=None)
    generation = {"eos_token_id": config["eos_token_id"], "pad_token_id": 0, "do_sample": False}
    write_json(folder / "generation_config.json", generation)
    (folder / "chat_template.jinja").write_text(TEMPLATE)

    found = shapes(config, folder)
    unused = shared_projections(config)
    rows = [describe(n, s, n in unused) for n, s in sorted((found | unused).items())]
    write_tensors(folder / "tensors.json", rows)
    golden = Path(__file__).parent / "goldens" / name
    golden.mkdir(parents=True, exist_ok=True)
    marks = fingerprints(name)
    lines = ",\n ".join(f"{json.dumps(n)}: {json.dumps(v)}" for n, v in marks.items())
    (golden / "weights.json").write_text(f"{{\n {lines}\n}}\n")


if __name__ == "__main__":
    main()
