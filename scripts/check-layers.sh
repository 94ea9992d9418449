#!/bin/sh
# Fails where a module of src includes another that stands below it, or where two files share a name.
#   usage: scripts/check-layers.sh [ROOT]
# A module uses only its own headers and those of modules above it in this list.
set -eu
modules='base graph ops model collective cluster plan layout program sim backend comm store runtime profile search scale tokenizer template chat data session checkpoint generate train library console page cli'
root=${1:-$(dirname "$0")/..}
cd "$root"

files=$(find src -name '*.[ch]' | sort)
if [ -z "$files" ]; then
    echo "check-layers: no sources in $root/src" >&2
    exit 1
fi

# shellcheck disable=SC2086 # paths without spaces
awk -v modules="$modules" '
    BEGIN {
        count = split(modules, list, " ")
        for (i = 1; i <= count; i++) rank[list[i]] = i
    }
    function fault(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }
    FNR == 1 {
        split(FILENAME, part, "/")
        module = part[2]
        if (!(module in rank)) fault("src/" module " is not a module")
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        split($0, piece, "\"")
        used = piece[2]
        if (used == "ballast.h") next
        if (used ~ /(^|\/)\.\.?\//) { fault("\"" used "\" is not written from src"); next }
        split(used, step, "/")
        if (used !~ /\// || !(step[1] in rank)) fault("\"" used "\" names no module")
        else if (rank[step[1]] > rank[module]) fault(module " may not use " step[1] " (\"" used "\")")
    }
    END { exit bad }
' $files

twice=$(find src tests bench include -name '*.[ch]' 2>/dev/null | sed 's,.*/,,' | sort | uniq -d)
if [ -n "$twice" ]; then
    for name in $twice; do
        echo "two files are called $name:" && find src tests bench include -name "$name" 2>/dev/null | sed 's/^/    /'
    done
    exit 1
fi
