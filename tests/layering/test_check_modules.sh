#!/bin/sh
# Each module's header names its files, and the check finds each kind of violation.
set -eu
check=$BALLAST_SOURCE/scripts/check-modules.sh

sh "$check" "$BALLAST_SOURCE"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# A small sound tree: seven modules of one header and two files, one subfolder with a header and one without.
plant() {
    rm -rf "$place/src" "$place/ARCHITECTURE.md"
    for module in base ir machine plan model compiler report; do
        mkdir -p "$place/src/$module"
        printf '/* A module.\n *\n * Files, in the order to read them:\n *   %s, first: what it\n *   is; second. */\n' \
            $module >"$place/src/$module/$module.h"
        echo '/* Files, in the order to read them: only the opening comment counts. */' >"$place/src/$module/first.c"
        sed 1i/**/ "$place/src/$module/first.c" >"$place/src/$module/second.h"
    done
    mkdir -p "$place/src/ir/simd" "$place/src/report/sources"
    printf '/* Files, in the order to read them: table, lanes. */\n' >"$place/src/ir/simd/table.h"
    : >"$place/src/ir/simd/lanes.c"
    printf '/* Files, in the order to read them:\n *   report, first, second: one idea;\n *   view: of sources. */\n' \
        >"$place/src/report/report.h"
    : >"$place/src/report/sources/view.js"
}
must_pass() {
    sh "$check" "$place" || { echo "faults in $1" && exit 1; }
}
must_fail() {
    if output=$(sh "$check" "$place" 2>&1); then
        echo "not noticed: $1"
        exit 1
    fi
    case $output in *"$1"*) ;; *) echo "expected '$1' in: $output" && exit 1 ;; esac
}

plant
must_pass 'a sound tree'
: >"$place/src/ir/third.c"
must_fail 'src/ir/ir.h: does not name third'
plant
: >"$place/src/ir/simd/third.c"
must_fail 'src/ir/simd/table.h: does not name third'
plant
: >"$place/src/report/sources/style.css"
must_fail 'src/report/report.h: does not name style'
plant
rm "$place/src/ir/first.c"
must_fail 'src/ir/ir.h: lists first, which is no file of the directory'
plant
cp "$place/src/ir/ir.h" "$place/src/ir/second.h"
must_fail 'src/ir: 2 headers open with a list'
plant
cp "$place/src/ir/second.h" "$place/src/ir/ir.h"
must_fail 'src/ir: 0 headers open with a list'
plant
seq 50 >>"$place/src/plan/first.c"
must_fail 'src/plan: 58 lines are more than a sixth of'
rm -rf "$place/src"
mkdir "$place/src"
must_fail 'no sources in'

plant
sh "$check" --table "$place" >"$place/ARCHITECTURE.md"
grep -q '^| `ir` | 9 | ' "$place/ARCHITECTURE.md" || { cat "$place/ARCHITECTURE.md" && exit 1; }
must_pass 'a tree next to its table'
seq 4 >>"$place/src/ir/first.c"
must_fail 'ARCHITECTURE.md: the table says 9 lines for ir; there are 13'
plant
sh "$check" --table "$place" | grep -v machine >"$place/ARCHITECTURE.md"
must_fail 'ARCHITECTURE.md: the table of modules lacks machine'
plant
sh "$check" --table "$place" >"$place/ARCHITECTURE.md"
rm -r "$place/src/ir"
must_fail 'ARCHITECTURE.md: the table has ir, which is no module'
