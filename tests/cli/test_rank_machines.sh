#!/bin/sh
# ctest: PROCESSORS 2 TIMEOUT 120
# On machines that lack what an MPI needs, ranks end with a hint: Open MPI without a network interface, MPICH with 1 MiB
# of /dev/shm, both with a file size limit of some hundred KiB.
set -eu
plugins=$(dirname "$BALLAST_PROGRAM")
unshare -m -n true 2>/dev/null || { echo "skipped: this user cannot make namespaces; needs root" && exit 77; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export XDG_CACHE_HOME="$place/cache"
cd "$place"
"$BALLAST_PROGRAM" init model --arch llama --hidden 64 --layers 1 --heads 1 --vocab 300 --context 32 --quiet
printf '\210\330\064\001\001\000\000\000\100\000\000\000' >tokens.bin
head -c 1140 /dev/zero >>tokens.bin

# HINT MPI COMMAND...: the command, which starts ranks on that machine, fails with the hint.
expect_hint() {
    hint=$1 mpi=$2
    shift 2
    command -v "mpirun.$mpi" >/dev/null && [ -e "$plugins/ballast-mpi-$mpi.so" ] || return 0
    status=0
    BALLAST_MPI=$mpi "$@" "$BALLAST_PROGRAM" train model tokens.bin -o run --ranks 2 --batch 2 --seq 16 --steps 1 \
        --quiet >log 2>&1 || status=$?
    [ "$status" = 1 ] && grep -q "^hint: $hint" log && return
    cat log >&2 && echo "$mpi: status $status, and no hint '$hint'" >&2 && exit 1
}
expect_hint 'Open MPI needs a network interface' openmpi unshare -n
expect_hint '/dev/shm has 1.00 MiB left' mpich unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"' sh
for mpi in openmpi mpich; do
    expect_hint 'ulimit -f limits files to [0-9]* KiB' $mpi sh -c 'ulimit -f 500 && exec "$@"' sh
done
