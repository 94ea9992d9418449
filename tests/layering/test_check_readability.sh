#!/bin/sh
# The prose of the tree is readable, and the script that says so notices what is not (scripts/check-readability.py).
set -eu
command -v python3 >/dev/null || { echo "skipped: needs python3" && exit 77; }
script=$BALLAST_SOURCE/scripts/check-readability.py
python3 -B "$script" "$BALLAST_SOURCE"

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/docs" "$tree/src/a" "$tree/scripts"
# expect TEXT: the script fails and prints it
expect() {
    if python3 -B "$script" "$tree" >"$tree/out"; then echo "'$1' is not noticed" && exit 1; fi
    grep -q -- "$1" "$tree/out" || { cat "$tree/out" && exit 1; }
}
echo 'Ballast reads the file and prints a line.' >"$tree/docs/page.md"
python3 -B "$script" "$tree"
echo 'What is left of a file is read at the end.' >"$tree/docs/page.md"
expect "begins with 'What'"
seq -s ' word ' 1 60 >"$tree/docs/page.md"
expect 'words on average\|words a sentence'
echo 'Ballast reads the file.' >"$tree/docs/page.md"
echo '/* Of two files the first wins. */' >"$tree/src/a/a.h"
expect "begins with 'Of'"
echo 'src/a (comments) | begins with | an idiom' >"$tree/scripts/readability-exceptions"
python3 -B "$script" "$tree"
rm "$tree/src/a/a.h"
status=0
python3 -B "$script" "$tree" 2>/dev/null || status=$?
[ $status = 2 ] || { echo "an exception that matches nothing gives status $status" && exit 1; }
