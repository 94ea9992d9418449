#!/bin/sh
# bench/parallel_cases: what it has no solver for is named on stderr, and stdout is an array in any case.
set -eu
program=$(dirname "$BALLAST_PROGRAM")/bench/parallel_cases
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "parallel_cases: $1" >&2
    exit 1
}

echo '{"_about": "no chains", "8_other": {"cases": [1]}, "9_more": {}}' > "$folder/other.json"
"$program" --json "$folder/other.json" > "$folder/out" 2> "$folder/skipped" || fail "ends with $?"
[ "$(cat "$folder/out")" = '[]' ] || fail "no empty array: $(cat "$folder/out")"
[ "$(cat "$folder/skipped")" = '8_other: skipped, no solver
9_more: skipped, no solver' ] || fail "skipped: $(cat "$folder/skipped")"

# A chain of one stage and its loss; nothing fits one slot.
cat > "$folder/chain.json" <<'END'
{"9_more": {}, "10_rotor_synthetic": {"cases": [{
    "ftime": [1], "btime": [2, 0], "x": [1, 1], "xbar": [1, 1], "ftmp": [0], "btmp": [0, 0],
    "results": [{"memory_slots": 8}, {"memory_slots": 1}]}]}}
END
"$program" --json "$folder/chain.json" > "$folder/out" 2> "$folder/skipped" || fail "ends with $?"
tr -d ' \n' < "$folder/out" > "$folder/dense"
expected='[{"section":"10_rotor_synthetic","case":0,"slots":8,"objective":3.0,"peak":PEAK},'
expected=$expected'{"section":"10_rotor_synthetic","case":0,"slots":1,"objective":null,"peak":null}]'
[ "$(sed 's/"peak":[0-9]*/"peak":PEAK/' "$folder/dense")" = "$expected" ] || fail "$(cat "$folder/dense")"
[ "$(cat "$folder/skipped")" = '9_more: skipped, no solver' ] || fail "skipped: $(cat "$folder/skipped")"

echo '[]' > "$folder/wrong.json"
status=0
"$program" --json "$folder/wrong.json" > "$folder/out" 2> "$folder/message" || status=$?
[ "$status" = 2 ] && [ ! -s "$folder/out" ] || fail "a wrong file ends with $status"
