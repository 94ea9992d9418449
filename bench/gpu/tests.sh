# shellcheck shell=bash disable=SC2154 # check.sh sets what is not set here
# Test programs on the device, every case a process of its own: an error of the device stays with its process.

# one_case PROGRAM CASE [COMMAND...]: by itself, for half of the part's time at most; the status is the program's.
one_case() {
    local program=$1 case=$2
    shift 2
    BALLAST_TEST_BACKEND=cuda BALLAST_TEST_CASES=$case timeout --foreground -k 2 "$case_limit" "$@" "$program"
}

# tell NAME CODE LOG: the line of a failure.
tell() {
    case $2 in
    124 | 137) echo "  $1: no end within $case_limit s" ;;
    139 | 134) echo "  $1: ended by signal $(($2 - 128)): $(grep -aE 'ERROR|error|BUG' "$3" | head -1 | cut -c 1-200)" ;;
    *) echo "  $1: $(grep -aE 'ERROR|error|Error' "$3" | head -1 | cut -c 1-200)" ;;
    esac
}

# again PROGRAM CASE: what fails in it, part by part (operators), then with every call waited for, then under the
# sanitizer.
again() {
    local program=$1 case=$2 name part parts first='' code
    name=${program##*/test_}.$case
    parts=$(BALLAST_TEST_PART=list one_case "$program" "$case" 2>&1 | sed -n 's/^part: //p' | sort -u)
    for part in $parts; do
        code=0
        BALLAST_TEST_PART=$part one_case "$program" "$case" >"again.$name.$part" 2>&1 || code=$?
        [ $code = 0 ] && continue
        tell "$name, $part alone" $code "again.$name.$part"
        first=${first:-$part}
    done
    [ -z "$parts" ] || [ -n "$first" ] || echo "  $name: each part alone passes"
    [ -z "$first" ] || export BALLAST_TEST_PART=$first
    code=0
    one_case "$program" "$case" env CUDA_LAUNCH_BLOCKING=1 >"again.$name.blocking" 2>&1 || code=$?
    if [ $code = 0 ]; then
        echo "  $name: passes with CUDA_LAUNCH_BLOCKING=1"
    else
        tell "$name with CUDA_LAUNCH_BLOCKING=1" $code "again.$name.blocking"
    fi
    if command -v compute-sanitizer >/dev/null; then
        one_case "$program" "$case" compute-sanitizer --error-exitcode 9 >"again.$name.sanitizer" 2>&1 || true
        sed -n '/^========= COMPUTE-SANITIZER/d;/^========= [A-Z]/{s/^=*/  sanitizer:/p;q}' "again.$name.sanitizer"
    fi
    unset BALLAST_TEST_PART
}

# run_tests NAME...: all cases of all programs first; what failed again after that.
run_tests() {
    local name program cases case code passed=0 skipped=0 failed=() case_limit=$((limit / 2 + 1))
    for name in "$@"; do
        program=$place/tests/test_$name
        cases=$(BALLAST_TEST_BACKEND=cuda BALLAST_TEST_CASES=list "$program" 2>&1) || cases=''
        if [ -z "$cases" ] || [[ $cases == skipped:* ]]; then
            echo "$name cannot list its cases: $cases"
            failed+=("$program ?")
            continue
        fi
        for case in $cases; do
            code=0
            one_case "$program" "$case" >"case.$name.$case" 2>&1 || code=$?
            if [ $code = 77 ] || grep -aq '^skipped: ' "case.$name.$case"; then
                skipped=$((skipped + 1))
            elif [ $code = 0 ]; then
                passed=$((passed + 1))
            else
                tell "$name.$case" $code "case.$name.$case"
                failed+=("$program $case")
            fi
            echo "= $passed passed, ${#failed[@]} failed${failed[0]:+ (${failed[*]##*/test_})}, $skipped skipped"
        done
    done
    for case in "${failed[@]}"; do
        # shellcheck disable=SC2086 # program and case
        [[ $case == *\? ]] || again $case
    done
    echo "= $passed passed, ${#failed[@]} failed${failed[0]:+ (${failed[*]##*/test_})}, $skipped skipped"
    [ ${#failed[@]} = 0 ] && [ $passed -gt 0 ]
}
