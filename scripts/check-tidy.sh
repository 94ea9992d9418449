#!/bin/sh
# Runs clang-tidy with the checks in .clang-tidy on the C files that changed. Fails if it finds something.
#   usage: scripts/check-tidy.sh [BASE]      BASE: the commit to compare the working tree with
# The default BASE is the merge base with origin/main, or on main itself the last tag, or the 20th commit back.
# BUILD (build) is a configured build directory; files that it does not compile are skipped. TIDY_FILES (100) limits the
# number of files, because one takes about two seconds of processor time.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
limit=${TIDY_FILES:-100}

skip() {
    echo "check-tidy: skipped: $1" >&2
    exit 0
}
command -v clang-tidy >/dev/null || skip "clang-tidy is not installed; needs clang-tidy (make deps-test)"
[ -f "$build/compile_commands.json" ] || skip "$build has no compile_commands.json; configure it with CMake"

find_base() {
    head=$(git rev-parse HEAD)
    base=$(git merge-base origin/main HEAD 2>/dev/null) || base=$head
    [ "$base" = "$head" ] || { echo "$base" && return; }
    git describe --tags --abbrev=0 'HEAD^' 2>/dev/null || git rev-parse -q --verify 'HEAD~20' ||
        git rev-list --max-parents=0 HEAD | tail -1
}
base=${1:-$(find_base)}
git rev-parse -q --verify "$base^{commit}" >/dev/null || { echo "check-tidy: no commit $base" >&2 && exit 2; }

files=$(git diff --name-only --diff-filter=d "$base" -- '*.c' | while read -r file; do
    ! grep -qF "\"file\": \"$(pwd)/$file\"" "$build/compile_commands.json" || echo "$file"
done)
count=$(printf '%s' "$files" | grep -c . || true)
[ "$count" != 0 ] || skip "no C file of $build has changed since $base"
[ "$count" -le "$limit" ] || echo "check-tidy: $limit of $count changed files are checked (TIDY_FILES=$limit)" >&2
found=$(mktemp)
trap 'rm -f "$found"' EXIT
status=0
printf '%s\n' "$files" | head -n "$limit" | xargs -P "$(nproc)" -n 1 clang-tidy -p "$build" --quiet >"$found" 2>&1 || status=1
grep -v '^[0-9]* warnings\? .*generated' "$found" || true # clang-tidy also counts the warnings that it suppresses
exit $status
