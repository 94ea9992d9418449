#!/bin/bash
# Fetches the Debian packages that building Ballast takes beside a compiler and CMake, with all that they need, for a
# machine without a network: bench/gpu/check.sh --packages DIR; and libnccl2 where a source of apt has it. Then checks
# that nothing is missing.
#   usage: bench/gpu/packages.sh DIR
# On a machine with a network, apt and readelf; about 30 MB. Nothing is installed. Ends with 1, naming the library and who needs
# it, where one is in none of the packages.
set -euo pipefail
[ $# = 1 ] || {
    sed -n '5s/^# *//p' "$0" >&2
    exit 2
}
export LC_ALL=C
command -v readelf >/dev/null || {
    echo 'packages: readelf is not here, by which libraries are checked: apt-get install binutils' >&2
    exit 2
}
source=$(cd "$(dirname "$0")/../.." && pwd)
# What every machine with a compiler has; libltdl-dev is for programs that load plugins of their own, and brings
# autoconf and perl.
left_out='libc6 libc6-dev libgcc-s1 libstdc++6 gcc-12-base dpkg debianutils libltdl-dev libltdl7'
present='^(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so'

# The list of a build, and what that needs in turn. Compilers bring libgomp1 where they are packages, not otherwise.
wanted() {
    local names new
    new=$("$source/scripts/install-packages.sh" --list libraries && printf '%s\n' libcmocka-dev libgomp1)
    if apt-cache show libnccl2 >/dev/null 2>&1; then new="$new libnccl2"; fi
    names=$new
    while [ -n "$new" ]; do
        # shellcheck disable=SC2086 # lists of names
        new=$(apt-cache depends $new | sed -n 's/^ *|\{0,1\}\(Pre\)\{0,1\}Depends: \([a-z0-9].*\)/\2/p' | sort -u |
            grep -vxFf <(printf '%s\n' $left_out $names)) || true
        names="$names $new"
    done
    # shellcheck disable=SC2086
    printf '%s\n' $names
}

# missing ROOT: what programs or libraries under it need and neither it nor a compiler's machine has.
missing() {
    local file needed
    find "$1" -name '*.so*' -printf '%f\n' | sort -u >"$1.there"
    find "$1" -type f -name '*.so*' | while read -r file; do
        readelf -d "$file" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | while read -r needed; do
            [[ $needed =~ $present ]] || grep -qxF "$needed" "$1.there" || echo "$needed, for ${file##*/}"
        done
    done | sort -u
}

mkdir -p "$1"
cd "$1"
mapfile -t packages < <(wanted)
apt-get -q download "${packages[@]}"
root=$(mktemp -d)
trap 'rm -rf "$root" "$root.there"' EXIT
for package in ./*.deb; do dpkg -x "$package" "$root"; done
lacking=$(missing "$root")
[ -z "$lacking" ] || {
    echo "packages: these libraries are in none of the packages:" >&2
    echo "$lacking" >&2
    exit 1
}
ls -1 ./*.deb
