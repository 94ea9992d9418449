#!/bin/sh
# Runs one libFuzzer target for FUZZ_SECONDS (60): first all seeds, then the inputs found so far.
#   usage: scripts/run-fuzzer.sh FUZZ_BUILD_FOLDER NAME
# Keeps new inputs in FUZZ_BUILD_FOLDER/corpus/NAME, and a crashing one in FUZZ_BUILD_FOLDER/crash/NAME-*.
set -eu
build=$1
name=$2
source=$(cd "$(dirname "$0")/.." && pwd)
seeds=$source/tests/fuzz/corpus/$name
if [ ! -d "$seeds" ] || [ -z "$(ls -A "$seeds")" ]; then
    echo "run-fuzzer: $seeds holds no seeds" >&2
    exit 1
fi
mkdir -p "$build/corpus/$name" "$build/crash"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:allocator_may_return_null=1"
export LSAN_OPTIONS="suppressions=$source/tests/leak-suppressions.txt:print_suppressions=0"
export UBSAN_OPTIONS=print_stacktrace=1
exec "$build/fuzz/fuzz_$name" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 -verbosity=1 \
    -print_final_stats=1 -artifact_prefix="$build/crash/$name-" "$build/corpus/$name" "$seeds"
