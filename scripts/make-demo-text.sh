#!/bin/sh
# Writes the demo's text: the King James Bible as running prose, about 4 MB of plain ASCII.
#
#     scripts/make-demo-text.sh OUT.txt
#
# Needs the Debian packages bible-kjv and bible-kjv-text (scripts/install-packages.sh demo). Each chapter is a heading
# ("Genesis 1") and paragraphs, with a blank line between them, without verse numbers. The package's text does not mark
# paragraphs, so a paragraph ends at the first verse that closes a sentence after 400 characters.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 OUT.txt" >&2
    exit 2
fi
out=$1
if ! command -v bible >/dev/null; then
    echo "$0: the command 'bible' is missing: run scripts/install-packages.sh demo" >&2
    exit 1
fi

trap 'rm -f "$out.new" "$out.raw"' EXIT
trap 'exit 1' HUP INT TERM
# In two steps, so that a failure of `bible` is noticed. No verse exceeds this line length, so each takes one line.
bible -l100000 gen1:1-rev22:21 >"$out.raw" </dev/null
LC_ALL=C awk '
    function end_paragraph() {
        if (paragraph != "") print paragraph "\n"
        paragraph = ""
    }
    /^ +[0-9]+ / {
        sub(/^ +[0-9]+ +/, "")
        gsub(/  +/, " ")
        sub(/ +$/, "")
        paragraph = paragraph (paragraph == "" ? "" : " ") $0
        if (length(paragraph) >= 400 && $0 ~ /[.?!][)]?$/) end_paragraph()
        next
    }
    /[^ ]/ {
        end_paragraph()
        print $0 "\n"
    }
    END { end_paragraph() }
' "$out.raw" >"$out.new"

if ! grep -q '^In the beginning God created' "$out.new" || [ "$(wc -c <"$out.new")" -lt 4000000 ]; then
    echo "$0: 'bible' printed something else than expected" >&2
    exit 1
fi
mv "$out.new" "$out"
