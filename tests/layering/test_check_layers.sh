#!/bin/sh
# The sources respect the order of the modules, and the check finds each kind of violation.
set -eu
check=$BALLAST_SOURCE/scripts/check-layers.sh

sh "$check" "$BALLAST_SOURCE"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# plant FILE LINE: a small sound tree with one more file in it
plant() {
    rm -rf "$place/src" "$place/tests"
    mkdir -p "$place/src/base" "$place/src/ir" "$place/src/cli" "$place/$(dirname "$1")"
    echo '#include <stdio.h>' >"$place/src/base/low.h"
    echo '#include "base/low.h"' >"$place/src/ir/middle.c"
    printf '#include "base/low.h"\n#include "ir/high.h"\n' >"$place/src/cli/top.c"
    printf '%s\n' "$2" >"$place/$1"
}
must_fail() {
    plant "$1" "$2"
    if output=$(sh "$check" "$place" 2>&1); then
        echo "not noticed: $2 in $1"
        exit 1
    fi
    case $output in *"$3"*) ;; *) echo "$1: expected '$3' in: $output" && exit 1 ;; esac
}

plant src/ir/good.c '#include "base/low.h"'
sh "$check" "$place"

must_fail src/base/bad.c '#include "ir/high.h"' 'src/base/bad.c:1: base may not use ir'
must_fail src/ir/bad.h '  #  include "cli/top.h"' 'ir may not use cli'
must_fail src/data/bad.c '#include "train/loop.h"' 'data may not use train'
must_fail src/backend/cpu/bad.c '#include "runtime/worker.h"' 'backend may not use runtime'
must_fail src/ir/bad.c '#include "high.h"' 'names no module'
must_fail src/ir/bad.c '#include "../cli/top.h"' 'not written from src'
must_fail src/attic/bad.c '#include "base/low.h"' 'is not a module'
must_fail src/ir/bad.c '#include "ir/ops/op.h"' 'ir may not use ir/ops'
must_fail src/plan/deep/bad.c '#include "plan/layout/a.h"' 'plan may not use plan/layout'
rm -rf "$place/src"
mkdir "$place/src"
if sh "$check" "$place" 2>/dev/null; then
    echo 'an empty tree passed'
    exit 1
fi
