#!/bin/sh
# No function of src is external without need, and the check finds each kind of violation.
set -eu
check=$BALLAST_SOURCE/scripts/check-unused.sh

sh "$check" "$(dirname "$BALLAST_PROGRAM")"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/src/base" "$place/src/cli" "$place/src/gpu" "$place/tests" "$place/build"

# A small sound tree: one file uses another, a test calls a function that its file needs too, and a source that is not
# compiled uses a third.
plant() {
    rm -rf "$place/build/src"
    mkdir -p "$place/build/src/base" "$place/build/src/cli"
    cat >"$place/src/base/low.c" <<'END'
int low_value(void), low_part(void), low_rate(void);
int low_part(void) { return 1; }
int low_value(void) { return low_part(); }
int low_rate(void) { return 2; } /* low_rate is for GPUs */
END
    echo 'int low_value(void); int main(void) { return low_value(); }' >"$place/src/cli/main.c"
    echo 'int low_rate(void); static int rate(void) { return low_rate(); }' >"$place/src/gpu/rate.cu"
    echo 'int low_part(void); int test(void) { return low_part(); }' >"$place/tests/test_low.c"
}
compile() {
    for name in base/low cli/main; do cc -c "$place/src/$name.c" -o "$place/build/src/$name.c.o"; done
}
must_fail() {
    compile
    if output=$(sh "$check" "$place/build" "$place" 2>&1); then
        echo "not noticed: $1"
        exit 1
    fi
    case $output in *"$1"*) ;; *) echo "expected '$1' in: $output" && exit 1 ;; esac
}

plant
compile
sh "$check" "$place/build" "$place"
rm "$place/build/src/base/low.c.o" "$place/build/src/cli/main.c.o"
if sh "$check" "$place/build" "$place" 2>/dev/null; then
    echo 'a build without objects passed'
    exit 1
fi
echo 'int low_spare; /* low_spare is not used */' >>"$place/src/base/low.c"
must_fail 'src/base/low.c: low_spare: nothing uses it'
plant
echo 'int low_probe(void) { return 3; }' >>"$place/src/base/low.c"
echo 'int low_probe(void); int probe(void) { return low_probe(); }' >>"$place/tests/test_low.c"
must_fail 'src/base/low.c: low_probe: only tests and benchmarks use it'
plant
: >"$place/tests/test_low.c"
must_fail 'src/base/low.c: low_part: only its own file uses it'
plant
: >"$place/src/gpu/rate.cu"
must_fail 'src/base/low.c: low_rate: '
