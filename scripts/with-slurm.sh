#!/bin/sh
# Runs a command in a private Slurm on this machine, with a controller and a daemon for each declared node.
#   usage: scripts/with-slurm.sh NODES COMMAND [WORD]...
# Needs root, slurm-wlm and munge, and exits with 77 without them. Changes nothing outside its own directory, and
# removes everything when the command ends. The exit status is the command's. Jobs use only this configuration.
set -eu
if [ $# -lt 2 ]; then
    sed -n 3p "$0" >&2
    exit 2
fi
nodes=$1
shift
for program in slurmctld slurmd munged srun; do
    if [ "$(id -u)" -ne 0 ] || ! command -v "$program" >/dev/null; then
        echo "skipped: a Slurm of its own needs root and $program (apt-get install slurm-wlm munge)" >&2
        exit 77
    fi
done

place=$(mktemp -d)
daemons=
# Cancels jobs that a failed command left, because they would outlive their daemons.
cancel_jobs() {
    scancel --user=root 2>/dev/null || true
    for _ in $(seq 50); do
        squeue --noheader 2>/dev/null | grep -q . || break
        sleep 0.2
    done
}
stop() {
    [ "${SLURM_CONF-}" != "$place/slurm.conf" ] || cancel_jobs
    # The last one started ends first.
    for process in $daemons; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$place"
}
trap stop EXIT
trap 'exit 143' TERM INT HUP
start() {
    log=$1
    shift
    "$@" >"$place/$log" 2>&1 &
    daemons="$! $daemons"
}

chmod 755 "$place"
dd if=/dev/urandom of="$place/key" bs=1024 count=1 2>/dev/null
chmod 400 "$place/key"
start munged.log munged --foreground --force --key-file="$place/key" --socket="$place/munge" --pid-file="$place/munge.pid" \
    --log-file="$place/munge.log" --seed-file="$place/munge.seed"

# Another Slurm on this machine is unlikely to use these ports.
first=$((20000 + $$ % 20000))
cores=$(($(nproc) / nodes))
cat >"$place/slurm.conf" <<CONF
ClusterName=own
SlurmctldHost=$(hostname -s)
SlurmctldPort=$first
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$place/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmctldPidFile=$place/controller.pid
SlurmdPidFile=$place/%n.pid
SlurmdSpoolDir=$place/spool-%n
StateSaveLocation=$place/state
# PMIx and Open MPI name directories and shared memory only by job and step, so two Slurms would share them.
FirstJobId=$(($$ % 60000 * 1000 + 1))
TmpFS=$place/tmp
ReturnToService=2
MpiDefault=none
NodeName=n[1-$nodes] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[$((first + 1))-$((first + nodes))] CPUs=$((cores > 0 ? cores : 1))
PartitionName=all Nodes=ALL Default=YES MaxTime=60 OverSubscribe=FORCE:8
CONF
mkdir "$place/state" "$place/tmp"
export SLURM_CONF="$place/slurm.conf"
start controller.log slurmctld -D -f "$SLURM_CONF"
for node in $(seq "$nodes"); do
    mkdir "$place/spool-n$node"
    start "n$node.log" slurmd -D -N "n$node" -f "$SLURM_CONF"
done

ready=0
for _ in $(seq 150); do
    ready=$(sinfo --noheader --states=idle --format=%D 2>/dev/null | awk '{ n += $1 } END { print n + 0 }')
    [ "$ready" -eq "$nodes" ] && break
    sleep 0.2
done
if [ "$ready" -ne "$nodes" ]; then
    echo "with-slurm: $ready of $nodes nodes are ready" >&2
    tail -n 5 "$place"/*.log >&2
    exit 1
fi
status=0
"$@" || status=$?
exit "$status"
