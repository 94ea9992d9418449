#!/bin/sh
# The layout of src is within its limits, and the script finds each measure that exceeds its limit.
set -eu
measures=$BALLAST_SOURCE/scripts/measures.py

"$measures" "$BALLAST_SOURCE"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# A small sound tree: a module of two files that share a header, and the command that a plan request starts at.
plant() {
    rm -rf "$place/src"
    mkdir -p "$place/src/base" "$place/src/cli/commands"
    echo '#pragma once' >"$place/src/base/shared.h"
    for name in base/first base/second cli/commands/plan; do
        echo '#include "base/shared.h"'
        seq -f '/* %g */' 150
        printf 'static int run(struct plan_options *options) {\n    return 0;\n}\n'
    done >"$place/all"
    split -l 154 --additional-suffix=.c "$place/all" "$place/part-"
    mv "$place/part-aa.c" "$place/src/base/first.c"
    mv "$place/part-ab.c" "$place/src/base/second.c"
    mv "$place/part-ac.c" "$place/src/cli/commands/plan.c"
}
must_fail() {
    if output=$("$measures" "$place" 2>&1); then
        echo "not noticed: $1"
        exit 1
    fi
    echo "$output" | grep -q "^$1 .*FAILS" || { echo "expected '$1 ... FAILS' in: $output" && exit 1; }
}

plant
"$measures" "$place"
for number in $(seq 21); do
    mkdir "$place/src/module$number"
    cp "$place/src/base/first.c" "$place/src/module$number"
done
must_fail modules
plant
for number in $(seq 551); do
    mkdir -p "$place/src/base/$((number / 20))"
    cp "$place/src/base/first.c" "$place/src/base/$((number / 20))/$number.c"
done
must_fail files
plant
seq 100000 >"$place/src/base/first.c"
must_fail 'code lines'
plant
for name in third fourth fifth sixth; do
    : >"$place/src/base/$name.c"
done
must_fail 'median .c'
plant
sed -i 1d "$place/src/base/first.c" "$place/src/base/second.c"
must_fail 'lone headers'
plant
cp "$place/src/base/first.c" "$place/src/base/base_first.c"
must_fail 'repeated names'
plant
for number in $(seq 30); do
    cp "$place/src/base/first.c" "$place/src/base/$number.c"
done
must_fail large
plant
for number in 1 2 3 4 5 6; do
    sed -i "s/    return 0;/    lower$number(options);\n&/" "$place/src/cli/commands/plan.c"
    printf 'int upper%s(struct plan_options *options) {\n    return 0;\n}\n' $number >>"$place/src/cli/commands/plan.c"
    printf 'int lower%s(struct plan_options *options) {\n    return upper%s(options);\n}\n' $number $number \
        >>"$place/src/base/first.c"
done
must_fail climbs
