#!/bin/sh
# ctest: LABELS long
# scripts/same-results.sh finds no difference between a build and itself, and names each kind of difference. Wrappers of
# the build change a result, an option, a policy, names, a message or the exit status.
set -eu
command -v python3 >/dev/null || { echo "skipped: scripts/same-results.sh; needs python3" && exit 77; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export TMPDIR="$place" JOBS=1
build=$(cd "$(dirname "$BALLAST_PROGRAM")" && pwd)
family=gpt2

# Reads a script from stdin that a directory gets as its program; `built` in it runs the build's.
wrap() { # <name>
    mkdir "$place/$1"
    { printf '#!/bin/sh\nbuilt() { "%s/ballast" "$@"; }\n' "$build" && cat; } >"$place/$1/ballast"
    chmod +x "$place/$1/ballast"
}
fail() {
    echo "$*"
    cat "$place/output"
    exit 1
}
compare() { # <status> <old> <new> <variants> <expected line>...
    expected=$1 old=$2 new=$3 variants=$4 status=0
    shift 4
    "$BALLAST_SOURCE/scripts/same-results.sh" "$old" "$new" "^$family fp32 ($variants) (avx2|generic)\$" \
        >"$place/output" 2>&1 || status=$?
    [ $status = "$expected" ] || fail "$new: status $status"
    for line in "$@"; do
        grep -qE -- "$line" "$place/output" || fail "$new: expected '$line'"
    done
}
# <cases> <equal> <different> <refused> <plans> <messages> <formats>
counts() { printf '^all'; printf ' +%s' "$@"; printf '$\n'; }

compare 0 "$build" "$build" 'plain|taken-over' "$(counts 2 2 0 0 0 0 0)"
! grep -q 'differ:' "$place/output" || fail 'differences between a build and itself'

wrap result <<'END'
built "$@" || exit
[ "$1" != train ] || { rm run/plan.json && printf '\377' | dd of=run/model/model.safetensors bs=1 conv=notrunc \
    seek=$(($(stat -c %s run/model/model.safetensors) - 1)) 2>/dev/null; }
END
compare 1 "$build" "$place/result" compact "^$family fp32 compact .*: differs; kept in $place/same-results-" \
    'run/model/model.safetensors: tensor [^ ]+: 1 of [0-9]+ elements differ, the first is [0-9]+: ' \
    'run/plan.json: only the old build writes this file' "$(counts 1 0 1 0 0 0 0)"

wrap option <<'END'
[ "$1" != train ] || set -- "$@" --epsilon 1e-4
built "$@"
END
compare 1 "$build" "$place/option" compact 'run/run.json: plan.recipe.epsilon: 1e-08 -> 0.0001' \
    'metrics.jsonl: step 2: loss: [0-9.]+ -> ' 'optimizer.safetensors: tensor ' "$(counts 1 0 1 0 0 0 0)"

wrap policy <<'END'
case $1 in plan | train) set -- "$@" --micro-batches-per-wave 2 ;; esac
built "$@"
END
compare 0 "$build" "$place/policy" compact '^Plans differ:' \
    "$family fp32 compact .*: policy.micro_batches_per_wave: 1 -> 2.*; simulated step [0-9.]+ ms -> [0-9.]+ ms" \
    "$(counts 1 1 0 0 1 0 0)"

wrap names <<'END'
[ "$1" = help ] && built "$@" | sed 's/--micro-batch N/--sequences N/' && exit
for word; do
    shift
    [ "$word" != --micro-batch ] || { echo 'ballast: error: --micro-batch: unknown option' >&2 && exit 2; }
    [ "$word" != --sequences ] || word=--micro-batch
    set -- "$@" "$word"
done
out=$(built "$@") || exit
printf '%s\n' "$out" | sed 's/"micro_batch"/"sequences"/'
[ "$1" != train ] || find run -name '*.json' -exec sed -i 's/"micro_batch"/"sequences"/
    s/"version": [0-9]*,/"version": 99,/' {} +
END
printf 'option --micro-batch --sequences\nkey micro_batch sequences\n' >"$place/rows"
NAMES=$place/rows compare 0 "$build" "$place/names" compact 'run.json: version: [0-9]+ -> 99' "$(counts 1 1 0 0 0 0 1)"
NAMES=$place/rows compare 0 "$place/names" "$build" compact "$(counts 1 1 0 0 0 0 1)"
NAMES=/dev/null compare 1 "$build" "$place/names" compact 'plan: exit status 0 -> 2' "$(counts 1 0 1 0 0 0 0)"

wrap message <<'END'
errors=$(mktemp)
status=0
built "$@" 2>"$errors" || status=$?
sed 's/divisible by/split into/' "$errors" >&2
exit $status
END
compare 0 "$build" "$place/message" tensor-3 '^Refused alike:' '^Messages differ:' ' divisible by.* -> .* split into' \
    "$(counts 1 0 0 1 0 1 0)"

wrap crash <<'END'
[ "$1" != train ] || kill -9 $$
built "$@"
END
compare 1 "$place/crash" "$place/crash" compact 'both builds fail with status -9' "$(counts 1 0 1 0 0 0 0)"
