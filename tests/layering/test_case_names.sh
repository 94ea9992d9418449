#!/bin/sh
# Names of tests have one form: files test_<name>.c or .sh, and cases that are sentences ("resumed_runs_are_the_same").
set -eu
cd "$BALLAST_SOURCE/tests"

faults=$(
    grep -rnE 'static void (test_[a-z0-9_]*|[a-z0-9]+)\(void \*\*state\)' --include='test_*.c' . |
        sed 's/$/   (a case is named by a sentence that says what holds)/'
    find . -name '*.[ch]' -path './*/*' -not -path './support/*' -not -path './fuzz/*' -not -path './cuda_emulator/*' -not -path './nccl_double/*' \
        -not -path './machines/*' -not -name 'test_*' | sed 's/$/   (a test is called test_<name>)/'
)
if [ -n "$faults" ]; then
    printf '%s\n' "$faults"
    exit 1
fi
