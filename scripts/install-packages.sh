#!/bin/sh
# Installs the Debian packages that Ballast needs, and only those that are missing; silent when there are none.
#   usage: scripts/install-packages.sh [--list] GROUP...      GROUP: build, libraries (a part of build), test, browser, demo
# Needs root or sudo only when something is missing. Asks nothing. With --list it prints the groups' packages and ends.
set -eu

tools='gcc libc6-dev cmake ninja-build'
# Without which nothing builds; bench/gpu/packages.sh takes them along.
libraries='pkg-config libdnnl-dev libjansson-dev libpcre2-dev libhwloc-dev libxxhash-dev libutf8proc-dev
           coinor-libcbc-dev'
# What a build does without.
optional='libprotobuf-c-dev protobuf-c-compiler liburing-dev libmicrohttpd-dev libedit-dev libopenmpi-dev libmpich-dev'
build="$tools $libraries $optional"
test='libcmocka-dev clang clang-tidy libclang-rt-14-dev libomp-dev openmpi-bin mpich python3-jsonschema'
# On x86-64 the tests also compile for arm64.
cross='gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
demo='bible-kjv bible-kjv-text'
# Some 400 MB, so the tests do without it: make test-slow opens the page in it.
browser='chromium'

list=
if [ "${1-}" = --list ]; then
    list=yes
    shift
fi
wanted=
for group in "$@"; do
    case $group in
    build) wanted="$wanted $build" ;;
    libraries) wanted="$wanted $libraries" ;;
    test)
        wanted="$wanted $test"
        if [ "$(uname -m)" = x86_64 ]; then wanted="$wanted $cross"; fi
        ;;
    browser) wanted="$wanted $browser" ;;
    demo) wanted="$wanted $demo" ;;
    *)
        echo "install-packages: '$group' is no group of packages (build, libraries, test, browser, demo)" >&2
        exit 2
        ;;
    esac
done

if [ -n "$list" ]; then
    # shellcheck disable=SC2086 # a list of names
    printf '%s\n' $wanted
    exit 0
fi

if ! command -v dpkg-query >/dev/null; then
    echo "install-packages: not a Debian system, so nothing is installed; needed are what Debian calls$wanted" >&2
    exit 0
fi

missing=
for package in $wanted; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=absent
    if [ "$state" != installed ]; then missing="$missing $package"; fi
done
if [ -z "$missing" ]; then exit 0; fi

if [ "$(id -u)" = 0 ]; then
    as_root='env'
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root='sudo -n env'
else
    echo "install-packages: these packages are missing, and installing them takes root or sudo without a password:" >&2
    echo "    sudo apt-get install$missing" >&2
    exit 1
fi

echo "Installing$missing"
apt() {
    $as_root DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # a list of names
if ! { apt update && apt install --no-install-recommends $missing; } </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "install-packages: apt-get failed (above); is there a network, and a Debian 12 mirror?" >&2
    exit 1
fi
