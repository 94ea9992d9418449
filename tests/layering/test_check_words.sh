#!/bin/sh
# The tree uses the field's terms, and the check finds a replaced word in each scope.
set -eu
check=$BALLAST_SOURCE/scripts/check-words.sh

"$check" "$BALLAST_SOURCE"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/scripts/check_words" "$place/src/search" "$place/docs"
cat >"$place/scripts/check_words/terms" <<'END'
# a comment
term | quarks?        | both  | particle
term | by dice      | both  | stochastic
term | binder         | prose | file cabinet
term | nadir          | names | min
term | --stages       | names | --pipeline-parallel
term | member         | names | candidate | src/search/*
except | quarks? | docs/old.md | quark of sand | not the recipe's
END

plant() { # FILE LINE...
    rm -rf "$place/src" "$place/docs"
    mkdir -p "$place/src/search" "$place/docs"
    printf 'A quark of sand.\n' >"$place/docs/old.md"
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

plant src/a.c '#include "base/binder.h"' 'int binder_quarky(int at_last); /* at nadir one subquarked */' \
    'const char *text = "--stages-of-rockets";' 'int member;'
must_pass
plant src/a.c '/* One' ' * quark. */'
must_fail "src/a.c:2: 'quark' in prose: use particle"
plant src/a.c 'int x;' 'int QuarkSize(void);' 
must_fail "src/a.c:2: 'quark' in names: use particle: QuarkSize"
plant src/a.c 'int QUARKS_TOP;'
must_fail "'quarks' in names"
plant src/a.c '/* `quark_bytes` */'
must_fail "'quark' in names: use particle: quark_bytes"
plant src/a.c 'const char *key = "round-quarks";'
must_fail "'quarks' in names"
plant src/a.c 'const char *text = "%s: is no binder";'
must_fail "src/a.c:1: 'binder' in prose"
plant src/a.c 'int round_by_dice;'
must_fail "'by_dice' in names"
plant src/a.c '/* rounded by' ' * dice */'
must_fail "in prose: use stochastic"
plant src/search/a.c 'int member;'
must_fail "src/search/a.c:1: 'member' in names: use candidate"
plant src/nadir_cost.c 'int x;'
must_fail "src/nadir_cost.c:1: 'nadir' in names: use min: src/nadir_cost.c"
plant docs/a.md 'Give' '`--stages 2`.'
must_fail "docs/a.md:2: '--stages' in names"
plant docs/a.md 'A binder.'
must_fail "docs/a.md:1: 'binder' in prose"
plant docs/a.md 'The key `binder`,' 'and `any' 'binder`.'
must_pass
plant docs/a.md 'A ` starts no code.' '' 'A binder, ` neither.'
must_fail "docs/a.md:3: 'binder' in prose"
plant a.sh 'binder=x' 'echo "in $binder"'
must_pass
plant a.sh 'echo "no binder"'
must_fail "a.sh:1: 'binder' in prose"
plant docs/a.md 'quark of sand'
must_fail "docs/a.md:1: 'quark' in prose"
plant a.sh ':'
echo 'No more.' >"$place/docs/old.md"
must_end_with 2 'terms:8: the exception'
echo 'term | word' >>"$place/scripts/check_words/terms"
must_end_with 2 'terms:9: expected'
