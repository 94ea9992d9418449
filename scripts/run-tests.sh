#!/bin/sh
# Runs the tests of a build folder, then says which ten took longest, what was skipped, and what that would need.
#   usage: scripts/run-tests.sh BUILD_FOLDER CTEST_ARGUMENT...
# The status is ctest's. A test that skips prints a line "skipped: WHAT IS MISSING; needs WHAT" (unit_skip in
# tests/support/unit.h; scripts print it themselves).
set -eu
build=$1
shift
status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error "$@" || status=$?

# ctest's log has, for each test, "N/M Testing: NAME", what it printed, and "Test time = SECONDS sec".
log=$build/Testing/Temporary/LastTest.log
[ -f "$log" ] || exit $status
echo
echo 'The ten slowest tests, in seconds:'
awk '/^[0-9]+\/[0-9]+ Testing: / { name = $3 } /^Test time = / { printf "%8.1f  %s\n", $4, name }' "$log" | sort -rn |
    head -n 10
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
