#!/bin/sh
# What the time that OpenMP's threads spin at a barrier costs and gives: the demo's model is trained for a few steps with each
# setting in turn, on an otherwise idle machine and beside one busy process.
#
#     bench/openmp_spin.sh [BUILD]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
work=$(mktemp -d)
busy=
trap 'if [ -n "$busy" ]; then kill $busy; fi; rm -rf "$work"' EXIT
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

"$root/scripts/make-demo-text.sh" "$work/text.txt"
cd "$work"
"$build/ballast" init model --arch llama --hidden 192 --layers 4 --heads 6 --kv-heads 3 --ffn 512 --vocab 2048 --context 128 \
    --tied --tokenizer-data text.txt >/dev/null

measure() {
    rm -rf run
    env "$1" "$build/ballast" train model text.txt -o run --steps 50 --quiet 2>/dev/null
    # The median of the steps after the first ten.
    grep -o '"tokens_per_s": [0-9.]*' run/metrics.jsonl | tail -n 40 | awk '{print $2}' | sort -n | sed -n 20p
}

rounds() {
    echo "== $1"
    for round in 1 2 3; do
        for setting in GOMP_SPINCOUNT=10000000 GOMP_SPINCOUNT=300000 GOMP_SPINCOUNT=10000 GOMP_SPINCOUNT=1000 OMP_WAIT_POLICY=passive; do
            printf 'round %d  %-26s %8.0f tokens/s\n' $round "$setting" "$(measure "$setting")"
        done
    done
}

rounds 'nothing else of ours running'
sh -c 'while :; do :; done' &
busy=$!
rounds 'beside one busy process'
