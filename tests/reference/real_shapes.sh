#!/bin/sh
# The engine beside mlx-vlm and mlx-lm on checkpoints of real shapes with random weights, on a GPU:
# Qwen3-VL 4B, Qwen3.5 4B and Gemma 4 E2B, the same ids for both, in alternating rounds.
#
#   real_shapes.sh SPEED FOLDER [TOKENS [DECODED]]    4000 and 200 tokens unless told
#
# SPEED is the executable of `cargo build --release -p prefill-engine --example speed`, FOLDER is
# where the checkpoints are made (28 GB) or already lie. PYTHON (python3) has torch with CUDA,
# safetensors, mlx with its CUDA build, mlx-lm and mlx-vlm; SPEED finds the same libmlx by
# LD_LIBRARY_PATH.
set -eu
speed=$1 folder=$2 tokens=${3:-4000} decoded=${4:-200}
here=$(dirname "$0")
python=${PYTHON:-python3}

# beside PEER CHECKPOINT SCRIPT MODEL
beside() {
    checkpoint=$folder/$2
    [ -e "$checkpoint/model.safetensors" ] || "$python" "$here/$3" "$4" "$checkpoint"
    "$python" "$here/speed_inputs.py" "$checkpoint" "$tokens" "$folder/$2-ids.safetensors"
    "$python" "$here/speed_rounds.py" "$speed" "$1" "$checkpoint" "$folder/$2-ids.safetensors" "$decoded"
}

mkdir -p "$folder"
beside mlx_vlm qwen3-vl-4b real_shape_qwen.py qwen3_vl
beside mlx_vlm qwen3.5-4b real_shape_qwen.py qwen3_5
beside mlx_lm gemma4-e2b real_shape_gemma4.py e2b
