#!/bin/sh
# Tests bench/scale_tables: rows give an array, answers do not change predictions, and errors name file, row and field.
set -eu
program=$(dirname "$BALLAST_PROGRAM")/bench/scale_tables
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "scale_tables: $1" >&2
    exit 1
}

row='"src": "a table", "model": "GPT-22B", "hidden": 6144, "layers": 48, "heads": 64, "seq": 2048, "gpus": 8,
    "hw": "A100-80GB", "framework": "Megatron-LM", "tp": 8, "pp": 1, "dp": 1, "precision": "fp16", "micro_batch": 4,
    "global_batch_seqs": 4, "act_ckpt": "selective(attn)+sequence parallel", "sharding": "none (DP=1)"'
echo "[{\"id\": 3, $row, \"sec_per_iter\": 1.1}, {\"id\": 9, \"src\": \"a table\", \"hw\": \"A100\"}]" > "$folder/rows.json"
echo "[{\"id\": 3, $row}, {\"id\": 9, \"src\": \"a table\"}]" > "$folder/asked.json"
"$program" --json "$folder/rows.json" > "$folder/rows.out" || fail "ends with $?"
"$program" --json "$folder/asked.json" > "$folder/asked.out" || fail "ends with $?"
cmp -s "$folder/rows.out" "$folder/asked.out" || fail "the answer changes what is predicted"
tr -d ' \n' < "$folder/rows.out" | grep -Eq \
    '^\[\{"id":3,"step_s":[0-9.]+,"peak_bytes":[0-9]+,"why":null\},\{"id":9,"step_s":null,"peak_bytes":null,"why":".+"\}\]$' ||
    fail "$(cat "$folder/rows.out")"

"$program" "$folder/rows.json" > "$folder/text" || fail "ends with $?"
grep -q 'rows used: 1' "$folder/text" || fail "$(cat "$folder/text")"
grep -q 'left out 1: no precision' "$folder/text" || fail "$(cat "$folder/text")"

echo '[{"id": 1}, {"id": 2, "tp": "eight"}]' > "$folder/wrong.json"
status=0
"$program" --json "$folder/wrong.json" > "$folder/out" 2> "$folder/message" || status=$?
[ "$status" = 2 ] && [ ! -s "$folder/out" ] || fail "a wrong file ends with $status"
grep -q 'wrong.json: row 1 (id 2): tp' "$folder/message" || fail "$(cat "$folder/message")"

status=0
"$program" --fit "another table" "$folder/rows.json" > "$folder/out" 2> "$folder/message" || status=$?
[ "$status" = 2 ] && grep -q 'fit: another table: no source' "$folder/message" ||
    fail "a calibration on nothing ends with $status: $(cat "$folder/message")"
