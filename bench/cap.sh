#!/bin/bash
# Trains models in much less memory than their step needs, in a memory cgroup without swap, with a disk tier for the
# rest. If the step fits in this machine, also runs the same recipe without the limit, in turns.
#   usage: bench/cap.sh [--case large|1.5b|3b|7b|7b-10|gpt2|tiny] [--cap SIZE] [--batch N] [--seq N] [--steps N] [--rounds N]
#                       [--plan FILE] [--open-memory SIZE|none] [--build DIR] [--folder DIR] [-o FILE]
# Unless DIR (BUILD/bench-cap) has the model, `ballast init` creates it in the same cgroup. The step time is the median
# from the second step on, because the first has no deferred update to make. Needs root (cgroup_run.sh).
#
#   case   parameters                                cap   init's model, disk tier with 8 x 1024 tokens
#   tiny   3.7M: to try this script                  128M  15 MB, 0.1 GB
#   gpt2   124M: 12 x 768                            1G    0.5 GB, 5 GB
#   large  774M: GPT-2 of 36 x 1280                  3G    3.1 GB, 26 GB
#   1.5b   1558M: GPT-2 of 48 x 1600                 4G    6.2 GB, 48 GB
#   3b     2702M: Llama of 32 x 2560, ffn 6912       8G    11 GB, 59 GB
#   7b     6738M: Llama 2 7B in bf16, moments too,   20G   14 GB, 48 GB with 1 x 128 tokens
#          without fp32 masters
#   7b-10  2286M: the same with 10 of 32 layers      7G    4.6 GB, 17 GB with 1 x 128 tokens
# A run writes its model at the end (2 bytes per parameter), while the disk tier still exists.
set -eu
export LC_ALL=C
source=$(cd "$(dirname "$0")/.." && pwd)
usage() {
    sed -n '4,5s/^# *//p' "$0" >&2
    exit 2
}
fail() {
    echo "cap: $1" >&2
    exit 2
}

name=large vocabulary='' cap='' batch=8 seq=1024 steps=5 rounds=1 plan='' open='' build=$source/build folder='' output=''
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --case) name=$2 ;; --cap) cap=$2 ;; --batch) batch=$2 ;; --seq) seq=$2 ;; --steps) steps=$2 ;;
    --rounds) rounds=$2 ;; --plan) plan=$(realpath "$2") ;; --open-memory) open=$2 ;;
    --build) build=$2 ;; --folder) folder=$2 ;; -o) output=$(realpath "$2") ;;
    *) usage ;;
    esac
    shift 2
done
gpt2() { model=(--arch gpt2 --layers "$1" --hidden "$2" --heads "$3" --vocab "$4" --context 1024); }
usual_open=20G states=()
case $name in
tiny) gpt2 4 256 4 2048 && usual=128M ;;
gpt2) gpt2 12 768 12 50257 && usual=1G ;;
large) gpt2 36 1280 20 50257 && usual=3G ;;
1.5b) gpt2 48 1600 25 50257 && usual=4G && usual_open=none ;;
3b)
    model=(--arch llama --layers 32 --hidden 2560 --heads 32 --ffn 6912 --vocab 32000 --context 1024)
    usual=8G usual_open=none
    ;;
7b)
    model=(--like llama-2-7b --dtype bf16) vocabulary=32000
    usual=20G usual_open=none states=(--optimizer-dtype bf16 --master-weights none)
    ;;
7b-10)
    model=(--arch llama --layers 10 --hidden 4096 --heads 32 --ffn 11008 --vocab 32000 --context 4096 --dtype bf16)
    usual=7G usual_open=none states=(--optimizer-dtype bf16 --master-weights none)
    ;;
*) usage ;;
esac
cap=${cap:-$usual} open=${open:-$usual_open}
[ "$steps" -ge 2 ] || fail "--steps: at least 2, since the first is left out"
build=$(cd "$build" && pwd)
folder=${folder:-$build/bench-cap}
mkdir -p "$folder"
cd "$folder"
# The benchmark does not measure the token cache.
export XDG_CACHE_HOME=$folder/cache

# An llm.c token file, by a power law with a period of 65537.
make_tokens() {
    awk -v tokens="$1" -v vocabulary="$2" '
        function byte(b) { line = line sprintf("\\%03o", b); if (++n % 1024 == 0) { print line; line = "" } }
        function word(w, bytes,   i) { for (i = 0; i < bytes; i++) { byte(w % 256); w = int(w / 256) } }
        BEGIN {
            word(20240520, 4); word(1, 4); word(tokens, 4)
            for (i = 3; i < 256; i++) word(0, 4)
            for (x = 1; tokens-- > 0; x = (x * 75 + 74) % 65537) word(int(vocabulary * (x / 65537) ^ 3), 2)
            print line
        }' | while read -r line; do printf '%b' "${line//\\/\\0}"; done
}
vocabulary=${vocabulary:-$(printf '%s\n' "${model[@]}" | sed -n '/^--vocab$/{n;p;}')}
tokens=tokens-$vocabulary-$((batch * seq + 1)).bin
[ -e "$tokens" ] || make_tokens $((batch * seq + 1)) "$vocabulary" >"$tokens"

recipe=(--dtype bf16 --batch "$batch" --seq "$seq" "${states[@]}")
# Keeps only the metrics and run.json of a run.
train() {
    local run=$1
    shift
    rm -rf "$run"
    "$@" "$build/ballast" train "$name" "$tokens" -o "$run" --steps "$steps" --save-every 0 --schedule constant \
        --warmup-steps 0 "${recipe[@]}" "${placement[@]}" --quiet 2>"$run.log" ||
        { cat "$run.log" >&2 && fail "$run: see above"; }
    rm -rf "$run/model"
}
# For several runs, uses the steps of all.
median_step() {
    sed -s -n '2,$s/.*"step_s": \([0-9.e+-]*\).*/\1/p' "$@" | sort -g |
        awk '{ s[NR] = $1 } END { print (s[int((NR + 1) / 2)] + s[int(NR / 2) + 1]) / 2 }'
}
losses() { sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' "$1" | paste -sd ' '; }
rate() { awk -v tokens=$((batch * seq)) -v step="$1" 'BEGIN { printf "%.1f", tokens / step }'; }
cgroup_line() { grep '^cgroup_run:' "$1" | tail -1; }

measure() {
    if [ ! -e "$name/config.json" ]; then
        "$source/bench/cgroup_run.sh" "$cap" "$build/ballast" init "$name" "${model[@]}" --quiet 2>init.log ||
            { cat init.log >&2 && fail "init: see above"; }
        echo "init:   $(cgroup_line init.log)"
    fi
    for round in $(seq "$rounds"); do
        placement=(--disk "$folder" ${plan:+--plan "$plan"})
        train "capped-$round" "$source/bench/cgroup_run.sh" "$cap"
        echo "capped: $(rate "$(median_step "capped-$round/metrics.jsonl")") tokens/s  $(cgroup_line "capped-$round.log")"
        [ "$open" != none ] || continue
        placement=(--device-memory "$open")
        train "open-$round"
        echo "open:   $(rate "$(median_step "open-$round/metrics.jsonl")") tokens/s"
        [ "$(losses "capped-$round/metrics.jsonl")" = "$(losses "open-$round/metrics.jsonl")" ] ||
            fail "the losses differ: $folder/{capped,open}-$round/metrics.jsonl"
    done
    echo
    echo "policy: $(sed -n '/"policy": {/,/}/p' capped-1/run.json | sed '1d;$d' | tr -d '"\n' | tr -s ' ')"
    echo "losses: $(losses capped-1/metrics.jsonl)"
    capped=$(median_step capped-*/metrics.jsonl)
    if [ "$open" = none ]; then return; fi
    free=$(median_step open-*/metrics.jsonl)
    ratio=$(awk -v a="$free" -v b="$capped" 'BEGIN { printf "%.3f", a / b }')
    echo "capped $(rate "$capped") tokens/s, open $(rate "$free") tokens/s: ratio $ratio"
}
result=$(mktemp)
trap 'rm -f "$result"' EXIT
rm -rf capped-* open-*
measure | tee "$result"
[ "$(cgroup_line capped-1.log | sed 's/.*oom_kills=\([0-9]*\).*/\1/')" = 0 ] || fail "killed for want of memory"
[ -n "$output" ] || exit 0
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
memory=$(awk '/^MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)
{
    echo "# ${model[*]} within $cap"
    echo
    echo "Command: \`bench/cap.sh --case $name --cap $cap --batch $batch --seq $seq --steps $steps --rounds $rounds\`."
    echo "Machine: $(nproc) cores of $processor, $memory GiB. Date: $(date +%Y-%m-%d)."
    echo
    sed 's/^/    /; s/ *$//' "$result"
} >"$output"
