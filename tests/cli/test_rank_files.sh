#!/bin/sh
# ctest: PROCESSORS 2 LABELS long
# Two ranks under MPI write the same files as one, byte for byte: with 8-bit optimizer moments under partitions, and for
# preference pairs, whose reference log-probabilities the ranks share. Also tests parts of stored experts.
set -eu
has_mpi() { command -v mpirun >/dev/null && ls "$(dirname "$BALLAST_PROGRAM")"/ballast-mpi-*.so >/dev/null 2>&1; }
has_mpi || { echo "skipped: jobs of several ranks need an MPI and its plugin" && exit 77; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export XDG_CACHE_HOME="$place/cache"
cd "$place"
ballast() { "$BALLAST_PROGRAM" "$@" 2>>errors || { echo "ballast $* failed: $(tail -n 3 errors)" >&2; exit 1; }; }

# A text of a small language, pairs of it, and a model that reads both.
awk 'BEGIN { srand(7); for (i = 0; i < 400; i++) { for (j = 0; j < 12; j++)
    printf "%c%c%c ", 97 + rand() * 9, 97 + rand() * 5, 97 + rand() * 3; print "" } }' >text.txt
awk 'NR <= 24 { printf "{\"prompt\": \"%s %s \", \"chosen\": \"%s %s\", \"rejected\": \"%s\"}\n", $1, $2, $3, $4, $5 }' \
    text.txt >pairs.jsonl
ballast init model --arch llama --hidden 64 --layers 2 --heads 2 --ffn 160 --vocab 300 --context 32 \
    --tokenizer-data text.txt --quiet

# RUN DATA OPTIONS...
train() {
    run=$1 data=$2
    shift 2
    ballast train model "$data" -o "$run" --lanes 2 --micro-batch 2 --batch 8 --seq 32 --steps 3 --lr 1e-2 --warmup-steps 1 \
        --save-every 3 --threads 1 --quiet "$@" >/dev/null
}
# FILE RUN RUN
expect_same() { cmp -s "$2/$1" "$3/$1" || { echo "$1 of $3 is not that of $2" && exit 1; }; }
at=checkpoints/step-00000003

int8="--optimizer-dtype int8 --dtype bf16"
train one text.txt $int8
for partition in zero1 zero3; do
    train $partition text.txt $int8 --ranks 2 --partition $partition
    expect_same $at/model.safetensors one $partition
    expect_same $at/optimizer.safetensors one $partition
done

train pairs pairs.jsonl --loss dpo
train two pairs.jsonl --loss dpo --ranks 2 --partition zero1
expect_same reference.safetensors pairs two
expect_same $at/model.safetensors pairs two
expect_same $at/optimizer.safetensors pairs two

# Experts that files have in mxfp4, of which each rank reads its part, and has the losses of one rank that has all. By
# rates of links that cost nothing, since the solver lets ranks have whole experts where messages are slow.
ballast profile --ranks 2 --tensor-parallel 2 --threads 1 -o links.json >/dev/null
sed -E 's/"(latency_s|seconds|issue_s|wake_s)": *[0-9.e+-]+/"\1": 1e-9/g; s/"bytes_per_s": *[0-9.e+-]+/"bytes_per_s": 1e13/g' \
    links.json >fast.json
{ printf '\210\330\064\001\001\000\000\000\350\003\000\000' && head -c 1012 /dev/zero
  printf "$(awk 'BEGIN { for (i = 0; i < 1000; i++) printf "\\%03o\\000", i * 7919 % 53 }')"; } >tokens.bin
train_experts() {
    run=$1
    shift
    ballast train "$BALLAST_SOURCE/tests/fixtures/models/gpt_oss_mxfp4" tokens.bin -o "$run" --lora 2,4,q_proj --dtype fp32 \
        --seq 24 --batch 4 --steps 3 --valid-fraction 0 --threads 1 --quiet "$@" >/dev/null
}
train_experts whole
train_experts parts --ranks 2 --tensor-parallel 2 --layout solver --cluster fast.json
grep -q '"layer.0.mlp.experts.0": "f"' parts/run.json || { echo "ranks have whole experts" && exit 1; }
for run in whole parts; do
    sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' $run/metrics.jsonl >$run.losses
done
paste whole.losses parts.losses | awk '{ if ($1 == 0 || ($1 - $2) ^ 2 > ($1 * 1e-6) ^ 2) exit 1 } END { if (NR != 3) exit 1 }' ||
    { echo "losses of parts:" && paste whole.losses parts.losses && exit 1; }
