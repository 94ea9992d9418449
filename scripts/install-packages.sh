#!/bin/sh
# Installs the Debian packages that Ballast needs and that are missing. Prints nothing if none is missing.
#   usage: scripts/install-packages.sh [--list | --check] GROUP...
#   GROUP: build, libraries (a part of build), test, browser, python, demo
# Installing needs root or sudo, and never asks a question. --list prints the packages of the groups. --check installs
# nothing: if the compiler, CMake or Ninja is missing, it names the missing packages and ends with status 1.
set -eu

tools='gcc libc6-dev cmake ninja-build'
# Required.
libraries='pkg-config libdnnl-dev libjansson-dev libpcre2-dev libhwloc-dev libxxhash-dev libutf8proc-dev
           coinor-libcbc-dev'
# A build without these lacks features, which its summary names.
optional='libprotobuf-c-dev protobuf-c-compiler liburing-dev libmicrohttpd-dev libedit-dev libopenmpi-dev libmpich-dev'
build="$tools $libraries $optional"
test='libcmocka-dev mandoc zsh fish clang clang-tidy libclang-rt-14-dev libomp-dev openmpi-bin mpich python3-jsonschema'
# On x86-64 the tests also compile for arm64.
cross='gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
demo='bible-kjv bible-kjv-text'
# About 400 MB, so only make test-slow uses it.
browser='chromium'
# For the virtual environment of make deps-python.
python='python3-venv'

mode=install
case ${1-} in
--list | --check)
    mode=${1#--}
    shift
    ;;
esac
has() { command -v "$1" >/dev/null; }
if [ $mode = check ] && has cmake && has ninja && { [ -n "${CC-}" ] || has cc; }; then exit 0; fi
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
    python) wanted="$wanted $python" ;;
    demo) wanted="$wanted $demo" ;;
    *)
        echo "install-packages: '$group' is no group of packages (build, libraries, test, browser, python, demo)" >&2
        exit 2
        ;;
    esac
done

if [ $mode = list ]; then
    # shellcheck disable=SC2086 # a list of names
    printf '%s\n' $wanted
    exit 0
fi

if ! has dpkg-query; then
    echo "install-packages: this is not a Debian system; install what Debian calls$wanted" >&2
    if [ $mode = check ]; then exit 1; fi
    exit 0
fi

missing=
for package in $wanted; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=absent
    if [ "$state" != installed ]; then missing="$missing $package"; fi
done
if [ $mode = check ]; then
    echo "Ballast needs a C compiler, CMake and Ninja. These packages are missing:$missing" >&2
    echo '`make deps` installs them.' >&2
    exit 1
fi
if [ -z "$missing" ]; then exit 0; fi

if [ "$(id -u)" = 0 ]; then
    as_root='env'
elif has sudo && sudo -n true 2>/dev/null; then
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
