"""How far single mistakes move the logits of the tiny Qwen models: what the goldens can catch.

Each row changes one thing in transformers' model and compares with the right logits over all
steps of a case. A mistake that stays below the tolerance of the parity tests would be invisible.
"""

import tempfile

import torch
import transformers.models.qwen3_5.modeling_qwen3_5 as hybrid

import qwen_cases as cases
import qwen_reference as qwen
import transformers_reference as hf
from make_qwen_goldens import TOLERANCE
from weights import build_checkpoint

TEXT = "/text_config/"


def config(pointer, value):
    return [{"file": "config.json", "pointer": pointer, "value": value}]


def weights(pattern, change):
    """Applies `change` to every parameter whose name contains `pattern`."""

    def edit(model):
        found = [t for n, t in model.state_dict(keep_vars=True).items() if pattern in n]
        assert found, pattern
        for tensor in found:
            tensor.data.copy_(change(tensor.data))

    return edit


def activation(pattern, function):
    def edit(model):
        found = [m for n, m in model.named_modules() if pattern in n and hasattr(m, "act_fn")]
        assert found, pattern
        for module in found:
            module.act_fn = function

    return edit


def no_deepstack(model):
    model.model.language_model._deepstack_process = lambda hidden, *rest: hidden


def length_epsilon(model):
    right = hybrid.l2norm
    hybrid.l2norm = lambda x, dim=-1, eps=1e-6: right(x, dim, eps * x.shape[-1])
    return lambda: setattr(hybrid, "l2norm", right)


EXACT, TANH = torch.nn.GELU(), torch.nn.GELU(approximate="tanh")
GATES = "mlp.experts.gate_up_proj"


def exchanged_halves(t):
    return torch.cat(t.chunk(2, 1)[::-1], 1)


def split_at_once(t):
    """Of 4 heads of 64: the queries first, then the gates, where each head has both."""
    return torch.cat([p for h in range(4) for p in (t[64 * h :][:64], t[256 + 64 * h :][:64])])


def heads_in_turn(model):
    """Value head h reads key head h % 2 rather than h // 2: value heads 1 and 2 exchanged."""
    order = [0, 2, 1, 3]
    for layer in model.model.language_model.layers:
        if not hasattr(layer, "linear_attn"):
            continue
        mixer = layer.linear_attn
        rows = torch.cat([torch.arange(24) + 24 * h for h in order])
        with torch.no_grad():
            for linear, start in ((mixer.in_proj_qkv, 128), (mixer.in_proj_z, 0)):
                linear.weight[start:] = linear.weight[start:][rows].clone()
            mixer.conv1d.weight[128:] = mixer.conv1d.weight[128:][rows].clone()
            mixer.out_proj.weight[:] = mixer.out_proj.weight[:, rows].clone()
            for linear in (mixer.in_proj_a, mixer.in_proj_b):
                linear.weight[:] = linear.weight[order].clone()
            mixer.A_log[:] = mixer.A_log[order].clone()
            mixer.dt_bias[:] = mixer.dt_bias[order].clone()


# name: (model, case, patches of the configuration, edit of the model)
MISTAKES = {
    "sections of row and column exchanged by one": ("qwen3_vl", "image_png", config(TEXT + "rope_scaling/mrope_section", [6, 6, 4]), None),
    "rope base 1e4": ("qwen3_vl", "text", config(TEXT + "rope_theta", 1e4), None),
    "q_norm of one layer ignored": ("qwen3_vl", "text", [], weights("language_model.layers.2.self_attn.q_norm", torch.ones_like)),
    "deepstack ignored": ("qwen3_vl", "image_png", [], no_deepstack),
    "deepstack taken one layer early": ("qwen3_vl", "image_png", config("/vision_config/deepstack_visual_indexes", [0, 1, 3]), None),
    "places: table constant": ("qwen3_vl", "image_png", [], weights("pos_embed.weight", lambda t: t.mean(0, keepdim=True).expand_as(t))),
    "places: rows and columns exchanged": ("qwen3_vl", "image_tall", [], weights("pos_embed.weight", lambda t: t.reshape(8, 8, -1).transpose(0, 1).reshape(t.shape))),
    "blocks: exact GELU": ("qwen3_vl", "image_png", [], activation("visual.blocks", EXACT)),
    "mergers: tanh GELU": ("qwen3_vl", "image_png", [], activation("merger", TANH)),
    "experts: gate and up exchanged": ("qwen3_vl_moe", "text", [], weights(GATES, exchanged_halves)),
    "norms multiply by what is stored": ("qwen3_5", "text", [], weights("layers.3.input_layernorm", lambda t: t - 1)),
    "gated norm multiplies by one more": ("qwen3_5", "text", [], weights("linear_attn.norm", lambda t: t + 1)),
    "decay ignored in one layer": ("qwen3_5", "longtext", [], weights("layers.1.linear_attn.A_log", lambda t: t - 20)),
    "dt_bias ignored": ("qwen3_5", "text", [], weights("dt_bias", torch.zeros_like)),
    "key heads dealt in turn": ("qwen3_5", "text", [], heads_in_turn),
    "queries and gates split at once": ("qwen3_5", "text", [], weights("self_attn.q_proj", split_at_once)),
    "epsilon of lengths 32 times as large": ("qwen3_5", "longtext", [], length_epsilon),
    "shared expert ungated": ("qwen3_5_moe", "text", [], weights("shared_expert_gate", torch.zeros_like)),
}  # fmt: skip


def logits(name, case, patches, edit, ids=None):
    messages, settings = cases.CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        build_checkpoint(name, folder, [*settings, *patches])
        model, processor = hf.load(folder), qwen.load_processor(folder)
    undo = edit(model) if edit else None
    _, inputs = qwen.prepare(processor, messages)
    ids = ids or qwen.greedy(model, inputs)[0]
    found = qwen.forced(model, inputs, ids)
    if undo:
        undo()
    return ids, found


def main():
    right = {pair: logits(*pair, [], None) for pair in {m[:2] for m in MISTAKES.values()}}
    print("| mistake | model | case | largest difference |\n|---|---|---|---|")
    for mistake, (name, case, patches, edit) in MISTAKES.items():
        ids, expected = right[name, case]
        difference = float((logits(name, case, patches, edit, ids)[1] - expected).abs().max())
        note = "" if difference > TOLERANCE else " (invisible)"
        print(f"| {mistake} | {name} | {case} | {difference:.1e}{note} |", flush=True)


if __name__ == "__main__":
    main()
