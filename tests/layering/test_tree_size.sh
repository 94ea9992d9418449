#!/bin/sh
# The tracked files stay small: a checkout and a GPU bundle fit on a small machine, and every clone copies them.
set -eu
cd "$BALLAST_SOURCE"

# Without a git checkout, every file counts that is not in a build directory.
list() {
    if [ -e .git ]; then
        git -c safe.directory='*' ls-files -z -- "$1"
    else
        find "$1" -path './build*' -prune -o \( -type f -o -type l \) -print0
    fi
}

# Bytes and path of each file, the largest first. A tracked file that is deleted has no size.
sizes() { list "$1" | xargs -0 stat -c '%s %n' 2>/dev/null | sort -rn; }

# limit DIRECTORY BYTES
limit() {
    bytes=$(sizes "$1" | awk '{ sum += $1 } END { printf "%d\n", sum }')
    if [ "$bytes" -eq 0 ]; then
        echo "$1: found no files"
        exit 1
    fi
    echo "$1: $bytes of at most $2 bytes"
    if [ "$bytes" -gt "$2" ]; then
        echo "$1 is too large; shrink or compress its largest files:"
        sizes "$1" | head
        exit 1
    fi
}

limit tests/fixtures 10000000
limit . 22000000
