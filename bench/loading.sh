#!/bin/sh
# Measures loading, checkpoints and the start of a run, each compared with its limit in the same run.
#   usage: bench/loading.sh [BUILD] [DIR]
# Creates the models in DIR (BUILD/bench-loading, 8 GB), unless they exist.
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

# Caches the tokens of the whole text, as a run that reads all of it does.
make_tokens() {
    "$build/ballast" eval tiny "$1" --batches 1 --quiet >/dev/null
}

echo "== start, by phase: without tokens in the cache, then with them"
rm -rf cache
"$build/bench/start_speed" tiny text.txt
make_tokens text.txt
for round in 1 2; do
    "$build/bench/start_speed" tiny text.txt
done

# run_steps TEXT STEPS WORDS: prints the time of the process, and of the median step
run_steps() {
    rm -rf run
    before=$(date +%s%N)
    "$build/ballast" train tiny "$1" -o run --steps "$2" --quiet 2>/dev/null
    after=$(date +%s%N)
    step=$(sed -n 's/.*"step_s": *\([0-9.e-]*\).*/\1/p' run/metrics.jsonl | sort -g | awk '{ s[NR] = $1 } END { print s[int((NR + 1) / 2)] }')
    echo "$before $after $step" | awk -v words="$3" '{
        printf "%s: process %.3f s, median step %.4f s\n", words, ($2 - $1) * 1e-9, $3 }'
}

echo "== start, 4 MB of text"
rm -rf cache
run_steps text.txt 1 "1 step, no tokens in the cache"
make_tokens text.txt
run_steps text.txt 1 "1 step, all tokens in the cache"
run_steps text.txt 1 "1 step, all tokens in the cache"

echo "== start, 300 MB of text; steps during tokenizing"
if [ ! -e long.txt ]; then
    for copy in $(seq 75); do cat text.txt; done >long.new
    mv long.new long.txt
fi
rm -rf cache
run_steps long.txt 1 "1 step, no tokens in the cache"
run_steps long.txt 1 "1 step, no tokens in the cache"
run_steps long.txt 200 "200 steps, no tokens in the cache"
before=$(date +%s%N)
make_tokens long.txt
after=$(date +%s%N)
echo "$before $after" | awk '{ printf "all tokens made at once: %.3f s\n", ($2 - $1) * 1e-9 }'
run_steps long.txt 1 "1 step, all tokens in the cache"
run_steps long.txt 1 "1 step, all tokens in the cache"
run_steps long.txt 200 "200 steps, all tokens in the cache"
