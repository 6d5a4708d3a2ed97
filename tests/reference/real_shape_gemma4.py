"""A checkpoint of Gemma 4 E2B's or E4B's real shape with random weights (9.6 and 15.6 GB in bf16),
for timing.

usage: real_shape_gemma4.py e2b|e4b OUT    (needs torch with CUDA, and safetensors)

Tokenizer, template and processor settings are those of the tiny model beside this file, with
the real budget of 280 soft tokens; only ids below 768 have text.
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file

VOCABULARY, PER_LAYER, HEADS = 262144, 256, 8
# Layers, those with keys of their own, hidden size, MLP width, key heads, period of full layers,
# and how much wider the MLP of the others is.
SHAPES = {"e2b": (35, 15, 1536, 6144, 1, 5, 2), "e4b": (42, 24, 2560, 10240, 2, 6, 1)}
LAYERS, OWN_KEYS, HIDDEN, MLP, KEY_HEADS, PERIOD, WIDER = SHAPES[sys.argv[1]]
TOWER_LAYERS, TOWER, TOWER_MLP = 16, 768, 3072

generator = torch.Generator("cuda").manual_seed(1)
tensors = {}


def is_full(layer):
    return (layer + 1) % PERIOD == 0


def matrix(name, *shape, scale=None):
    values = torch.randn(shape, generator=generator, device="cuda") * (scale or shape[-1] ** -0.5)
    tensors[name] = values.to(torch.bfloat16).cpu()


def ones(name, *shape):
    tensors[name] = torch.ones(shape, dtype=torch.bfloat16)


def settings(source, out):
    config = json.loads((source / "config.json").read_text())
    config["text_config"].update(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=MLP, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, head_dim=256, global_head_dim=512,
        sliding_window=512, use_double_wide_mlp=WIDER == 2, num_kv_shared_layers=LAYERS - OWN_KEYS,
        hidden_size_per_layer_input=PER_LAYER, vocab_size_per_layer_input=VOCABULARY,
        layer_types=["full_attention" if is_full(i) else "sliding_attention" for i in range(LAYERS)],
        max_position_embeddings=131072,
    )
    config["vision_config"].update(
        hidden_size=TOWER, intermediate_size=TOWER_MLP, num_hidden_layers=TOWER_LAYERS,
        num_attention_heads=12, num_key_value_heads=12, head_dim=64, position_embedding_size=10240,
    )
    config["audio_config"] = None
    config["dtype"] = "bfloat16"
    (out / "config.json").write_text(json.dumps(config))
    processor = json.loads((source / "processor_config.json").read_text())
    processor["image_processor"]["max_soft_tokens"] = processor["image_seq_length"] = 280
    (out / "processor_config.json").write_text(json.dumps(processor))


def text():
    m = "model.language_model."
    matrix(m + "embed_tokens.weight", VOCABULARY, HIDDEN)
    matrix(m + "embed_tokens_per_layer.weight", VOCABULARY, LAYERS * PER_LAYER, scale=0.02)
    matrix(m + "per_layer_model_projection.weight", LAYERS * PER_LAYER, HIDDEN)
    ones(m + "per_layer_projection_norm.weight", PER_LAYER)
    ones(m + "norm.weight", HIDDEN)
    for i in range(LAYERS):
        n = f"{m}layers.{i}."
        head = 512 if is_full(i) else 256
        width = MLP if i < OWN_KEYS else WIDER * MLP
        for norm in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                     "post_feedforward_layernorm", "post_per_layer_input_norm"):
            ones(n + norm + ".weight", HIDDEN)
        matrix(n + "self_attn.q_proj.weight", HEADS * head, HIDDEN)
        matrix(n + "self_attn.o_proj.weight", HIDDEN, HEADS * head)
        ones(n + "self_attn.q_norm.weight", head)
        if i < OWN_KEYS:
            matrix(n + "self_attn.k_proj.weight", KEY_HEADS * head, HIDDEN)
            matrix(n + "self_attn.v_proj.weight", KEY_HEADS * head, HIDDEN)
            ones(n + "self_attn.k_norm.weight", head)
        matrix(n + "mlp.gate_proj.weight", width, HIDDEN)
        matrix(n + "mlp.up_proj.weight", width, HIDDEN)
        matrix(n + "mlp.down_proj.weight", HIDDEN, width)
        matrix(n + "per_layer_input_gate.weight", PER_LAYER, HIDDEN)
        matrix(n + "per_layer_projection.weight", HIDDEN, PER_LAYER)
        ones(n + "layer_scalar", 1)


def tower():
    q = "model.vision_tower."
    matrix(q + "patch_embedder.input_proj.weight", TOWER, 768)
    matrix(q + "patch_embedder.position_embedding_table", 2, 10240, TOWER, scale=0.02)
    bounds = {"input_min": -30.0, "input_max": 30.0, "output_min": -30.0, "output_max": 30.0}
    for i in range(TOWER_LAYERS):
        n = f"{q}encoder.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                     "post_feedforward_layernorm"):
            ones(n + norm + ".weight", TOWER)
        for norm in ("q_norm", "k_norm"):
            ones(n + f"self_attn.{norm}.weight", 64)
        linears = {f"self_attn.{x}_proj": (TOWER, TOWER) for x in "qkvo"}
        linears |= {"mlp.gate_proj": (TOWER_MLP, TOWER), "mlp.up_proj": (TOWER_MLP, TOWER),
                    "mlp.down_proj": (TOWER, TOWER_MLP)}
        for name, shape in linears.items():
            matrix(n + name + ".linear.weight", *shape)
            for bound, value in bounds.items():
                tensors[n + name + "." + bound] = torch.tensor(value, dtype=torch.bfloat16)
    matrix("model.embed_vision.embedding_projection.weight", HIDDEN, TOWER)


source = pathlib.Path(__file__).parent / "models" / "gemma4_e2b"
out = pathlib.Path(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)
for file in source.iterdir():
    if file.name != "tensors.json":
        shutil.copy(file, out)
settings(source, out)
text()
tower()
save_file(tensors, out / "model.safetensors", {"format": "pt"})
print(f"{sum(t.numel() for t in tensors.values()) / 1e9:.2f} G parameters")
