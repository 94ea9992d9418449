#!/bin/sh
# Runs the scripts of examples/slurm under a private Slurm (scripts/with-slurm.sh): ranks started by srun or mpirun, on
# one node and on two, and jobs that are stopped and resumed. The results have the bits of one process.
#   usage: test_slurm.sh [one|two]         default: both, each under its own Slurm
# ctest: TIMEOUT 600 PROCESSORS 2 LABELS long
set -eu
place=${PLACE-$(mktemp -d)}
export PLACE="$place"
scripts=$BALLAST_SOURCE/examples/slurm
settings='--steps 400 --lanes 4 --batch 8 --micro-batch 1 --seq 16 --dtype fp32 --threads 1 --lr 1e-2 --save-every 50'

fail() {
    echo "slurm: $*" >&2
    { squeue; ps -eo pid,ppid,etime,time,stat,wchan,args | grep -E '[s]lurmstepd|[b]allast train'; } >&2 || true
    for log in "$place"/*.log; do echo "--- $log" && cat "$log"; done >&2
    exit 1
}
has() { command -v "mpirun.$1" >/dev/null && [ -e "$(dirname "$BALLAST_PROGRAM")/ballast-mpi-$1.so" ]; }
queue() { # <name of the log> <options of sbatch> <script> <run>: its number
    # shellcheck disable=SC2086 # words
    sbatch --parsable --output="$place/$1.log" $2 "$scripts/$3" "$place/model" "$place/data.txt" "$place/$4" $settings
}
await() { # <job>
    tries=0
    while squeue --noheader --jobs="$1" 2>/dev/null | grep -q .; do
        tries=$((tries + 1))
        [ $tries -lt 900 ] || fail "job $1 does not end"
        sleep 0.2
    done
}
made_steps() { # <run> <how many>
    [ -e "$place/$1/metrics.jsonl" ] && [ "$(wc -l <"$place/$1/metrics.jsonl")" -ge "$2" ]
}
saved() { # <run>: a checkpoint, which is there as a whole once it has its name
    [ -e "$place/$1/checkpoints/step-00000050" ]
}
until_run() { # <made_steps or saved> <run> [how many]
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || fail "$2 does not get to: $1 ${3-}"
        sleep 0.1
    done
}
expect_once() { # <log> <text>
    [ "$(grep -c "$2" "$place/$1.log")" = 1 ] || fail "$1.log does not say '$2' once"
}
same() { # <run>
    cmp "$place/$1/model/model.safetensors" "$place/alone/model/model.safetensors" || fail "$1 has other weights"
}

# Queued three times: stopped, finished, nothing left to do.
chain() { # <name> <options> <script> <scancel's options for the stop>
    job=$(queue "$1-1" "$2" "$3" "$1")
    until_run made_steps "$1" 20
    # shellcheck disable=SC2086
    scancel $4 "$job"
    await "$job"
    expect_once "$1-1" 'ballast: stopped after step'
    await "$(queue "$1-2" "$2" "$3" "$1")"
    expect_once "$1-2" 'done: '
    await "$(queue "$1-3" "$2" "$3" "$1")"
    expect_once "$1-3" 'complete: all 400 steps are done'
    same "$1"
}

# A rank of a job dies: srun leaves the other to find out, which names the checkpoint.
lose() { # <name> <options> <script>
    settings=$(echo "$settings --rank-timeout 5" | sed 's/--steps 400/--steps 1000000/')
    job=$(queue "$1" "$2" "$3" "$1")
    until_run saved "$1"
    for process in $(pgrep -f "train .*$place/$1 "); do
        if tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -q '^PMI_RANK=1$'; then kill -KILL "$process"; fi
    done
    await "$job"
    expect_once "$1" 'ballast: error: rank 1 on '
    expect_once "$1" 'hint: the last good checkpoint is '
}

# The time limit's own signal, and not scancel's: Slurm may send it a minute early.
time_limit() {
    settings=$(echo "$settings" | sed 's/--steps 400/--steps 1000000/')
    await "$(queue limit '--time=1 --signal=TERM@50' srun-openmpi.sbatch limit)"
    expect_once limit 'ballast: stopped after step'
}

case ${1-} in
one)
    if has openmpi; then chain pmix '' srun-openmpi.sbatch '--signal=TERM'; fi
    if has mpich; then chain pmi2 '--nodes=1 --ntasks-per-node=2' srun-mpich.sbatch '--signal=USR1'; fi
    if has mpich; then (lose lost '--nodes=1 --ntasks-per-node=2' srun-mpich.sbatch); fi
    if has openmpi && [ -n "${BALLAST_LONG-}" ]; then (time_limit); fi
    exit 0
    ;;
two)
    # Both nodes are this machine: Open MPI's shared memory is for ranks of one node, and UCX's too.
    export UCX_TLS=^posix OMPI_MCA_btl=tcp,self
    if has mpich; then chain nodes-mpich '' srun-mpich.sbatch '--signal=TERM'; fi
    if has openmpi; then chain nodes-openmpi '' mpirun-openmpi.sbatch '--signal=USR1 --batch'; fi
    exit 0
    ;;
esac

trap 'rm -rf "$place"' EXIT
mkdir "$place/programs"
ln -s "$BALLAST_PROGRAM" "$place/programs/ballast"
ln -s "$(command -v mpirun.openmpi || echo mpirun.openmpi)" "$place/programs/mpirun"
export PATH="$place/programs:$PATH" BALLAST_PLUGINS="$(dirname "$BALLAST_PROGRAM")" XDG_CACHE_HOME="$place"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
awk 'BEGIN { srand(5); split("the river ran by old mill and on to sea light of stone", word)
    for (i = 0; i < 40000; i++) printf "%s ", word[1 + int(rand() * 13)] }' >"$place/data.txt"
ballast init "$place/model" --arch llama --hidden 24 --layers 2 --heads 3 --kv-heads 1 --ffn 40 --vocab 270 --context 32 \
    --tokenizer-data "$place/data.txt" --quiet
# shellcheck disable=SC2086
ballast train "$place/model" "$place/data.txt" -o "$place/alone" $settings --quiet
"$BALLAST_SOURCE/scripts/with-slurm.sh" 1 sh "$0" one
"$BALLAST_SOURCE/scripts/with-slurm.sh" 2 sh "$0" two
