#!/bin/sh
# scripts/check-tidy.sh finds a fault in a file that changed, leaves the others alone, and knows when to skip.
set -eu
for tool in clang-tidy git; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed; needs $tool (make deps-test)" && exit 77; }
done
place=$(cd "$(mktemp -d)" && pwd -P)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/scripts" "$place/src" "$place/build"
cp "$BALLAST_SOURCE/scripts/check-tidy.sh" "$place/scripts"
cp "$BALLAST_SOURCE/.clang-tidy" "$place"
cd "$place"
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
entry() { printf '{"directory": "%s", "command": "cc -c src/%s", "file": "%s/src/%s"}' "$place" "$1" "$place" "$1"; }
fault='int half(int n);\nint half(int n) {\n    if (n > 2);\n        n /= 2;\n    return n;\n}\n'
sound='int half(int n);\nint half(int n) { return n > 2 ? n / 2 : n; }\n'

must_print() { # STATUS TEXT ARGUMENT...
    status=$1 text=$2
    shift 2
    found=0
    output=$(scripts/check-tidy.sh "$@" 2>&1) || found=$?
    [ "$found" = "$status" ] || { [ "$status" = 1 ] && [ "$found" != 0 ]; } || { echo "status $found: $output" && exit 1; }
    case $output in *"$text"*) ;; *) echo "expected '$text' in: $output" && exit 1 ;; esac
}
git init -q .
printf "$fault" >src/old.c
git add -A
git commit -qm 'base'
must_print 0 'skipped: build has no compile_commands.json'
printf '[%s, %s]' "$(entry old.c | sed 's/}/}\n/')" "$(entry new.c)" >build/compile_commands.json
must_print 0 'skipped: no C file of build has changed' HEAD
printf "$sound" >src/new.c
printf "$fault" >src/other.c # this build does not compile it
git add -A
git commit -qm 'change'
must_print 0 '' HEAD~1
printf "$fault" >src/new.c
must_print 1 'src/new.c:3:15: error: potentially unintended semicolon' HEAD~1
must_print 1 'src/new.c:3:15: error: potentially unintended semicolon' # the first commit is the base
must_print 2 'no commit nowhere' nowhere
printf "$sound" >>src/old.c
printf "$sound" >src/new.c
TIDY_FILES=1 must_print 0 '1 of 2 changed files are checked' HEAD~1
