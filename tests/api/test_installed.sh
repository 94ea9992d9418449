#!/bin/sh
# Tests libballast in an installed prefix, without the source tree: exported symbols, licenses, pkg-config, the CMake
# package and the static library. The examples in C, as C++ and in Python give the bits of the command line.
# ctest: PROCESSORS 2
set -eu
fail() { echo "$*" && exit 1; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
build=$(dirname "$BALLAST_PROGRAM")
if nm -D "$build/libballast.so" | grep -q '__asan_init\|__ubsan\|__tsan'; then
    echo "a library with sanitizers needs a program that has them" && exit 77
fi
cmake --install "$build" --prefix "$place/prefix" >/dev/null
# A prefix may be moved.
mv "$place/prefix" "$place/moved"
prefix=$place/moved
library=$(dirname "$(find "$prefix" -name libballast.so)")
PKG_CONFIG_PATH=$library/pkgconfig
LD_LIBRARY_PATH=$library
XDG_CACHE_HOME=$place/cache
export PKG_CONFIG_PATH LD_LIBRARY_PATH XDG_CACHE_HOME

# What is exported is what the header declares.
nm -D --defined-only "$library/libballast.so" | awk '{ print $3 }' | sort >"$place/exported"
sed '/^typedef/d' "$prefix/include/ballast.h" | ${CC:-cc} -E -P -DBALLAST_EXPERIMENTAL - |
    grep -o 'ballast_[a-z0-9_]*(' | tr -d '(' | sort -u >"$place/declared"
[ -s "$place/declared" ] || fail "the header declares nothing"
cmp -s "$place/declared" "$place/exported" || { diff "$place/declared" "$place/exported" | head -20; fail "exported, not declared"; }
[ "$(pkg-config --modversion ballast)" = "$("$prefix/bin/ballast" version | cut -d' ' -f2)" ] || fail "two versions"
version=$(pkg-config --modversion ballast)
soname=libballast.so.${version%.*} # of 0.x with the minor version
readelf -d "$library/libballast.so" | grep -q "SONAME.*\[$soname\]" || fail "the SONAME is not $soname"
[ -e "$library/$soname" ] || fail "$soname is missing"

# No file has debug information in a release build, and none links CBC. LICENSES.md names every library.
if grep -q '^CMAKE_BUILD_TYPE:STRING=Release$' "$build/CMakeCache.txt"; then
    for file in "$prefix/bin/ballast" "$library"/libballast.so "$library"/libballast.a "$prefix"/lib/ballast/*.so; do
        [ ! -e "$file" ] || ! readelf -S "$file" | grep -q '\.debug_info' || fail "$file has debug information"
    done
fi
licenses=$(find "$prefix/share" -name LICENSES.md)
[ -e "${licenses%/*}/LICENSE" ] || fail "LICENSE is not installed"
for file in "$prefix/bin/ballast" "$library/libballast.so"; do
    for needed in $(readelf -d "$file" | sed -n 's/.*NEEDED.*\[\(lib[^]]*\)\.so.*/\1/p'); do
        [ "$needed" != libCbcSolver ] || fail "$file links CBC"
        grep -q "$needed" "$licenses" || fail "LICENSES.md lacks $needed, which $file links"
    done
done

# A program by each way to link: pkg-config for both libraries, and the CMake package.
cat >"$place/small.c" <<'END'
#include <ballast.h>
#include <stdio.h>
/* A name that the library uses inside. */
int json_read_int(void);
int json_read_int(void) { return 7; }
int main(void) {
    struct ballast_plan_options plan = BALLAST_PLAN_OPTIONS_INIT;
    struct ballast_plan_result result = BALLAST_PLAN_RESULT_INIT;
    plan.batch = 1, plan.sequence_length = 8;
    if (ballast_plan("gpt2", &plan, NULL, &result) != BALLAST_OK) return fprintf(stderr, "%s\n", ballast_error_message()), 1;
    printf("%s %lld %d\n", ballast_version(), (long long)result.parameters, json_read_int());
    return 0;
}
END
mkdir "$place/user"
cat >"$place/user/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.13)
project(user C)
find_package(Ballast ${version%.*} REQUIRED)
add_executable(by-cmake $place/small.c)
target_link_libraries(by-cmake PRIVATE Ballast::ballast)
add_executable(by-cmake-static $place/small.c)
target_link_libraries(by-cmake-static PRIVATE Ballast::ballast_static)
END
# shellcheck disable=SC2046 # flags are words
${CC:-cc} -o "$place/user/by-pkg-config" "$place/small.c" $(pkg-config --cflags --libs ballast)
# shellcheck disable=SC2046
${CC:-cc} -o "$place/user/by-pkg-config-static" "$place/small.c" $(pkg-config --cflags --libs ballast-static)
{ cmake -S "$place/user" -B "$place/user" "-DCMAKE_PREFIX_PATH=$prefix" && cmake --build "$place/user"; } >"$place/output" 2>&1 ||
    { cat "$place/output"; fail "the CMake package cannot be used"; }
for program in by-pkg-config by-pkg-config-static by-cmake by-cmake-static; do
    links=$(readelf -d "$place/user/$program" | grep -c "NEEDED.*$soname" || true)
    case $program in *-static) expected=0 ;; *) expected=1 ;; esac
    [ "$links" = $expected ] || fail "$program links libballast.so $links times"
    [ "$("$place/user/$program")" = "$version 124439808 7" ] || { "$place/user/$program"; fail "$program"; }
done
sed "s/Ballast ${version%.*}/Ballast 0.1/" "$place/user/CMakeLists.txt" >"$place/CMakeLists.txt"
! cmake -S "$place" -B "$place/other" "-DCMAKE_PREFIX_PATH=$prefix" >/dev/null 2>&1 || fail "another minor version is taken"

flags=$(pkg-config --cflags --libs ballast)
example=$BALLAST_SOURCE/examples/train
# shellcheck disable=SC2086 # flags are words
${CC:-cc} -std=c99 -Wall -Wextra -pedantic -Werror -o "$place/train" "$example.c" $flags
if command -v "${CXX:-c++}" >/dev/null; then
    # shellcheck disable=SC2086
    ${CXX:-c++} -x c++ -Wall -Wextra -pedantic -Werror -DBALLAST_EXPERIMENTAL -o "$place/train-c++" "$example.c" $flags
else
    echo "skipped: the example as C++; needs a C++ compiler"
fi

# The demo's model, smaller: scripts/demo.sh.
mkdir "$place/data"
cat "$BALLAST_SOURCE"/docs/*.md >"$place/text"
head -n -40 "$place/text" >"$place/data/train.txt"
tail -n 40 "$place/text" >"$place/data/valid.txt"
ballast=$prefix/bin/ballast
$ballast init "$place/model" --arch llama --hidden 48 --layers 2 --heads 6 --kv-heads 3 --ffn 96 --vocab 400 --context 64 \
    --tied --tokenizer-data "$place/data/train.txt" --quiet
steps=10
$ballast train "$place/model" "$place/data" -o "$place/by-program" --steps $steps --lr 3e-3 --valid-every 2 \
    --valid-batches 2 --quiet 2>"$place/output" || { cat "$place/output"; exit 1; }
$ballast generate "$place/by-program" --prompt 'The model' --tokens 40 --temperature 0.7 --seed 3 --quiet >"$place/text-by-program"

# Steps, losses, gradient norms and rates to the last bit, without times.
numbers() { sed 's/, "tokens_per_s".*//' "$1/metrics.jsonl"; }
numbers "$place/by-program" >"$place/numbers"
[ "$(grep -c val_loss "$place/numbers")" = 5 ] || fail "the program's run has no validations"
expect_same() {
    numbers "$place/by-$1" | cmp - "$place/numbers" || fail "$1: other losses than the program's"
    cmp "$place/by-$1/model/model.safetensors" "$place/by-program/model/model.safetensors" || fail "$1: other weights"
    cmp "$place/text-by-$1" "$place/text-by-program" || fail "$1: another text"
    [ -d "$place/by-$1/checkpoints/step-00000005" ] || fail "$1: was not stopped half way"
}
for language in c c++; do
    program=$place/train${language#c}
    [ $language = c ] || program=$place/train-c++
    [ -x "$program" ] || continue
    "$program" "$place/model" "$place/data" "$place/by-$language" $steps >"$place/text-by-$language" 2>"$place/output" ||
        { cat "$place/output"; fail "the example in $language failed"; }
    expect_same $language
done
if command -v python3 >/dev/null; then
    python3 "$example.py" "$place/model" "$place/data" "$place/by-python" $steps >"$place/text-by-python" 2>"$place/output" ||
        { cat "$place/output"; fail "the example in Python failed"; }
    expect_same python
else
    echo "skipped: the example in Python; needs python3"
fi

# An error is the program's exit status.
status=0
"$place/train" "$place/nothing" "$place/data" "$place/none" $steps 2>"$place/output" || status=$?
[ $status = 2 ] || fail "a model that is not there: status $status"
grep -q "$place/nothing" "$place/output" || { cat "$place/output"; fail "the message does not name the model"; }
