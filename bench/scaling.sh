#!/bin/sh
# How a training step of GPT-2 124M in fp32 grows with threads, sequence length and batch. Runs bench/step for each
# setting, settings of one part in turn, ROUNDS times over:
#
#     bench/scaling.sh [BUILD] [LAYERS] [ROUNDS]      (build, 4 layers for short runs, 2 rounds)
#
# Prints for each setting its seconds (the median of its rounds' medians of 2 steps), and beside the first of its part how many times as
# fast (threads) or as long (length, batch) it is; for the latter also how many times as many FLOPs its operators count.
# OpenMP's threads are bound to cores, as is the one thread alone (OMP_PROC_BIND=true). A program whose first thread is bound
# when it starts counts one core, so the number of threads is given; and GOMP_SPINCOUNT is what step would set it to,
# for which it starts itself again, and all its threads would then stay on that one core.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
step=${1:-$root/build}/bench/step
layers=${2:-4}
rounds=${3:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
threads=$(nproc)
export OMP_PROC_BIND=true GOMP_SPINCOUNT=10000

# part PART SETTING...: each SETTING holds options of bench/step.
part() {
    part=$1
    shift
    for _ in $(seq "$rounds"); do
        number=0
        for setting; do
            number=$((number + 1))
            # shellcheck disable=SC2086
            "$step" --layers "$layers" --steps 2 --no-limits $setting | grep '^step:' |
                sed 's/^step: \([0-9.]*\) s.*operators \([0-9.]*\) GFLOP,.*/\1 \2/' >>"$work/$part.$number"
        done
    done
    echo "== $part"
    number=0
    for setting; do
        number=$((number + 1))
        sort -n "$work/$part.$number" | awk -v setting="$setting" '
            { seconds[NR] = $1; flops = $2 }
            END { print (seconds[int((NR + 1) / 2)] + seconds[int(NR / 2) + 1]) / 2, flops, setting }'
    done | awk '
        NR == 1 { seconds = $1; flops = $2 }
        {
            setting = $0
            sub(/^[^ ]* [^ ]* /, "", setting)
            printf "%-36s %8.3f s %9.1f GFLOP  %6.3f times the time, %6.3f times the FLOPs, %6.3f times as fast\n",
                setting, $1, $2, $1 / seconds, $2 / flops, seconds / $1
        }'
}

part threads '--threads 1 --batch 1' '--threads 2 --batch 1'
part length "--seq 256 --batch 4 --threads $threads" "--seq 1024 --batch 1 --threads $threads" \
    "--seq 4096 --batch 1 --threads $threads"
part batch "--batch 1 --threads $threads" "--batch 4 --threads $threads" "--batch 8 --threads $threads"
