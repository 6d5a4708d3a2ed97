"""A checkpoint of Qwen3-VL 4B's or Qwen3.5 4B's real shape with random weights (8.9 and 9.1 GB in
bf16), for timing.

usage: real_shape_qwen.py qwen3_vl|qwen3_5 OUT    (needs torch with CUDA, and safetensors)

Tokenizer, template and processor settings are those of the tiny model beside this file, with the
published bounds on pixels; only ids below 432 have text. (The width of Qwen3.5 4B's MLP, 9216, is
by its number of parameters.)
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file

MODEL, OUT = sys.argv[1], pathlib.Path(sys.argv[2])
IS_HYBRID = MODEL == "qwen3_5"
HIDDEN = 2560
# Vocabulary, layers, heads, key heads, head size, MLP width.
VOCABULARY, LAYERS, HEADS, KEY_HEADS, HEAD, MLP = (
    (248320, 32, 16, 4, 256, 9216) if IS_HYBRID else (151936, 36, 32, 8, 128, 9728)
)
# Of linear layers: key and value heads, their size, the convolution's rows.
LINEAR_KEYS, LINEAR_VALUES, LINEAR_HEAD, KERNEL = 16, 32, 128, 4
TOWER_LAYERS, TOWER, TOWER_MLP, TOWER_HEADS, PLACES = 24, 1024, 4096, 16, 2304
DEEPSTACK = [] if IS_HYBRID else [5, 11, 17]

generator = torch.Generator("cuda").manual_seed(1)
tensors = {}


def is_full(layer):
    return not IS_HYBRID or (layer + 1) % 4 == 0


def matrix(name, *shape, scale=None):
    fan_in = torch.Size(shape[1:]).numel()
    values = torch.randn(shape, generator=generator, device="cuda") * (scale or fan_in**-0.5)
    tensors[name] = values.to(torch.bfloat16).cpu()


def constant(name, value, *shape):
    tensors[name] = torch.full(shape, value, dtype=torch.bfloat16)


def norm(name, size):
    """Qwen3.5 stores the norms of its text less one."""
    constant(name, 0.0 if IS_HYBRID else 1.0, size)


def settings(source):
    config = json.loads((source / "config.json").read_text())
    text = config["text_config"]
    text.update(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=MLP, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, head_dim=HEAD,
        max_position_embeddings=262144, tie_word_embeddings=True,
    )  # fmt: skip
    config["tie_word_embeddings"] = True
    if IS_HYBRID:
        kinds = ["full_attention" if is_full(i) else "linear_attention" for i in range(LAYERS)]
        text.update(
            layer_types=kinds, full_attention_interval=4, linear_conv_kernel_dim=KERNEL,
            linear_key_head_dim=LINEAR_HEAD, linear_value_head_dim=LINEAR_HEAD,
            linear_num_key_heads=LINEAR_KEYS, linear_num_value_heads=LINEAR_VALUES,
        )  # fmt: skip
        text["rope_parameters"].update(rope_theta=1e7, mrope_section=[11, 11, 10])
    else:
        text["rope_theta"] = 5e6
        text["rope_scaling"]["mrope_section"] = [24, 20, 20]
    config["vision_config"].update(
        depth=TOWER_LAYERS, hidden_size=TOWER, intermediate_size=TOWER_MLP, num_heads=TOWER_HEADS,
        out_hidden_size=HIDDEN, num_position_embeddings=PLACES, deepstack_visual_indexes=DEEPSTACK,
    )  # fmt: skip
    config["dtype"] = "bfloat16"
    (OUT / "config.json").write_text(json.dumps(config))
    for name, bounds in (
        ("preprocessor_config.json", {"shortest_edge": 65536, "longest_edge": 16777216}),
        ("video_preprocessor_config.json", {"shortest_edge": 4096, "longest_edge": 25165824}),
    ):
        processor = json.loads((source / name).read_text()) | {"size": bounds}
        (OUT / name).write_text(json.dumps(processor))


def attention(n):
    matrix(n + "q_proj.weight", HEADS * HEAD * (2 if IS_HYBRID else 1), HIDDEN)
    for part in "kv":
        matrix(f"{n}{part}_proj.weight", KEY_HEADS * HEAD, HIDDEN)
    matrix(n + "o_proj.weight", HIDDEN, HEADS * HEAD)
    norm(n + "q_norm.weight", HEAD)
    norm(n + "k_norm.weight", HEAD)


def linear(n):
    keys, values = LINEAR_KEYS * LINEAR_HEAD, LINEAR_VALUES * LINEAR_HEAD
    matrix(n + "in_proj_qkv.weight", 2 * keys + values, HIDDEN)
    matrix(n + "in_proj_z.weight", values, HIDDEN)
    for part in "ab":
        matrix(f"{n}in_proj_{part}.weight", LINEAR_VALUES, HIDDEN)
    matrix(n + "out_proj.weight", HIDDEN, values)
    matrix(n + "conv1d.weight", 2 * keys + values, 1, KERNEL)
    constant(n + "A_log", 1.0, LINEAR_VALUES)
    constant(n + "dt_bias", -2.0, LINEAR_VALUES)
    constant(n + "norm.weight", 1.0, LINEAR_HEAD)


def text():
    m = "model.language_model."
    matrix(m + "embed_tokens.weight", VOCABULARY, HIDDEN)
    norm(m + "norm.weight", HIDDEN)
    for i in range(LAYERS):
        n = f"{m}layers.{i}."
        norm(n + "input_layernorm.weight", HIDDEN)
        norm(n + "post_attention_layernorm.weight", HIDDEN)
        if is_full(i):
            attention(n + "self_attn.")
        else:
            linear(n + "linear_attn.")
        matrix(n + "mlp.gate_proj.weight", MLP, HIDDEN)
        matrix(n + "mlp.up_proj.weight", MLP, HIDDEN)
        matrix(n + "mlp.down_proj.weight", HIDDEN, MLP)


def biased(name, out, size):
    matrix(name + ".weight", out, size)
    constant(name + ".bias", 0.0, out)


def layer_norm(name, size):
    constant(name + ".weight", 1.0, size)
    constant(name + ".bias", 0.0, size)


def tower():
    q, joined = "model.visual.", 4 * TOWER
    matrix(q + "patch_embed.proj.weight", TOWER, 3, 2, 16, 16)
    constant(q + "patch_embed.proj.bias", 0.0, TOWER)
    matrix(q + "pos_embed.weight", PLACES, TOWER, scale=0.02)
    for i in range(TOWER_LAYERS):
        n = f"{q}blocks.{i}."
        layer_norm(n + "norm1", TOWER)
        layer_norm(n + "norm2", TOWER)
        biased(n + "attn.qkv", 3 * TOWER, TOWER)
        biased(n + "attn.proj", TOWER, TOWER)
        biased(n + "mlp.linear_fc1", TOWER_MLP, TOWER)
        biased(n + "mlp.linear_fc2", TOWER, TOWER_MLP)
    mergers = {"merger.": TOWER}
    mergers |= {f"deepstack_merger_list.{i}.": joined for i in range(len(DEEPSTACK))}
    for name, normed in mergers.items():
        layer_norm(q + name + "norm", normed)
        biased(q + name + "linear_fc1", joined, joined)
        biased(q + name + "linear_fc2", HIDDEN, joined)


source = pathlib.Path(__file__).parent / "models" / MODEL
OUT.mkdir(parents=True, exist_ok=True)
for file in source.iterdir():
    if file.name != "tensors.json":
        shutil.copy(file, OUT)
settings(source)
text()
tower()
save_file(tensors, OUT / "model.safetensors", {"format": "pt"})
print(f"{sum(t.numel() for t in tensors.values()) / 1e9:.2f} G parameters")
