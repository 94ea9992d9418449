#!/bin/sh
# Links and file names in the documents are valid, and the check finds each kind of violation.
set -eu
check=$BALLAST_SOURCE/scripts/check-links.sh

sh "$check" "$BALLAST_SOURCE"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/docs" "$place/src" "$place/bench/results"
: >"$place/src/main.c"
cat >"$place/docs/other.md" <<'END'
# Other things

## What it's for: `a` & b

## Twice
## Twice
END

# write LINE...: a document with these lines
write() { printf '%s\n' "$@" >"$place/read.md"; }
must_fail() {
    if output=$(sh "$check" "$place" 2>&1); then
        echo "not noticed: $1"
        exit 1
    fi
    case $output in *"$1"*) ;; *) echo "expected '$1' in: $output" && exit 1 ;; esac
}

write '[a](docs/other.md) [b](docs/other.md#what-its-for-a--b) [c](#here), [d](https://nowhere.example/x#y)' \
    '[e](docs/other.md#twice-1) `src/main.c:12` `src/<module>/*.c` `make x`' '# Here' '    [f](in/code.md)'
printf '`src/gone.c`\n' >"$place/bench/results/old.md"
sh "$check" "$place"
write 'text' '[a](docs/gone.md)'
must_fail 'read.md:2: there is no docs/gone.md'
write '[a](docs/other.md#gone)'
must_fail 'read.md:1: no heading for #gone in ./docs/other.md'
write '[a](#gone)'
must_fail 'read.md:1: no heading for #gone in read.md'
write 'see `src/gone.c`'
must_fail 'read.md:1: there is no src/gone.c'
write '[a](src/main.c)'
echo '[up](../read.md), [here](read.md)' >"$place/docs/more.md"
must_fail 'docs/more.md:1: there is no read.md'
rm "$place"/*.md "$place"/docs/*.md "$place"/bench/results/*.md
must_fail 'no documents in'
