#!/bin/sh
# ctest: PROCESSORS 2 TIMEOUT 300 LABELS long
# Two ranks in a memory cgroup: a step that does not fit is refused before it begins. With the memory in the hint they
# measure, train, save and finish, and the kernel kills no process.
set -eu
has_mpi() { command -v mpirun >/dev/null && ls "$(dirname "$BALLAST_PROGRAM")"/ballast-mpi-*.so >/dev/null 2>&1; }
has_mpi || { echo "skipped: jobs of several ranks need an MPI and its plugin" && exit 77; }
limited="$BALLAST_SOURCE/bench/cgroup_run.sh"
"$limited" 64M true 2>/dev/null || { echo "skipped: this machine has no memory cgroup to make; needs root" && exit 77; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
fail() { cat log >&2 && echo "$*" >&2 && exit 1; }
"$BALLAST_PROGRAM" init model --arch llama --hidden 256 --layers 3 --heads 4 --vocab 2048 --context 256 --quiet
{ printf '\210\330\064\001\001\000\000\000\000\020\000\000' && head -c 1012 /dev/zero
  printf "$(awk 'BEGIN { for (i = 0; i < 4096; i++) printf "\\%03o\\000", i * 7919 % 251 }')"; } >tokens.bin

# LIMIT: sets status and kills. Nothing that was measured before is found.
train() {
    rm -rf run
    status=0
    XDG_CACHE_HOME="$place/cache-$1" "$limited" "$1" "$BALLAST_PROGRAM" train model tokens.bin -o run --ranks 2 \
        --batch 4 --seq 128 --micro-batch 1 --steps 3 --save-every 1 --quiet >log 2>&1 || status=$?
    kills=$(sed -n 's/^cgroup_run: .*oom_kills=\([0-9]*\).*/\1/p' log)
}

limit=$((150 << 20))
train "$limit"
[ "$status" = 3 ] && [ "$kills" = 0 ] && [ ! -e run ] || fail "in 150 MiB: status $status, $kills killed"
more=$(grep -oE '[0-9.]+ [KMG]iB more memory for the processes' log | head -1 | sed -E 's/ (.)iB.*/\1/')
[ -n "$more" ] || fail "the hint names no memory"
train "$((limit + $(numfmt --from=iec "$more")))"
[ "$status" = 0 ] && [ "$kills" = 0 ] && [ -e run/checkpoints/step-00000003 ] ||
    fail "with $more more: status $status, $kills killed"
