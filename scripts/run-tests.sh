#!/bin/sh
# Runs the tests of a build directory, class by class. Then prints the slowest tests, tests that belong to another
# class, and skipped tests with their requirements.
#   usage: scripts/run-tests.sh BUILD_FOLDER "CLASS..." CTEST_ARGUMENT...
# Classes: quick (under five seconds on two cores of a server of 2020), long, and slow (only in make test-slow). A test
# is quick unless its source contains `ctest: LABELS long` (tests/CMakeLists.txt). All classes run, also after a
# failure. The exit status is that of the first class that failed.
# A skipped test prints the line "skipped: REASON; needs REQUIREMENT" (unit_skip in tests/support/unit.h; scripts print
# it themselves).
set -eu
build=$1
classes=$2
shift 2
ctest_log=$build/Testing/Temporary/LastTest.log
log=$build/Testing/Temporary/AllClasses.log
mkdir -p "$build/Testing/Temporary"
: >"$log"

status=0
for class in $classes; do
    case $class in
    quick) labels='-LE long|slow' ;;
    long) labels='-L long -LE slow' ;;
    slow) labels='-L slow' ;;
    *) echo "run-tests: no class of tests is called $class" >&2 && exit 2 ;;
    esac
    rm -f "$ctest_log"
    here=0
    # shellcheck disable=SC2086 # the labels are several words
    ctest --test-dir "$build" --output-on-failure --no-tests=error $labels "$@" || here=$?
    [ $here = 0 ] || echo "run-tests: some $class tests failed" >&2
    [ $status != 0 ] || status=$here
    [ ! -f "$ctest_log" ] || { echo "Class: $class" && cat "$ctest_log"; } >>"$log"
done
[ -s "$log" ] || exit $status

# For each test, ctest's log has "N/M Testing: NAME", the test's output, and "Test time = SECONDS sec".
list_times() {
    awk '/^Class: / { class = $2 }
        /^[0-9]+\/[0-9]+ Testing: / { name = $3; skipped = 0 }
        /^skipped: / { skipped = 1 }
        /^Test time = / { printf "%8.1f %s %s%s\n", $4, name, class, skipped ? " skipped" : "" }' "$log"
}
echo
echo 'The ten slowest tests, in seconds:'
list_times | sort -rn | head -n 10 | awk '{ printf "%8.1f  %s\n", $1, $2 }'
# Times are inexact on a busy or slow machine, so a test must miss its class by a factor of three, and never fails.
list_times | awk '
    $3 == "quick" && $1 > 15 { fault[++count] = sprintf("%8.1f  %s: is it long?", $1, $2) }
    $3 == "long" && $1 < 5 / 3 && !$4 && $2 !~ /^fuzz\./ { fault[++count] = sprintf("%8.1f  %s: is it quick?", $1, $2) }
    END {
        if (count) print "\nFar from five seconds, on the other side than their class (ctest: LABELS long):"
        for (i = 1; i <= count; i++) print fault[i]
    }'
awk '/^[0-9]+\/[0-9]+ Testing: / { name = $3 }
    sub(/^.*skipped: /, "") {
        if (!($0 in names)) reasons[++count] = $0
        if (!seen[name, $0]++) names[$0] = names[$0] " " name
    }
    END {
        if (count) print "\nSkipped, in whole or in part:"
        for (i = 1; i <= count; i++) printf "  %s\n     %s\n", reasons[i], names[reasons[i]]
    }' "$log"
exit $status
