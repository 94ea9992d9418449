#!/bin/sh
# Runs a command, for example the tests, as on another machine: scripts/odd-machine.sh one-core make test
#   usage: scripts/odd-machine.sh KIND COMMAND...
#   avx2      kernels and oneDNN limited to AVX2
#   one-core  one core of this machine
#   4g        4 GiB of memory (a cgroup, v1 or v2)
#   no-uring  io_uring disabled (on the whole machine, until the command ends)
#   no-ipv6   a network namespace whose loopback has no IPv6
#   user      a user without privileges and home directory (makes the build directory writable for all)
#   clock     a wall clock that runs backwards
# All but avx2, one-core and clock need root.
set -eu
usage() {
    sed -n '3,10s/^# *//p' "$0" >&2
    exit 2
}
[ $# -ge 2 ] || usage
kind=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)

run_in_cgroup() {
    if [ -d /sys/fs/cgroup/memory ]; then
        group=/sys/fs/cgroup/memory/ballast-odd-$$
        limit=memory.limit_in_bytes
    else
        group=/sys/fs/cgroup/ballast-odd-$$
        limit=memory.max
    fi
    mkdir "$group"
    trap 'rmdir "$group"' EXIT
    echo $((4 << 30)) >"$group/$limit"
    (
        echo 0 >"$group/cgroup.procs"
        exec "$@"
    )
}
run_without_uring() {
    setting=/proc/sys/kernel/io_uring_disabled
    before=$(cat $setting)
    trap 'echo $before >$setting' EXIT
    echo 2 >$setting
    "$@"
}
run_with_clock() {
    library=$(mktemp --suffix=.so)
    trap 'rm -f "$library"' EXIT
    cc -O1 -shared -fPIC -o "$library" "$here/tests/machines/backward_clock.c"
    LD_PRELOAD=$library "$@"
}

case $kind in
avx2) BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 exec "$@" ;;
one-core) exec taskset -c 0 "$@" ;;
4g) run_in_cgroup "$@" ;;
no-uring) run_without_uring "$@" ;;
no-ipv6)
    exec unshare --net sh -c 'ip link set lo up; echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; exec "$@"' sh "$@"
    ;;
user)
    chmod -R a+rwX "$here/build"
    exec setpriv --reuid=65534 --regid=65534 --clear-groups env -u HOME -u XDG_CACHE_HOME "$@"
    ;;
clock) run_with_clock "$@" ;;
*) usage ;;
esac
