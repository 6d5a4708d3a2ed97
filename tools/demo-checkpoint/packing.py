"""Writes a trained model as a checkpoint folder, and as one archive."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import torch
from safetensors.torch import save_file

# The names under which tokenizer_config.json lists the media's strings.
MEDIA_TOKENS = {
    "image_token": "<|image|>",
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "audio_token": "<|audio|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
    "sot_token": "<|turn>",
    "eot_token": "<turn|>",
    "video_token": "<|video|>",
}
SIZING = {
    "do_convert_rgb": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.0] * 3,
    "image_std": [1.0] * 3,
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
    "image_processor": SIZING
    | {
        "image_processor_type": "Gemma4ImageProcessor",
        "do_normalize": False,
        "image_seq_length": 70,
    },
    "video_processor": SIZING
    | {
        "video_processor_type": "Gemma4VideoProcessor",
        "do_normalize": True,
        "do_sample_frames": True,
        "num_frames": 8,
        "return_metadata": False,
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


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def write(folder, m, config, tokenizer_file, archive):
    """Writes `folder`, then `archive` in one step, so that a broken-off run leaves a whole one."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    write_json(folder / "processor_config.json", PROCESSOR)
    generation = {"eos_token_id": config["eos_token_id"], "pad_token_id": 0, "do_sample": False}
    write_json(folder / "generation_config.json", generation)
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "padding_side": "left",
        "model_max_length": 131072,
        "clean_up_tokenization_spaces": False,
        "processor_class": "Gemma4Processor",
        **MEDIA_TOKENS,
        "extra_special_tokens": MEDIA_TOKENS,
    }
    write_json(folder / "tokenizer_config.json", tokenizer)
    if Path(tokenizer_file).resolve() != (folder / "tokenizer.json").resolve():
        shutil.copyfile(tokenizer_file, folder / "tokenizer.json")
    shutil.copyfile(Path(__file__).parent / "chat_template.jinja", folder / "chat_template.jinja")
    tensors = {name: rounded(t) for name, t in m.state_dict().items() if "lm_head" not in name}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    part = Path(f"{archive}.part")
    with tarfile.open(part, "w") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, file.name)
    os.replace(part, archive)
    return (folder / "model.safetensors").stat().st_size


def rounded(tensor):
    kind = torch.bfloat16 if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to("cpu", kind).contiguous()


@torch.no_grad()
def extend_positions(m, trained):
    """Rows of the position table that no picture of the training reached repeat the last one that
    one did: random ones would hurt more in a very wide or tall picture."""
    table = m.model.vision_tower.patch_embedder.position_embedding_table
    table[:, trained:] = table[:, trained - 1 : trained]


@torch.no_grad()
def set_clip_bounds(m, run, margin=1.2):
    """Bounds for the clipped linears: the extremes that `run` meets, widened by `margin`."""
    from transformers.models.gemma4.modeling_gemma4 import Gemma4ClippableLinear

    layers = {n: x for n, x in m.named_modules() if isinstance(x, Gemma4ClippableLinear)}
    extremes, hooks = {}, []
    for name, layer in layers.items():

        def note(_, inputs, output, name=name):
            met = torch.stack([inputs[0].min(), -inputs[0].max(), output.min(), -output.max()])
            old = extremes.get(name)
            extremes[name] = met if old is None else torch.minimum(old, met)

        hooks.append(layer.register_forward_hook(note))
    run()
    for hook in hooks:
        hook.remove()
    for name, layer in layers.items():
        low_in, high_in, low_out, high_out = extremes[name].tolist()
        # Least values are below zero; one that is not must not grow.
        wide = lambda v: v * margin if v < 0 else v / margin
        layer.input_min.fill_(wide(low_in))
        layer.input_max.fill_(-wide(high_in))
        layer.output_min.fill_(wide(low_out))
        layer.output_max.fill_(-wide(high_out))
