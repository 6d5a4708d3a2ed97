"""The configurations of the tiny Qwen models, made to expose mistakes: see README.md."""

from model_configs import variant
from qwen_tokenizer import token_id

VOCAB = 432  # the tokenizer has 430 entries: the last ids have no token

IDS = {
    "image_token_id": token_id("<|image_pad|>"),
    "video_token_id": token_id("<|video_pad|>"),
    "vision_start_token_id": token_id("<|vision_start|>"),
    "vision_end_token_id": token_id("<|vision_end|>"),
}
ENDS = [token_id("<|im_end|>"), token_id("<|endoftext|>")]

# Rope bases are small: with the published 5e6 and 1e7, wrong section borders would move the
# logits of so short prompts by less than the tolerance.
TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "bos_token_id": token_id("<|endoftext|>"),
    "eos_token_id": ENDS[0],
}

# 8 x 8 positions: pictures have grids both below and above that. Three deepstack layers, not
# evenly spaced. Heads of 16.
VISION = {
    "model_type": "qwen3_vl",
    "depth": 4,
    "hidden_size": 48,
    "hidden_act": "gelu_pytorch_tanh",
    "intermediate_size": 80,
    "num_heads": 3,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 64,
    "deepstack_visual_indexes": [0, 2, 3],
}

QWEN3_VL = {
    "model_type": "qwen3_vl",
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "dtype": "float32",
    "tie_word_embeddings": True,
    **IDS,
    "text_config": {
        "model_type": "qwen3_vl_text",
        **TEXT,
        "num_hidden_layers": 4,
        "head_dim": 32,
        "rope_theta": 250.0,
        "rope_scaling": {
            "mrope_interleaved": True,
            "mrope_section": [6, 5, 5],
            "rope_type": "default",
        },
        "tie_word_embeddings": True,
    },
    "vision_config": VISION,
    "eos_token_id": ENDS,
}

EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
QWEN3_VL_MOE = variant(
    QWEN3_VL,
    model_type="qwen3_vl_moe",
    architectures=["Qwen3VLMoeForConditionalGeneration"],
    tie_word_embeddings=False,
    text_config={
        "model_type": "qwen3_vl_moe_text",
        "tie_word_embeddings": False,
        **EXPERTS,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    },
    vision_config={"model_type": "qwen3_vl_moe"},
)

# Two value heads a key head, and another size: the order in which key heads are repeated and
# the axes of the state both show.
LINEAR, FULL = "linear_attention", "full_attention"
QWEN3_5 = {
    "model_type": "qwen3_5",
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "dtype": "float32",
    "tie_word_embeddings": False,
    **IDS,
    "text_config": {
        "model_type": "qwen3_5_text",
        **TEXT,
        "num_hidden_layers": 6,
        "head_dim": 64,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 24,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "full_attention_interval": 3,
        "layer_types": [LINEAR, LINEAR, FULL, LINEAR, LINEAR, FULL],
        "attn_output_gate": True,
        "mamba_ssm_dtype": "float32",
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
            "rope_type": "default",
            "rope_theta": 250.0,
            "partial_rotary_factor": 0.25,
        },
        "tie_word_embeddings": False,
    },
    "vision_config": variant(VISION, model_type="qwen3_5", deepstack_visual_indexes=[]),
    "eos_token_id": ENDS,
}

QWEN3_5_MOE = variant(
    QWEN3_5,
    model_type="qwen3_5_moe",
    architectures=["Qwen3_5MoeForConditionalGeneration"],
    tie_word_embeddings=True,
    text_config={
        "model_type": "qwen3_5_moe_text",
        "tie_word_embeddings": True,
        **EXPERTS,
        "shared_expert_intermediate_size": 56,
    },
    vision_config={"model_type": "qwen3_5_moe"},
)
del QWEN3_5_MOE["text_config"]["intermediate_size"]

# Text without towers, as it is published.
QWEN3 = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "dtype": "float32",
    **TEXT,
    "num_hidden_layers": 4,
    "head_dim": 32,
    "rope_theta": 250.0,
    "rope_scaling": None,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 4,
    "tie_word_embeddings": True,
}

PIXELS = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2,
          "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}  # fmt: skip
IMAGE_PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "processor_class": "Qwen3VLProcessor",
    "size": {"shortest_edge": 4096, "longest_edge": 262144},
    **PIXELS,
}
VIDEO_PROCESSOR = {
    "video_processor_type": "Qwen3VLVideoProcessor",
    "processor_class": "Qwen3VLProcessor",
    "size": {"shortest_edge": 4096, "longest_edge": 1048576},
    "fps": 2,
    **PIXELS,
}

# Name: configuration, seed. Each seed was chosen so that no case generates a media token,
# repeats one token, or comes near a tie: make_qwen_goldens.py checks this.
MODELS = {
    "qwen3_vl": (QWEN3_VL, 31),
    "qwen3_vl_moe": (QWEN3_VL_MOE, 32),
    "qwen3_5": (QWEN3_5, 43),
    "qwen3_5_moe": (QWEN3_5_MOE, 34),
    "qwen3": (QWEN3, 35),
}
