#!/bin/sh
# Tests bench/parallel_cases: all sections pass, and a wrong answer fails. Without answers the objectives are the same.
# stderr lists cases without a solver, and stdout is always an array. Errors name the field.
set -eu
program=$(dirname "$BALLAST_PROGRAM")/bench/parallel_cases
fixture=$BALLAST_FIXTURES/layout/parallel_cases.json
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "parallel_cases: $1" >&2
    exit 1
}

"$program" "$fixture" > "$folder/out" 2> "$folder/skipped" || fail "the fixture fails: $(cat "$folder/out")"
[ "$(grep -c 'failed 0' "$folder/out")" = 9 ] || fail "not nine sections: $(cat "$folder/out")"
[ "$(cat "$folder/skipped")" = '6_intra_op_ilp_colossal: instances[1]: skipped, the file has no costs
8_alpa_ilp: cases[2]: skipped, the file has no instances' ] || fail "skipped: $(cat "$folder/skipped")"

# Objectives do not hang on the answers.
answers='"\(objective\|expected\|true_sum_[a-z]*\|alpa_dp_cost\|brute_force_cost\|opt_cost[a-z_]*\)"'
"$program" --json "$fixture" > "$folder/with" 2> "$folder/skipped" || fail "--json ends with $?"
sed "s/$answers:/\"no_\1\":/g" "$fixture" > "$folder/bare.json"
"$program" --json "$folder/bare.json" > "$folder/without" 2> "$folder/skipped" || fail "without answers it ends with $?"
cmp "$folder/with" "$folder/without" || fail "without answers other objectives come"

# An answer that is off by more than a thousandth fails, on both sides.
wrong() {
    sed "$1" "$fixture" > "$folder/wrong.json"
    cmp -s "$fixture" "$folder/wrong.json" && fail "nothing changed by $1"
    status=0
    "$program" "$folder/wrong.json" > "$folder/out" 2> "$folder/message" || status=$?
    [ "$status" = "$2" ] || fail "$1: ends with $status"
    grep -q "$3" "$folder/message" || fail "$1: expected '$3' in: $(cat "$folder/message")"
}
wrong 's/"R->S01": 16/"R->S01": 15/' 1 'table.R->S01: an objective of 16'
wrong 's/"objective": 60204.48/"objective": 60104.48/' 1 'solutions\[1\]: an objective of 60204.48'
wrong 's/"objective": 60204.48/"objective": 60304.48/' 1 'solutions\[1\]'
wrong 's/"brute_force_cost": 33.774/"brute_force_cost": 33.5/' 1 'cases\[0\]: an objective'
wrong 's/"best_logical_mesh": \[\[0, 1\]/"best_logical_mesh": [[0, 2]/' 1 'other rows'
wrong 's/"rank5_local": \[1, 1\]/"rank5_local": [1, 2]/' 1 'another place'
wrong 's/"all_reduce": 513.01/"all_reduce": 500/' 1 'comm_cost\[0\]'
wrong 's/\[\[0\], \[0\], \[2\], \[2\]\]/[[0], [0], [2], [3]]/' 1 'runtime_case: rank01_out has 3'
wrong 's/"keeps": false/"keeps": true/' 1 'cases\[0\]: a cut of dimension 1 is not kept'
wrong 's/"mesh_shape": \[2, 4\]/"mesh_shape": [2, "4"]/' 2 'grids\[0\]: mesh_shape\[1\]: must be a whole number'
wrong 's/"src": \["R", "R"\]/"src": ["R", "S3"]/' 2 'grids\[0\].cases\[0\]: src\[1\]: .S3.'
wrong 's/"s_len": \[1, 4/"s_len": [1, 5/' 2 'instances\[0\].ilp: compute\[1\]: must hold 5'
wrong 's/"num_devices": 2/"num_devices": 0/' 2 'cases\[0\]: num_devices: 0 is outside'
wrong 's/"memory_slots": 4/"memory_slots": -4/' 2 '10_rotor_synthetic: cases\[0\]: results\[0\]: memory_slots'

echo '{"_about": "no chains", "8_other": {"cases": [1]}, "19_more": {}}' > "$folder/other.json"
"$program" --json "$folder/other.json" > "$folder/out" 2> "$folder/skipped" || fail "ends with $?"
[ "$(cat "$folder/out")" = '[]' ] || fail "no empty array: $(cat "$folder/out")"
[ "$(cat "$folder/skipped")" = '8_other: skipped, no solver
19_more: skipped, no solver' ] || fail "skipped: $(cat "$folder/skipped")"

# A chain of one stage and its loss; nothing fits one slot.
cat > "$folder/chain.json" <<'END'
{"19_more": {}, "10_rotor_synthetic": {"cases": [{
    "ftime": [1], "btime": [2, 0], "x": [1, 1], "xbar": [1, 1], "ftmp": [0], "btmp": [0, 0],
    "results": [{"memory_slots": 8}, {"memory_slots": 1}]}]}}
END
"$program" --json "$folder/chain.json" > "$folder/out" 2> "$folder/skipped" || fail "ends with $?"
tr -d ' \n' < "$folder/out" > "$folder/dense"
expected='[{"section":"10_rotor_synthetic","case":0,"at":"cases[0],8slots","objective":3.0,"slots":8,"peak":PEAK},{"section"'
expected=$expected':"10_rotor_synthetic","case":0,"at":"cases[0],1slots","objective":null,"slots":1,"peak":null}]'
[ "$(sed 's/"peak":[0-9]*/"peak":PEAK/' "$folder/dense")" = "$expected" ] || fail "$(cat "$folder/dense")"
[ "$(cat "$folder/skipped")" = '19_more: skipped, no solver' ] || fail "skipped: $(cat "$folder/skipped")"

echo '[]' > "$folder/wrong.json"
status=0
"$program" --json "$folder/wrong.json" > "$folder/out" 2> "$folder/message" || status=$?
[ "$status" = 2 ] && [ ! -s "$folder/out" ] || fail "a wrong file ends with $status"
