#!/bin/sh
# Runs a command under a memory limit, without swap.
#   usage: bench/cgroup_run.sh LIMIT COMMAND [ARGUMENT...]        LIMIT: 512M, 1.5G (powers of 1024) or bytes
# Needs root and the memory controller of cgroup v1 or v2. Prints as the last line on stderr
#     cgroup_run: limit=BYTES peak=BYTES oom_kills=N status=N read=BYTES written=BYTES
# and exits with the command's status (137 if it was killed). The peak includes the page cache. The kernel frees that
# before it kills, so a peak at the limit does not show a lack of memory. `read` and `written` count disk transfers.
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
    # Processes that the command left running keep the group alive.
    for left in $(cat "$group/cgroup.procs"); do kill -9 "$left" 2>/dev/null || :; done
    # Freeing gigabytes takes seconds.
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
# Sets the swap limit to 0 if the kernel counts swap, else disables swapping.
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
# The kernel adds a child's transfers to this process when it is waited for.
disk=$(sed -n 's/^read_bytes: /read=/p; s/^write_bytes: /written=/p' /proc/$$/io | paste -sd ' ')
echo "cgroup_run: limit=$limit peak=$(cat "$group/$peak_file") oom_kills=$kills status=$status $disk" >&2
exit "$status"
