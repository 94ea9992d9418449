#!/bin/sh
# Fails if a directory of src includes one that stands below it in the list.
#   usage: scripts/check-layers.sh [ROOT]
# A directory may use only its own headers and those of directories above it in this list. A directory that is not
# listed belongs to its parent.
set -eu
order='base ir ir/ops collective machine plan plan/layout model compiler compiler/verify search/sim search search/scale
       backend comm runtime/store runtime profile text/tokenizer text/template text/chat data session session/checkpoint generate train
       report/console report/page api cli'
root=${1:-$(dirname "$0")/..}
cd "$root"

files=$(find src -name '*.[ch]' | sort)
if [ -z "$files" ]; then
    echo "check-layers: no sources in $root/src" >&2
    exit 1
fi

# shellcheck disable=SC2086 # paths without spaces
awk -v order="$(echo $order)" '
    BEGIN {
        count = split(order, list, " ")
        for (i = 1; i <= count; i++) rank[list[i]] = i
    }
    # The listed directory that contains the file, or nothing.
    function listed(path) {
        while (sub(/\/[^\/]*$/, "", path)) if (path in rank) return path
        return ""
    }
    function fault(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }
    FNR == 1 {
        module = listed(substr(FILENAME, 5))
        if (!module) { split(FILENAME, part, "/"); fault("src/" part[2] " is not a module") }
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        split($0, piece, "\"")
        used = piece[2]
        if (used == "ballast.h") next
        if (used ~ /(^|\/)\.\.?\//) { fault("\"" used "\" is not written from src"); next }
        owner = listed(used)
        if (!owner) fault("\"" used "\" names no module")
        else if (rank[owner] > rank[module]) fault(module " may not use " owner " (\"" used "\")")
    }
    END { exit bad }
' $files
