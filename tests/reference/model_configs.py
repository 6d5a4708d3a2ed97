"""The configurations of the tiny models, made to expose mistakes: see README.md."""

import copy

from make_tokenizer import token_id

# The tokenizer has VOCAB - 8 entries or fewer; the ids above the per-layer table's end are legal
# for `embed_tokens` only, as in a model whose two tables differ in size.
VOCAB, VOCAB_PER_LAYER = 768, 764

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


def variant(base, **changes):
    """A deep copy with some values replaced; a dict updates the dict that it meets."""
    made = copy.deepcopy(base)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key].update(value)
        else:
            made[key] = value
    return made


# The shape of 26B-A4B: experts beside a dense MLP, keys that are also values in full layers,
# image tokens that see each other, a standardised vision tower without clips, no audio.
GEMMA4_26B = variant(
    GEMMA4_E2B,
    text_config={
        "num_hidden_layers": 4,
        "layer_types": [SLIDING, FULL, SLIDING, FULL],
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": VOCAB,
        "use_double_wide_mlp": False,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "use_bidirectional_attention": "vision",
    },
    vision_config={"use_clipped_linears": False, "standardize": True},
)
GEMMA4_26B["audio_config"] = None

# The shape of 12B unified: no towers. Pictures are patches of 48 x 48 pixels, sounds are frames of
# 640 samples, each projected straight into the text model.
GEMMA4_UNIFIED = variant(
    GEMMA4_26B,
    model_type="gemma4_unified",
    architectures=["Gemma4UnifiedForConditionalGeneration"],
    text_config={"model_type": "gemma4_unified_text", "enable_moe_block": False},
)
for key in ("num_experts", "top_k_experts", "moe_intermediate_size"):
    del GEMMA4_UNIFIED["text_config"][key]
GEMMA4_UNIFIED["vision_config"] = {
    "model_type": "gemma4_unified_vision",
    "patch_size": 16,
    "pooling_kernel_size": 3,
    "model_patch_size": 48,
    "mm_embed_dim": 96,
    "mm_posemb_size": 64,
    "num_soft_tokens": 70,
    "rms_norm_eps": 1e-6,
    "output_proj_dims": 96,
}
GEMMA4_UNIFIED["audio_config"] = {
    "model_type": "gemma4_unified_audio",
    "audio_samples_per_token": 640,
    "audio_embed_dim": 640,
    "hidden_size": 640,
    "output_proj_dims": 640,
    "rms_norm_eps": 1e-6,
}

UNIFIED_PROCESSOR = variant(
    PROCESSOR,
    processor_class="Gemma4UnifiedProcessor",
    image_processor={
        "image_processor_type": "Gemma4UnifiedImageProcessor",
        "model_patch_size": 48,
    },
    video_processor={
        "video_processor_type": "Gemma4UnifiedVideoProcessor",
        "model_patch_size": 48,
    },
)
UNIFIED_PROCESSOR["feature_extractor"] = {
    "feature_extractor_type": "Gemma4UnifiedAudioFeatureExtractor",
    "feature_size": 640,
    "sampling_rate": 16000,
    "padding_value": 0.0,
    "audio_samples_per_token": 640,
    "padding_side": "right",
    "return_attention_mask": True,
}

# Gemma 3's text models (270M, 1B): norms that multiply by one plus their weight, one head size, a
# rotary base a kind of layer. The full layers' frequencies are divided, as in the larger models.
GEMMA3_TEXT = {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "dtype": "float32",
    "tie_word_embeddings": True,
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 24,
    "sliding_window": 32,
    # mlx-lm knows this only.
    "sliding_window_pattern": 3,
    "layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL],
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "use_bidirectional_attention": False,
    "attention_bias": False,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": [token_id("<eos>"), token_id("<turn|>")],
}

# Name: configuration, processor (none for text alone), seed. Each seed was chosen so that no case generates a media
# token or an id beyond the per-layer table, repeats one token, or comes near a tie:
# make_goldens.py checks this.
MODELS = {
    "gemma4_e2b": (GEMMA4_E2B, PROCESSOR, 7),
    "gemma4_26b": (GEMMA4_26B, PROCESSOR, 26),
    "gemma4_unified": (GEMMA4_UNIFIED, UNIFIED_PROCESSOR, 15),
    "gemma3_text": (GEMMA3_TEXT, None, 3),
}
