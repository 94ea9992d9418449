#!/bin/sh
# After the steps in the README (its line for the PATH, and an installation into a directory) a shell finds the program.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
build=$(dirname "$BALLAST_PROGRAM")

# The README's line, where the build is called build.
line=$(sed -n 's/^    \(export PATH=.*build:.*\)/\1/p' "$BALLAST_SOURCE/README.md")
[ -n "$line" ] || { echo "the README has no line for the PATH" && exit 1; }
ln -s "$build" "$place/build"
found=$(cd "$place" && sh -c "$line; command -v ballast")
[ "$found" = "$place/build/ballast" ] || { echo "after $line: ballast is $found" && exit 1; }

cmake --install "$build" --prefix "$place/prefix" >/dev/null
version=$("$place/prefix/bin/ballast" version)
case $version in "ballast "*) ;; *) echo "the installed program says: $version" && exit 1 ;; esac

# The demo says how to call it, too.
grep -q 'export PATH=' "$BALLAST_SOURCE/scripts/demo.sh" || { echo "the demo does not name the PATH" && exit 1; }
