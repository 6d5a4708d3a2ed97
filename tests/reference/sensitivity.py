"""How far single mistakes move the logits of the tiny Gemma 4: what the goldens can catch.

Each row changes one thing in transformers' model and compares with the right logits over all
steps of a case. A mistake that stays below the tolerance of the parity tests would be invisible.
"""

import tempfile

import torch

import cases
import transformers_reference as hf
from check_goldens import TOLERANCE
from weights import build_checkpoint

MODEL = "gemma4_e2b"
TEXT = "/text_config/"
FULL_ROPE = TEXT + "rope_parameters/full_attention/"


def config(pointer, value):
    return {"file": "config.json", "pointer": pointer, "value": value}


def weights(pattern, change):
    """Applies `change` to every parameter and buffer whose name contains `pattern`."""

    def edit(model):
        found = [t for n, t in model.state_dict(keep_vars=True).items() if pattern in n]
        assert found, pattern
        for tensor in found:
            tensor.data.copy_(change(tensor.data))

    return edit


# name: (case, patches of the configuration, edit of the model)
MISTAKES = {
    "sliding window one longer": ("longtext", [config(TEXT + "sliding_window", 33)], None),
    "sliding window one shorter": ("longtext", [config(TEXT + "sliding_window", 31)], None),
    "no soft cap": ("text", [config(TEXT + "final_logit_softcapping", None)], None),
    "full rope: theta 1e5": ("text", [config(FULL_ROPE + "rope_theta", 1e5)], None),
    "full rope: half of the head": (
        "text",
        [config(FULL_ROPE + "partial_rotary_factor", 0.5)],
        None,
    ),
    "norm epsilon 1e-5": ("text", [config(TEXT + "rms_norm_eps", 1e-5)], None),
    "layer_scalar ignored": ("text", [], weights("layer_scalar", torch.ones_like)),
    "q_norm ignored": ("text", [], weights("language_model.layers.5.self_attn.q_norm", torch.ones_like)),
    "per-layer embeddings zero": (
        "text",
        [],
        weights("embed_tokens_per_layer", torch.zeros_like),
    ),
    "vision: input clips ignored": ("image_png", [], weights("vision_tower.encoder.layers.1.mlp.gate_proj.input_m", lambda t: t * 1e9)),
    "vision: output clips ignored": ("image_png", [], weights("vision_tower.encoder.layers.1.mlp.gate_proj.output_m", lambda t: t * 1e9)),
    "vision: position table constant": (
        "image_png",
        [],
        weights("position_embedding_table", lambda t: t.mean(1, keepdim=True).expand_as(t)),
    ),
    "vision: x and y of the table exchanged": (
        "image_png",
        [],
        weights("position_embedding_table", lambda t: t.flip(0)),
    ),
    "vision: rope theta 1000": (
        "image_png",
        [config("/vision_config/rope_parameters/rope_theta", 1000.0)],
        None,
    ),
    "audio: per_dim_scale ignored": ("audio", [], weights("per_dim_scale", torch.zeros_like)),
    "audio: output clips ignored": ("audio", [], weights("audio_tower.layers.0.feed_forward1.ffw_layer_1.output_m", lambda t: t * 1e9)),
}  # fmt: skip


def logits(case, patches, edit, ids=None):
    messages, settings = cases.CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        build_checkpoint(MODEL, folder, [*settings, *patches])
        model, processor = hf.load(folder), hf.load_processor(folder)
    if edit:
        edit(model)
    _, inputs = hf.prepare(processor, messages)
    ids = ids or hf.greedy(model, inputs)[0]
    return ids, hf.forced(model, inputs, ids)


def main():
    right = {case: logits(case, [], None) for case in {m[0] for m in MISTAKES.values()}}
    print("| mistake | case | largest difference |\n|---|---|---|")
    for name, (case, patches, edit) in MISTAKES.items():
        ids, expected = right[case]
        difference = float((logits(case, patches, edit, ids)[1] - expected).abs().max())
        note = "" if difference > TOLERANCE else " (invisible)"
        print(f"| {name} | {case} | {difference:.1e}{note} |", flush=True)


if __name__ == "__main__":
    main()
