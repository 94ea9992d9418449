#!/bin/sh
# Measures the effect of smaller optimizer states on the loss: trains the demo's model and text (scripts/demo.sh) with
# each.
#
#     bench/optimizer_states.sh [DIR [STEPS [BUILD [THREADS]]]]     (default: build/optimizer-states 2000 build 1)
#
# Prints a row for each: validation losses at each fifth of the steps, the last one compared with the
# default's, and the mean training loss of the last 100 steps.
set -eu

folder=${1:-build/optimizer-states}
steps=${2:-2000}
build=${3:-build}
threads=${4:-1}
ballast=$build/ballast
root=$(cd "$(dirname "$0")/.." && pwd)

rm -rf "$folder"
mkdir -p "$folder/data"
"$root/scripts/make-demo-text.sh" "$folder/text.txt"
lines=$(wc -l <"$folder/text.txt")
held=$((lines / 50))
head -n $((lines - held)) "$folder/text.txt" >"$folder/data/train.txt"
tail -n "$held" "$folder/text.txt" >"$folder/data/valid.txt"
"$ballast" init "$folder/model" --arch llama --hidden 192 --layers 4 --heads 6 --kv-heads 3 --ffn 512 --vocab 2048 \
    --context 128 --tied --tokenizer-data "$folder/data/train.txt" >&2

# The options of each run, which also name it.
train() {
    # shellcheck disable=SC2086 # several options, or none
    "$ballast" train "$folder/model" "$folder/data" -o "$folder/run$(echo "$*" | tr -d ' ')" --steps "$steps" --lr 3e-3 \
        --valid-every $((steps / 5)) --valid-batches 16 --save-every 0 --threads "$threads" --dtype bf16 $* \
        >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
}

for options in '' '--optimizer-dtype bf16' '--optimizer-dtype bf16 --master-weights none' '--optimizer-dtype int8' \
    '--optimizer-dtype int8 --master-weights none'; do
    train "$options"
done

python3 - "$folder" <<'END'
import json, pathlib, sys
rows = []
for run in sorted(pathlib.Path(sys.argv[1]).glob("run*")):
    if not run.is_dir():
        continue
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    valid = [line["val_loss"] for line in lines if "val_loss" in line]
    losses = [line["loss"] for line in lines if "loss" in line][-100:]
    rows.append((run.name[3:] or "(default)", valid, sum(losses) / len(losses)))
first = rows[0][1][-1]
for name, valid, training in rows:
    print(f"| {name} | {' | '.join(f'{loss:.4f}' for loss in valid)} | {100 * (valid[-1] / first - 1):+.2f}% | "
          f"{training:.4f} |")
END
