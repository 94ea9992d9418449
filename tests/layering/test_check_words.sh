#!/bin/sh
# The tree uses the field's terms, and the check that says so finds a replaced word in each scope.
set -eu
check=$BALLAST_SOURCE/scripts/check-words.sh

#"$check" "$BALLAST_SOURCE"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/scripts/check_words" "$place/src/search" "$place/docs"
cat >"$place/scripts/check_words/terms" <<'END'
# a comment
term | grains?        | both  | micro-batch
term | by chance      | both  | stochastic
term | folder         | prose | directory
term | least          | names | min
term | --stages       | names | --pipeline-parallel
term | member         | names | candidate | src/search/*
except | grains? | docs/old.md | grain of sand | not the recipe's
END

plant() { # FILE LINE...
    rm -rf "$place/src" "$place/docs"
    mkdir -p "$place/src/search" "$place/docs"
    printf 'A grain of sand.\n' >"$place/docs/old.md"
    file=$1
    shift
    printf '%s\n' "$@" >"$place/$file"
}
must_end_with() { # STATUS TEXT
    status=0
    printed=$("$check" "$place" 2>&1) || status=$?
    [ $status = "$1" ] || { echo "status $status instead of $1: $printed" && exit 1; }
    case $printed in *"$2"*) ;; *) echo "expected '$2' in: $printed" && exit 1 ;; esac
}
must_pass() { must_end_with 0 ''; }
must_fail() { must_end_with 1 "$1"; }

plant src/a.c '#include "base/folder.h"' 'int folder_grainy(int at_last); /* at least one migraine */' \
    'const char *text = "--stages-of-rockets";' 'int member;'
must_pass
plant src/a.c '/* One' ' * grain. */'
must_fail "src/a.c:2: 'grain' in prose: use micro-batch"
plant src/a.c 'int x;' 'int GrainSize(void);' 
must_fail "src/a.c:2: 'grain' in names: use micro-batch: GrainSize"
plant src/a.c 'int GRAINS_MOST;'
must_fail "'grains' in names"
plant src/a.c '/* `grain_bytes` */'
must_fail "'grain' in names: use micro-batch: grain_bytes"
plant src/a.c 'const char *key = "round-grains";'
must_fail "'grains' in names"
plant src/a.c 'const char *text = "%s: is no folder";'
must_fail "src/a.c:1: 'folder' in prose"
plant src/a.c 'int round_by_chance;'
must_fail "'by_chance' in names"
plant src/a.c '/* rounded by' ' * chance */'
must_fail "in prose: use stochastic"
plant src/search/a.c 'int member;'
must_fail "src/search/a.c:1: 'member' in names: use candidate"
plant src/least_cost.c 'int x;'
must_fail "src/least_cost.c:1: 'least' in names: use min: src/least_cost.c"
plant docs/a.md 'Give' '`--stages 2`.'
must_fail "docs/a.md:2: '--stages' in names"
plant docs/a.md 'A folder.'
must_fail "docs/a.md:1: 'folder' in prose"
plant a.sh 'folder=x' 'echo "in $folder"'
must_pass
plant a.sh 'echo "no folder"'
must_fail "a.sh:1: 'folder' in prose"
plant docs/a.md 'grain of sand'
must_fail "docs/a.md:1: 'grain' in prose"
plant a.sh ':'
echo 'No more.' >"$place/docs/old.md"
must_end_with 2 'terms:8: the exception'
echo 'term | word' >>"$place/scripts/check_words/terms"
must_end_with 2 'terms:9: expected'
