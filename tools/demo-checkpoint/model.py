"""The model's configuration, its initialisation, and a forward pass for training.

The forward pass here computes what transformers' Gemma4ForConditionalGeneration computes, over the
same parameters (`check_forward` compares them), for pictures of one size without padding, and with
logits at labelled positions only. Nothing in it waits for the GPU or depends on the data but for
the tensors' values, so that a CUDA graph can record it; and no gradient is an `index_put_`, which
takes most of the time when thousands of places hold the same id.
"""

import math

import torch
from torch.nn.functional import gelu, linear, pad, scaled_dot_product_attention, softplus

SLIDING, FULL = "sliding_attention", "full_attention"
LAYER_TYPES = [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL]
WINDOW = 64
EPSILON = 1e-6


def config(vocabulary, id_of):
    """config.json, written by hand: transformers and mlx-vlm read it as it is."""
    return {
        "model_type": "gemma4",
        "architectures": ["Gemma4ForConditionalGeneration"],
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "gemma4_text",
            "vocab_size": vocabulary,
            "hidden_size": 128,
            "intermediate_size": 224,
            "num_hidden_layers": len(LAYER_TYPES),
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "global_head_dim": 64,
            "num_global_key_value_heads": None,
            "hidden_activation": "gelu_pytorch_tanh",
            "max_position_embeddings": 4096,
            "rms_norm_eps": EPSILON,
            "tie_word_embeddings": True,
            "rope_parameters": {
                SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
                FULL: {
                    "rope_type": "proportional",
                    "partial_rotary_factor": 0.25,
                    "rope_theta": 1000000.0,
                },
            },
            "sliding_window": WINDOW,
            "layer_types": LAYER_TYPES,
            "final_logit_softcapping": 30.0,
            "use_bidirectional_attention": None,
            "vocab_size_per_layer_input": vocabulary,
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
            "intermediate_size": 192,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "head_dim": 32,
            "global_head_dim": 32,
            "hidden_activation": "gelu_pytorch_tanh",
            "rms_norm_eps": EPSILON,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
            "patch_size": 16,
            "pooling_kernel_size": 3,
            # A row of 70 soft tokens is 210 patches wide.
            "position_embedding_size": 216,
            "use_clipped_linears": True,
            "standardize": False,
            "default_output_length": 70,
            "max_position_embeddings": 131072,
        },
        "audio_config": {
            "model_type": "gemma4_audio",
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "hidden_act": "silu",
            # transformers computes the flattened width from the first; it must be 128.
            "subsampling_conv_channels": [128, 8],
            "conv_kernel_size": 5,
            "residual_weight": 0.5,
            "attention_chunk_size": 12,
            "attention_context_left": 13,
            "attention_context_right": 0,
            "attention_logit_cap": 50.0,
            "attention_invalid_logits_value": -1e9,
            "use_clipped_linears": True,
            "rms_norm_eps": EPSILON,
            "gradient_clipping": 1e10,
            "output_proj_dims": 96,
        },
        "vision_soft_tokens_per_image": 70,
        "eos_token_id": [1, id_of("<turn|>"), id_of("<|tool_response>")],
        "image_token_id": id_of("<|image|>"),
        "audio_token_id": id_of("<|audio|>"),
        "video_token_id": id_of("<|video|>"),
        "boi_token_id": id_of("<|image>"),
        "eoi_token_id": id_of("<image|>"),
        "boa_token_id": id_of("<|audio>"),
        "eoa_token_id": id_of("<audio|>"),
        "eoa_token_index": id_of("<audio|>"),
    }


@torch.no_grad()
def initialise(m):
    """transformers' own initialisation does not train: its position table is all ones, and with an
    attention scale of 1 its unit query and key norms give nearly one-hot attention."""
    small = ("post_attention_layernorm", "post_feedforward_layernorm", "post_per_layer_input_norm")
    for name, w in m.named_parameters():
        module = name.split(".")[-2]
        if "position_embedding_table" in name:
            w.normal_(0, 0.2)
        elif module in ("q_norm", "k_norm"):
            w.fill_(w.numel() ** -0.25)
        elif module in small and "audio_tower" not in name:
            w.fill_(0.3)
        elif "embed_tokens_per_layer" in name:
            w.normal_(0, 0.5 * 16**-0.5)
            w[0].zero_()
        elif "embed_tokens" in name:
            w.normal_(0, 0.5 * 128**-0.5)
            w[0].zero_()
        elif w.ndim >= 2:
            w.normal_(0, w[0].numel() ** -0.5)


def rms(x, weight=None):
    x32 = x.float()
    y = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + EPSILON)
    return (y if weight is None else y * weight).type_as(x)


class Lookup(torch.autograd.Function):
    """Rows of a table. The gradient is a product with a one-hot matrix."""

    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.rows = len(table)
        return table[ids]

    @staticmethod
    def backward(ctx, gradient):
        (ids,) = ctx.saved_tensors
        kind = torch.bfloat16 if gradient.is_cuda else torch.float32
        every = torch.arange(ctx.rows, device=ids.device)[:, None]
        one_hot = (every == ids.flatten()[None]).to(kind)
        return (one_hot @ gradient.flatten(0, -2).to(kind)).float(), None


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def gated(x, gate, up, down):
    return linear(gelu(linear(x, gate), approximate="tanh") * linear(x, up), down)


def vision_layer(h, cos, sin, w):
    """h [n, patches, 96]; cos and sin [patches, 1, 32], the first half for x, the second for y."""
    n, length, width = h.shape

    def heads(x, norm):
        x = rms(x.view(n, length, 3, 32), norm)
        x1, x2 = x.chunk(2, -1)
        c1, c2 = cos.chunk(2, -1)
        s1, s2 = sin.chunk(2, -1)
        return torch.cat((rotate(x1, c1, s1), rotate(x2, c2, s2)), -1).transpose(1, 2)

    x = rms(h, w[0])
    q, k = heads(linear(x, w[1]), w[2]), heads(linear(x, w[3]), w[4])
    v = rms(linear(x, w[5]).view(n, length, 3, 32)).transpose(1, 2)
    o = scaled_dot_product_attention(q.type_as(v), k.type_as(v), v, scale=1.0)
    h = h + rms(linear(o.transpose(1, 2).reshape(n, length, width), w[6]), w[7])
    return h + rms(gated(rms(h, w[8]), w[9], w[10], w[11]), w[12])


def vision_weights(layer):
    a, f = layer.self_attn, layer.mlp
    return (
        layer.input_layernorm.weight, a.q_proj.linear.weight, a.q_norm.weight,
        a.k_proj.linear.weight, a.k_norm.weight, a.v_proj.linear.weight, a.o_proj.linear.weight,
        layer.post_attention_layernorm.weight, layer.pre_feedforward_layernorm.weight,
        f.gate_proj.linear.weight, f.up_proj.linear.weight, f.down_proj.linear.weight,
        layer.post_feedforward_layernorm.weight,
    )  # fmt: skip


def text_layer(h, ple, cos, sin, mask, kv, w):
    """h [n, length, 128]; `kv` are the keys and values of the layer that this one shares, or None.
    Returns h and the keys and values."""
    n, length, _ = h.shape
    size = cos.shape[-1]
    x = rms(h, w[0])
    q = rotate(rms(linear(x, w[1]).view(n, length, 4, size), w[2]), cos, sin).transpose(1, 2)
    if kv is None:
        k = rotate(rms(linear(x, w[13]).view(n, length, 1, size), w[14]), cos, sin)
        v = rms(linear(x, w[15]).view(n, length, 1, size))
        kv = k.transpose(1, 2).type_as(v), v.transpose(1, 2)
    k, v = kv
    shape = (n, 4, length, size)
    o = scaled_dot_product_attention(q.type_as(v), k.expand(shape), v.expand(shape), mask, scale=1.0)
    h = h + rms(linear(o.transpose(1, 2).reshape(n, length, -1), w[3]), w[4])
    h = h + rms(gated(rms(h, w[5]), w[6], w[7], w[8]), w[9])
    gate = gelu(linear(h, w[10]), approximate="tanh") * ple
    return h + rms(linear(gate, w[11]), w[12]), kv


def text_weights(layer):
    a, f = layer.self_attn, layer.mlp
    own = () if a.is_kv_shared_layer else (a.k_proj.weight, a.k_norm.weight, a.v_proj.weight)
    return (
        layer.input_layernorm.weight, a.q_proj.weight, a.q_norm.weight, a.o_proj.weight,
        layer.post_attention_layernorm.weight, layer.pre_feedforward_layernorm.weight,
        f.gate_proj.weight, f.up_proj.weight, f.down_proj.weight,
        layer.post_feedforward_layernorm.weight, layer.per_layer_input_gate.weight,
        layer.per_layer_projection.weight, layer.post_per_layer_input_norm.weight, *own,
    )  # fmt: skip


def audio_attention(x, relative, reach, a):
    """x [n, length, 64]; each place attends to itself and the 11 before it, as far as
    `reach` [n, 1, length, length] allows; `relative` [13, heads, size] are the keys of the
    distances 12 to 0."""
    n, length, _ = x.shape
    heads, size = a.num_heads, a.head_dim
    split = lambda x: x.float().view(n, length, heads, size).transpose(1, 2)
    q, k, v = split(a.q_proj(x)), split(a.k_proj(x)), split(a.v_proj(x))
    q = q * (size**-0.5 / math.log(2)) * softplus(a.per_dim_scale)
    k = k * (math.log(1 + math.e) / math.log(2))
    by_distance = q @ relative.permute(1, 2, 0)
    order = torch.arange(length, device=x.device)
    index = (12 - (order[:, None] - order[None])).clamp(0, 12).expand(n, heads, length, length)
    scores = q @ k.transpose(2, 3) + by_distance.gather(-1, index)
    scores = 50 * torch.tanh(scores.float() / 50)
    weights = scores.masked_fill(~reach, -1e9).softmax(-1)
    return a.post((weights @ v).transpose(1, 2).reshape(n, length, -1).type_as(x))


def audio_layer(h, relative_of, reach, layer):
    h = layer.feed_forward1(h)
    a = layer.self_attn
    relative = a.relative_k_proj(relative_of).view(-1, a.num_heads, a.head_dim)
    h = h + layer.norm_post_attn(audio_attention(layer.norm_pre_attn(h), relative, reach, a))
    return layer.norm_out(layer.feed_forward2(layer.lconv1d(h)))


def angles(positions, frequencies):
    a = positions[..., None].float() * frequencies
    return torch.cat((a, a), -1)


class Forward:
    """The forward pass of a model, compiled or not."""

    def __init__(self, m, compiled):
        self.m = m
        self.device = m.device
        # Pictures have several sizes, rows of the training one length.
        step = lambda f, dynamic: torch.compile(f, dynamic=dynamic) if compiled else f
        self.vision_layer, self.text_layer = step(vision_layer, True), step(text_layer, False)
        at = lambda size, theta, n: theta ** (-2 * torch.arange(n, device=self.device) / size)
        self.frequencies = {
            SLIDING: at(32, 10000.0, 16),
            # A quarter of the 64 dimensions turns: 8 of 32 pairs.
            FULL: torch.cat((at(64, 1e6, 8), torch.zeros(24, device=self.device))),
        }
        self.vision_frequencies = at(16, 100.0, 8)

    def pictures(self, values, where, grid):
        """[n, patches, 768] and the (x, y) of each patch to soft tokens [n * tokens, 128]."""
        tower = self.m.model.vision_tower
        table = tower.patch_embedder.position_embedding_table
        columns, rows = grid
        place = table[1][: 3 * rows, None] + table[0][None, : 3 * columns]
        h = linear(2 * (values - 0.5), tower.patch_embedder.input_proj.weight) + place.flatten(0, 1)
        turn = angles(where, self.vision_frequencies).flatten(1)[:, None]
        cos, sin = turn.cos(), turn.sin()
        for layer in tower.encoder.layers:
            h = self.vision_layer(h, cos, sin, vision_weights(layer))
        h = h.float().view(len(h), rows, 3, columns, 3, 96).mean((2, 4)) * 96**0.5
        return linear(rms(h.view(-1, 96)), self.m.model.embed_vision.embedding_projection.weight)

    def clips(self, features, valid):
        """Soft tokens [n * slots, 128]; those after the end of a clip mean nothing."""
        tower = self.m.model.audio_tower
        h, valid = tower.subsample_conv_projection(features, valid)
        order = torch.arange(h.shape[1], device=h.device)
        distance = order[:, None] - order[None]
        reach = (distance >= 0) & (distance < 12) & valid[:, None, None, :]
        relative_of = tower.rel_pos_enc(h)[0]
        for layer in tower.layers:
            h = audio_layer(h, relative_of, reach, layer)
        return self.m.model.embed_audio(tower.output_proj(h)).flatten(0, 1)

    def logits(self, ids, positions, segments, soft, places, at):
        """The logits at the flat indices `at` of [rows, length], with the soft tokens `soft` at the
        flat indices `places`."""
        m, text = self.m, self.m.model.language_model
        is_soft = (ids == m.config.image_token_id) | (ids == m.config.audio_token_id)
        words = ids.masked_fill(is_soft, 0)
        h = Lookup.apply(text.embed_tokens.weight, words) * 128**0.5
        if soft is not None:
            # One row more, for those that go nowhere.
            behind = pad(h.flatten(0, 1), (0, 0, 0, 1))
            h = behind.index_copy(0, places, soft.float())[:-1].view(h.shape)
        shape = (*ids.shape, len(LAYER_TYPES), 16)
        seen = linear(h, text.per_layer_model_projection.weight).view(shape) * 128**-0.5
        seen = rms(seen, text.per_layer_projection_norm.weight)
        known = Lookup.apply(text.embed_tokens_per_layer.weight, words).view(shape) * 4
        ple = (seen + known) * 2**-0.5
        order = torch.arange(ids.shape[1], device=ids.device)
        mask = segment_masks(segments, positions, order)
        turn = {t: angles(positions, f)[:, :, None] for t, f in self.frequencies.items()}
        turn = {t: (a.cos(), a.sin()) for t, a in turn.items()}
        kept = {}
        for i, layer in enumerate(text.layers):
            kind = LAYER_TYPES[i]
            shared = kept[kind] if layer.self_attn.is_kv_shared_layer else None
            h, kept[kind] = self.text_layer(
                h, ple[:, :, i], *turn[kind], mask[kind], shared, text_weights(layer)
            )
        h = rms(h.flatten(0, 1).index_select(0, at), text.norm.weight)
        return 30 * torch.tanh(linear(h, text.embed_tokens.weight).float() / 30)


def segment_masks(segments, positions, order):
    """Which [rows, 1, query, key] may attend: earlier ones of the prefix (segment 0) or of the same
    segment, and in sliding layers only those within the window. Padding sees itself."""
    key, query = segments[:, None, :], segments[:, :, None]
    causal = order[:, None] >= order[None]
    full = causal & (key >= 0) & ((key == 0) | (key == query))
    near = positions[:, :, None] - positions[:, None, :] < WINDOW
    itself = torch.eye(len(order), dtype=torch.bool, device=order.device)
    return {FULL: (full | itself)[:, None], SLIDING: ((full & near) | itself)[:, None]}
