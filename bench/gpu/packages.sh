#!/bin/sh
# Fetches the Debian packages that a build needs, for a machine without a network: bench/gpu/check.sh --packages DIR.
#   usage: bench/gpu/packages.sh DIR
# On a machine with a network and apt; about 25 MB. Nothing is installed.
set -eu
[ $# = 1 ] || {
    sed -n '3s/^# *//p' "$0" >&2
    exit 2
}
mkdir -p "$1"
cd "$1"
apt-get -q download libdnnl-dev libdnnl2 libjansson-dev libjansson4 libpcre2-dev libpcre2-8-0 libhwloc-dev libhwloc15 \
    libxxhash-dev libxxhash0 libutf8proc-dev libutf8proc2 libcmocka-dev libcmocka0 pkgconf pkgconf-bin libpkgconf3
ls -1 ./*.deb
