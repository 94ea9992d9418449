#!/bin/bash
# Prints which shape `ballast plan --tensor-parallel auto --pipeline-parallel auto` chooses on described H100s, its
# predictions for all other shapes, and its processor time: for 1B, 13B and 175B parameters on 2 nodes of 8 GPUs, and
# for 175B on 8 nodes.
#
#     bench/shapes.sh [BALLAST]
set -euo pipefail
ballast=${1:-build/ballast}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
# GPT-3 175B (Brown et al., arXiv 2005.14165) in GPT-2's terms.
cat > "$folder/config.json" <<'JSON'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 96, "n_embd": 12288, "n_head": 96,
 "n_positions": 2048, "n_ctx": 2048, "vocab_size": 50257, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
 "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
JSON
plan() { # MODEL NODES
    printf '\n== %s on %d nodes\n' "$(basename "$1")" "$2"
    { time -p "$ballast" plan "$1" --ranks $((8 * $2)) --nodes "$2" --cluster h100x8 --tensor-parallel auto --pipeline-parallel auto \
        --batch 64 --seq 2048 --explain > "$folder/plan.txt" 2> "$folder/messages.txt"; } 2>&1 | grep -E 'user|sys'
    grep -E '^(recipe|policy|  time|MFU)' "$folder/plan.txt" | cut -c 1-200
    sed -n '/^shapes/,/^partitions\|^strategies/p' "$folder/plan.txt" | grep -v '^partitions\|^strategies'
}
plan llama-3.2-1b 2
plan llama-2-13b 2
plan "$folder" 2
plan "$folder" 8
