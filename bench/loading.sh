#!/bin/sh
# Loading, checkpoints and the start of a run: each beside its limit, measured in the same run.
#   usage: bench/loading.sh [BUILD] [FOLDER]
# Models are made in FOLDER (BUILD/bench-loading, 8 GB) where they are not there yet.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$source/build}" && pwd)
folder=${2:-$build/bench-loading}
mkdir -p "$folder"
cd "$folder"
export XDG_CACHE_HOME="$folder/cache"

[ -e large ] || "$build/ballast" init large --arch llama --hidden 1536 --layers 24 --heads 12 --ffn 4096 --vocab 32000 \
    --context 256 --tied
[ -e large-bf16 ] || "$build/bench/load_speed" large BF16 large-bf16
[ -e large-f16 ] || "$build/bench/load_speed" large F16 large-f16
[ -e middle ] || "$build/ballast" init middle --arch llama --hidden 768 --layers 12 --heads 12 --ffn 2048 --vocab 16000 \
    --context 256 --tied
[ -e text.txt ] || "$source/scripts/make-demo-text.sh" text.txt
[ -e tiny ] || "$build/ballast" init tiny --arch llama --hidden 192 --layers 4 --heads 6 --kv-heads 3 --ffn 512 --vocab 2048 \
    --context 128 --tied --tokenizer-data text.txt

for model in large large-bf16 large-f16; do
    "$build/bench/load_speed" "$model" 3
done

echo "== checkpoints"
rm -rf checkpoints
"$build/bench/checkpoint_speed" middle checkpoints 5
rm -rf checkpoints

echo "== start, by phase: the text is tokenized, then its tokens are from the cache"
rm -rf cache
for round in 1 2 3; do
    "$build/bench/start_speed" tiny text.txt
done

echo "== start"
rm -rf cache
for round in 1 2 3; do
    rm -rf run
    before=$(date +%s%N)
    "$build/ballast" train tiny text.txt -o run --steps 1 --quiet 2>/dev/null
    after=$(date +%s%N)
    step=$(grep -o '"step_s": [0-9.e-]*' run/metrics.jsonl | awk '{print $2}')
    echo "$before $after $step" | awk -v round=$round '{
        printf "round %d: process %.3f s, its one step %.3f s%s\n", round, ($2 - $1) * 1e-9, $3,
            round == 1 ? " (the text is tokenized)" : " (tokens from the cache)" }'
done
