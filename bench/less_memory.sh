#!/bin/bash
# Tests whether a run adapts when its memory limit is lowered by a third during training. It must not be killed, must
# continue with another plan, and must have the losses of a run without a limit, to the last digit.
#   usage: bench/less_memory.sh [--limit SIZE] [--ranks N] [--build DIR] [--folder DIR] [-o FILE]
# --ranks N trains with N processes in one cgroup, each with one sequence of the batch.
# Needs root and the memory controller of cgroup v1 or v2. Cgroup v1 refuses a limit below the memory in use, and v2
# would kill the process. So the script lowers the limit once a second, to just above the memory in use, until it is low
# enough.
set -eu
export LC_ALL=C
source=$(cd "$(dirname "$0")/.." && pwd)
usage() {
    sed -n '4s/^# *//p' "$0" >&2
    exit 2
}
limit=640M ranks=1 build=$source/build folder='' output=/dev/null
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --limit) limit=$2 ;; --ranks) ranks=$2 ;; --build) build=$2 ;; --folder) folder=$2 ;; -o) output=$(realpath "$2") ;;
    *) usage ;;
    esac
    shift 2
done
build=$(cd "$build" && pwd)
ballast=$build/ballast
bytes=$(numfmt --from=iec "$limit")
target=$((bytes * 2 / 3 / 4096 * 4096))
folder=${folder:-$build/bench-less-memory}
rm -rf "$folder"
mkdir -p "$folder/disk"
cd "$folder"

if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
    group=/sys/fs/cgroup/memory/ballast-less-$$
    limit_file=memory.limit_in_bytes used_file=memory.usage_in_bytes kills_file=memory.oom_control
else
    group=/sys/fs/cgroup/ballast-less-$$
    limit_file=memory.max used_file=memory.current kills_file=memory.events
fi
mkdir "$group" 2>/dev/null || {
    echo "less_memory: cannot make $group: it takes root and a memory controller" >&2
    exit 77
}
child=
finish() {
    if [ -n "$child" ]; then kill "$child" 2>/dev/null || :; fi
    for _ in 1 2 3 4 5; do
        rmdir "$group" 2>/dev/null && return
        sleep 1
    done
}
trap finish EXIT

"$ballast" init model --arch llama --hidden 512 --layers 8 --heads 8 --ffn 1376 --vocab 512 --context 256 >/dev/null
{
    printf '\x88\xd8\x34\x01\x01\0\0\0\0\0\1\0' && head -c 1012 /dev/zero
    seq 65536 | awk '{ x = (x * 75 + 74) % 65537; printf "\\x%02x\\0", x % 256 } END { print "" }' |
        { read -r text && printf '%b' "$text"; }
} >tokens.bin
train() { # DIR OPTION...
    local run=$1
    shift
    "$ballast" train model tokens.bin -o "$run" --ranks "$ranks" --batch "$ranks" --seq 128 --micro-batch 1 --steps 150 \
        --dtype fp32 --save-every 20 --disk disk "$@"
}
echo "$bytes" >"$group/$limit_file"
# shellcheck disable=SC2016 # expanded by the inner shell
(echo "$BASHPID" >"$group/cgroup.procs" && train followed) >followed.txt 2>&1 &
child=$!
until [ "0$(grep -c . followed/metrics.jsonl 2>/dev/null || :)" -ge 5 ]; do
    kill -0 "$child" 2>/dev/null || break
    sleep 1
done
lowered=0 now=$bytes
while kill -0 "$child" 2>/dev/null && [ "$now" -gt "$target" ]; do
    used=$(cat "$group/$used_file")
    cached=$(awk '/^(total_)?(in)?active_file / { all[$1 ~ /^total_/] += $2 } END { print all[1] ? all[1] : all[0] + 0 }' \
        "$group/memory.stat")
    next=$((used - cached + ranks * (16 << 20)))
    [ "$next" -gt "$target" ] || next=$target
    if [ "$next" -lt "$now" ] && echo "$next" 2>/dev/null >"$group/$limit_file"; then now=$next lowered=$((lowered + 1)); fi
    sleep 1
done
status=0
wait "$child" || status=$?
child=
kills=$(sed -n 's/^oom_kill //p' "$group/$kills_file")
train whole >whole.txt 2>&1
losses() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
same=different
[ "$(losses whole)" = "$(losses followed)" ] && same=equal
{
    echo "limit $bytes, lowered to $now in $lowered steps (two thirds: $target); status $status, killed $kills times"
    sed -n 's/^{"step": [0-9]*, "replan".*/&/p' followed/metrics.jsonl
    echo "losses of $(losses followed | wc -l) steps: $same"
} | tee "$output"
[ "$status" = 0 ] && [ "$kills" = 0 ] && [ "$same" = equal ] && [ "$now" = "$target" ] &&
    grep -q '"less memory"' followed/metrics.jsonl
