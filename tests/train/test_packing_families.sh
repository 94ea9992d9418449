#!/bin/sh
# Packed examples have the same losses and gradients as separate ones, in each model family: absolute and rotary
# positions, sliding windows and experts.
# ctest: PROCESSORS 2 LABELS long
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export XDG_CACHE_HOME="$place/cache"
failures=0

# One token a letter. 12 examples of 3 to 14 tokens fill 4 rows of 24, so a batch is all of the data either way.
vocab='"<unk>": 0'
number=0
for letter in a b c d e f g h i j k l m n o p q r s t u v w x y z; do
    number=$((number + 1))
    vocab="$vocab, \"$letter\": $number"
done
words="abcdefghijklmnopqrstuvwxyz"
for example in 1 2 3 4 5 6 7 8 9 10 11 12; do
    prompt=$(echo $words | cut -c$example-$((example + example % 5)))
    completion=$(echo $words | cut -c$((27 - 2 * example))-$((27 - 2 * example + example * 5 % 9)))
    printf '{"prompt": "%s", "completion": "%s"}\n' "$prompt" "$completion"
done >"$place/data.jsonl"

# Loss and gradient norm of the first step, and the loss of a fifth of the examples behind it.
figures() { # <packing> <batch>
    rm -rf "$place/run"
    "$BALLAST_PROGRAM" train "$place/model" "$place/data.jsonl" -o "$place/run" --packing "$1" --batch "$2" --seq 24 \
        --micro-batch 1 --steps 1 --lr 1e-12 --dtype fp32 --threads 1 --valid "$place/data.jsonl" >"$place/out" 2>&1 || {
        echo "packing: $(tail -n 3 "$place/out")" >&2
        return
    }
    grep -q "12 examples in $2 rows" "$place/out" || echo "packing: not $2 rows: $(grep rows "$place/out")" >&2
    awk -v RS='[{,}]' -F': ' '/"(loss|grad_norm|val_loss)"/ { print $2 }' "$place/run/metrics.jsonl" | tr '\n' ' '
}
# The table's rows begin with the names: "| `llama` | positions | ...".
families=$("$BALLAST_PROGRAM" help models | sed -n 's/^| `\([a-z0-9_]*\)` |.*/\1/p' | grep -vx model_type | sort -u)
[ "$(echo "$families" | wc -l)" -ge 17 ] || { echo "packing: help models names only: $families" >&2 && exit 1; }
for family in $families; do
    rm -rf "$place/model"
    cp -r "$BALLAST_FIXTURES/models/$family" "$place/model"
    chmod -R u+w "$place/model"
    printf '{"model": {"type": "BPE", "vocab": {%s}, "merges": []}}' "$vocab" >"$place/model/tokenizer.json"
    apart=$(figures off 12)
    packed=$(figures on 4)
    echo "$apart $packed" | awk '{
        for (i = 1; i <= 3; i++) if (!($i > 0) || ($i - $(i + 3)) ^ 2 > ($i * 2e-6) ^ 2) bad = 1
        exit NF != 6 || bad }' || {
        echo "packing: $family: loss, gradient norm and validation are $packed, and $apart by themselves" >&2
        failures=$((failures + 1))
    }
done
[ $failures -eq 0 ]
