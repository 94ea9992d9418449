#!/bin/sh
# Fails if a document links to a missing file or heading, or names a missing file of the tree.
#   usage: scripts/check-links.sh [ROOT]
# Checks all *.md, without following links to the web. Names in backquotes count if they begin with a directory of the
# tree (`src/plan/plan.h`, `tests/cli`) and contain no placeholder. Dated results (bench/results) may name files that
# existed then.
set -eu
cd "${1:-$(dirname "$0")/..}"

documents=$(find . -name '*.md' -not -path './build*' -not -path './.git/*' -not -path './tests/fixtures/*' | sed 's,^\./,,' |
    sort)
if [ -z "$documents" ]; then
    echo "check-links: no documents in $(pwd)" >&2
    exit 1
fi

# Prints "LINE link TARGET" and "LINE name PATH" for a document. Code blocks contain no links.
targets() { # DOCUMENT
    awk -v results="$(case $1 in bench/results/*) echo 1 ;; *) echo 0 ;; esac)" '
        /^```/ { code = !code }
        code || /^    / { next }
        {
            line = $0
            while (match(line, /`[^`]*`/)) {
                name = substr(line, RSTART + 1, RLENGTH - 2)
                line = substr(line, 1, RSTART - 1) "_" substr(line, RSTART + RLENGTH)
                sub(/:[0-9]+$/, "", name)
                if (!results && name ~ /^(src|tests|docs|scripts|bench|cmake|include|examples)\/[A-Za-z0-9_.\/-]*$/)
                    print FNR, "name", name
            }
            while (match(line, /\]\([^)]*\)/)) {
                print FNR, "link", substr(line, RSTART + 2, RLENGTH - 3)
                line = substr(line, RSTART + RLENGTH)
            }
        }' "$1"
}
# Prints the anchors of a document, as GitHub generates them.
anchors() { # DOCUMENT
    awk '
        /^```/ { code = !code }
        !code && /^#+ / {
            sub(/^#+ +/, "")
            gsub(/\[|\]\([^)]*\)/, "")
            text = tolower($0)
            gsub(/[^a-z0-9 _-]/, "", text)
            gsub(/ /, "-", text)
            print seen[text]++ ? text "-" seen[text] - 1 : text
        }' "$1"
}
check() { # DOCUMENT LINE KIND TARGET
    case $3:$4 in
    name:*)
        [ -e "$4" ] || echo "$1:$2: there is no $4"
        return
        ;;
    link:http://* | link:https://* | link:mailto:*) return ;;
    esac
    file=${4%%#*}
    if [ -n "$file" ]; then file=$(dirname "$1")/$file; else file=$1; fi
    if [ ! -e "$file" ]; then
        echo "$1:$2: there is no $4"
        return
    fi
    case $4 in
    *.md#* | \#*) anchors "$file" | grep -qxF "${4#*#}" || echo "$1:$2: no heading for #${4#*#} in $file" ;;
    esac
}

faults=$(
    for document in $documents; do
        targets "$document" | while read -r line kind target; do check "$document" "$line" "$kind" "$target"; done
    done
)
if [ -n "$faults" ]; then
    printf '%s\n' "$faults"
    exit 1
fi
