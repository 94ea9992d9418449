#!/bin/bash
# Compares the plan that the search chooses with plans that one would set by hand: their predicted steps, all simulated
# with the same costs. With --run, also measures steps in turns.
#   usage: bench/worth.sh MODEL_DIR --cap SIZE --disk DIR [--batch N] [--seq N] [--dtype bf16|fp32] [--run DATA]
#                         [--steps N] [--rounds N] [--build DIR]
# The plans by hand combine: keep everything or recompute every layer; keep all states on the device, stream all from
# the disk with much or little memory, or keep half of the chunks persistent and stream the others; waves of one
# micro-batch or of all. Plans that do not fit are skipped. A measured time is the median from the second step on, and
# the minimum over the rounds. Fails if a plan by hand is predicted to be faster.
set -eu
export LC_ALL=C
source=$(cd "$(dirname "$0")/.." && pwd)
fail() {
    echo "worth: $1" >&2
    exit 2
}
[ $# -ge 1 ] || { sed -n '4,5s/^# *//p' "$0" >&2; exit 2; }
model=$1 cap='' disk='' batch=4 seq=1024 dtype=fp32 data='' steps=4 rounds=2 build=$source/build
shift
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || fail "$1: needs a value"
    case $1 in
    --cap) cap=$2 ;; --disk) disk=$2 ;; --batch) batch=$2 ;; --seq) seq=$2 ;; --dtype) dtype=$2 ;; --run) data=$2 ;;
    --steps) steps=$2 ;; --rounds) rounds=$2 ;; --build) build=$2 ;;
    *) fail "$1: no such option" ;;
    esac
    shift 2
done
[ -n "$cap" ] && [ -n "$disk" ] || fail "--cap and --disk are needed"
command -v jq >/dev/null || fail "jq is needed"
folder=$(mktemp -d "$disk/worth.XXXXXX")
trap 'rm -rf "$folder"' EXIT
memory=(--device-memory "$cap" --disk "$disk")
ballast=$build/ballast

"$ballast" plan "$model" --batch "$batch" --seq "$seq" --dtype "$dtype" "${memory[@]}" -o "$folder/searched.json" \
    --json >"$folder/searched.out" 2>/dev/null || fail "no plan was found"
capacity=$(jq '.tiers[] | select(.name == "device") | .capacity_bytes' "$folder/searched.out")
blocks=$(jq '2 + (.n_layer // .num_hidden_layers)' "$model/config.json")
micro_batches=$(jq '(.recipe.batch + .recipe.micro_batch - 1) / .recipe.micro_batch | floor' "$folder/searched.json")

schedule() { # KIND
    [ "$1" = recompute ] || return 0
    printf 'f0-%d b%d' $((blocks - 1)) $((blocks - 1))
    for ((i = blocks - 2; i > 0; i--)); do printf ' f%d b%d' "$i" "$i"; done
    printf ' b0'
}
plans=(searched)
for kind in keep recompute; do
    for states in device streamed tight half; do
        for wave in $(printf '%s\n' 1 "$micro_batches" | sort -nu); do
            name=$kind-$states-$wave
            policy=$(jq -n --arg schedule "$(schedule $kind)" --arg states $states --argjson wave "$wave" \
                --argjson half $((blocks / 2)) '{micro_batches_per_wave: $wave, schedule: $schedule} +
                if $states == "device" then {} else {parameters: "disk", gradients: "disk", optimizer: "disk",
                    buffers: (if $states == "tight" then 3 else 6 end),
                    lookahead: (if $states == "tight" then 0 else 1 end), persistent_chunks: (if $states == "half" then $half else 0 end)} end')
            jq --argjson policy "$policy" '.policy = $policy' "$folder/searched.json" >"$folder/$name.json"
            plans+=("$name")
        done
    done
done

declare -A predicted
best=''
for name in "${plans[@]}"; do
    "$ballast" simulate "$folder/$name.json" --disk "$disk" --json >"$folder/$name.out" 2>"$folder/$name.err" || continue
    bytes=$(jq '.tiers[] | select(.name == "device") | .program_bytes' "$folder/$name.out")
    if [ "$bytes" -gt "$capacity" ]; then continue; fi
    predicted[$name]=$(jq .step_s "$folder/$name.out")
    if [ -z "$best" ] || jq -en "${predicted[$name]} < ${predicted[$best]} * (1 - 1e-9)" >/dev/null; then best=$name; fi
done

declare -A measured
for ((round = 0; round < rounds; round++)); do
    [ -n "$data" ] || break
    for name in "${plans[@]}"; do
        [ -n "${predicted[$name]:-}" ] || continue
        rm -rf "$folder/run"
        "$ballast" train "$model" "$data" -o "$folder/run" --plan "$folder/$name.json" "${memory[@]}" --steps "$steps" \
            --save-every 0 >/dev/null 2>"$folder/$name.err" || fail "$name: $(tail -1 "$folder/$name.err")"
        step=$(jq -s '[.[1:][] | .step_s | select(.)] | sort | .[length / 2 | floor]' "$folder/run/metrics.jsonl")
        measured[$name]=$(jq -n "[$step, ${measured[$name]:-$step}] | min")
    done
done

printf '%-22s %12s %12s\n' plan predicted measured
for name in "${plans[@]}"; do
    [ -z "${predicted[$name]:-}" ] || printf '%-22s %10.3f s %12s\n' "$name" "${predicted[$name]}" "${measured[$name]:--}"
done
[ "$best" = searched ] || fail "$best is predicted faster than what was searched"
