#!/bin/sh
# Runs a command under a memory limit, without swap.
#   usage: bench/cgroup_run.sh LIMIT COMMAND [ARGUMENT...]        LIMIT: 512M, 1.5G (powers of 1024) or bytes
# Needs root and the memory controller of cgroup v1 or v2. Afterwards says, as the last line on stderr,
#     cgroup_run: limit=BYTES peak=BYTES oom_kills=N status=N read=BYTES written=BYTES
# and exits with the command's status (137 where it was killed). The peak is all that was charged to the group, files
# in the page cache included: the kernel takes those back before it kills, so a peak at the limit alone says nothing.
# Read and written is what went from and to disks.
set -eu
if [ $# -lt 2 ]; then
    sed -n '3s/^# *//p' "$0" >&2
    exit 2
fi
fail() {
    echo "cgroup_run: $1" >&2
    exit 2
}
limit=$(numfmt --from=iec "$1" 2>/dev/null) || fail "LIMIT: '$1' is no size such as 512M or 1.5G"
shift

name=ballast-bench-$$
if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
    group=/sys/fs/cgroup/memory/$name
    limit_file=memory.limit_in_bytes peak_file=memory.max_usage_in_bytes kills_file=memory.oom_control
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
    group=/sys/fs/cgroup/$name
    limit_file=memory.max peak_file=memory.peak kills_file=memory.events
else
    fail "/sys/fs/cgroup has no memory controller that could be used"
fi
mkdir "$group" 2>/dev/null || fail "cannot make $group: are you root?"
child=
finish() {
    if [ -n "$child" ]; then kill "$child" 2>/dev/null || :; fi
    # What the command left running holds the group.
    for left in $(cat "$group/cgroup.procs"); do kill -9 "$left" 2>/dev/null || :; done
    # Gigabytes take seconds to be given back.
    for second in 1 2 3 4 5 6 7 8 9 10; do
        rmdir "$group" 2>/dev/null && return
        sleep 1
    done
    echo "cgroup_run: $group is left after $second seconds" >&2
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

echo "$limit" >"$group/$limit_file"
# Where swap is counted, none is given; else the kernel is told not to swap.
for setting in memory.swap.max:0 "memory.memsw.limit_in_bytes:$limit" memory.swappiness:0; do
    if [ -e "$group/${setting%%:*}" ]; then echo "${setting##*:}" >"$group/${setting%%:*}"; fi
done
# shellcheck disable=SC2016 # expanded by the inner shell
sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@" &
child=$!
status=0
wait "$child" || status=$?
child=
kills=$(sed -n 's/^oom_kill //p' "$group/$kills_file")
# What a child did counts as this process's own once it was waited for.
disk=$(sed -n 's/^read_bytes: /read=/p; s/^write_bytes: /written=/p' /proc/$$/io | paste -sd ' ')
echo "cgroup_run: limit=$limit peak=$(cat "$group/$peak_file") oom_kills=$kills status=$status $disk" >&2
exit "$status"
