#!/bin/sh
# bench/gpu/check.sh without a GPU: a dry run, and runs on a device of scripts that fails at each part in turn. What is
# tested is the script: that nothing stops at a failure, and that the report is whole up to where a run ends.
# ctest: TIMEOUT 300 LABELS long
# shellcheck disable=SC2016 # scripts in quotes
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check=$BALLAST_SOURCE/bench/gpu/check.sh
mkdir -p "$work/bin" "$work/bundle/tests" "$work/bundle/bench" "$work/bundle/lib"
: >"$work/bundle/lib/libnccl.so.2"

fail() {
    echo "test_gpu_check: $*" >&2
    cat "$work/out.txt" "$work/report.md" >&2
    exit 1
}

# A command of the device. FAULT is the part at which it fails, and with it all that comes later; KILL one at which it
# ends the check itself.
fake() {
    cat >"$1" <<EOF
#!/bin/sh
case "\$*" in *importlib*) exit 0 ;; esac
[ "\${part:-}" != "\${KILL:-none}" ] || kill -\${SIGNAL:-TERM} "\$CHECK_PID"
[ "\${part:-}" != "\${FAULT:-none}" ] || : >"$work/lost"
[ ! -e "$work/lost" ] || { echo "CUDA error: an illegal memory access"; exit 1; }
$2
EOF
    chmod +x "$1"
}
metrics='{"step": 9, "loss": 3.5, "step_s": 0.05, "mfu": 0.5, "predicted_step_s": 0.05}'
fake "$work/bundle/ballast" 'for word in "$@"; do
    [ "${before:-}" != -o ] || out=$word
    before=$word
done
case $1 in
--version) echo "ballast 0" ;;
init) mkdir -p "$2" && echo "{}" >"$2/config.json" ;;
generate) echo "a text" && case "${OTHER:-}$*" in yes*cpu*) echo "of other words" ;; esac ;;
train) mkdir -p "$out/model" && : >"$out/model/model.safetensors" && for step in 1 2 3 4 5; do echo '"'$metrics'"'; done >"$out/metrics.jsonl"
    [ "$part" != gpt2-124m ] || sleep 0.6 ;;
plan) echo "          1 parameters, 7.9e+08 model FLOPs a token"
    printf "device tier, at the peak of a step\n  arena                 104857600 B     100 MiB\n" ;;
profile) echo "bf16 products    800000.0 GFLOP/s"
    echo "zeros  to memory  3000.00 GB/s after 2.0 us"
    echo "operator               first of its kind               count         ms   GFLOP/s     GB/s  spread  of all"
    echo "linear                 layer.0.mlp.c_fc                   48      0.100  494500.0    100.0      1%   30.0%" ;;
esac'
for name in kernel_reference kernel_plain kernel_updates kernel_gradients kernels kernel_runs reference policies same_bits lanes spans \
    nccl_self; do
    fake "$work/bundle/tests/test_$name" 'case ${BALLAST_TEST_CASES:-} in
list) echo "first_case"; echo "second_case" ;;
esac'
done
for name in sustained_rate product_choice attention_ways copy_ways step_ways; do
    fake "$work/bundle/bench/$name" 'echo "= a rate"'
done
# Of one case one operator of two fails, unless every call is waited for.
fake "$work/bundle/tests/test_kernels" 'case ${BALLAST_TEST_CASES:-} in
list) echo "first_case"; echo "second_case" ;;
second_case)
    case ${BROKEN:-}${CUDA_LAUNCH_BLOCKING:-}${BALLAST_TEST_PART:-} in
    yes | yesattention) echo "ERROR: attention differs"; exit 1 ;;
    yeslist) echo "part: linear"; echo "part: attention"; exit 0 ;;
    esac ;;
esac'
fake "$work/bin/compute-sanitizer" 'case $* in *test_*) echo "========= COMPUTE-SANITIZER"; echo "========= Invalid __global__ read" ;; esac'
fake "$work/bin/nvidia-smi" 'case $* in *memory.used*) cat "'"$work"'"/run/run-*/metrics.jsonl >/dev/null 2>&1 && echo 700 || echo 500 ;; *) echo "NVIDIA H100 80GB HBM3, 81559 MiB, 580.0" ;; esac'
fake "$work/bin/python3" 'case $* in
*token_file*) : >"$2" ;;
*pytorch_step*) echo "{}" ;;
*json*) echo "= 1 tokens/s" ;;
esac'
printf '#!/bin/sh\nexit 0\n' >"$work/bin/ldd"
printf '#!/bin/sh\nprintf "Avail\\n %%s\\n" "${ROOM:-64G}"\n' >"$work/bin/df"
chmod +x "$work/bin/ldd" "$work/bin/df"

# run OPTIONS...: its status in $code.
run() {
    rm -rf "$work/lost" "$work/run" "$work/report.md" "$work/report.md.tar"
    code=0
    FAULT=${FAULT:-} KILL=${KILL:-} PATH=$work/bin:$PATH sh -c 'export CHECK_PID=$$; exec bash "$@"' sh "$check" \
        --bundle "$work/bundle" --work "$work/run" -o "$work/report.md" "$@" >"$work/out.txt" 2>&1 || code=$?
}
state_of() { sed -n "s/^    $1  *\\([a-zA-Z]*\\) .*/\\1/p" "$work/report.md"; }
has_logs() { tar -tf "$work/report.md.tar" | grep -q "^logs/$1.log$"; }

# Without a card, and without a bundle, each part is there with what it lacks.
code=0
CUDA_VISIBLE_DEVICES='' bash "$check" --dry-run --work "$work/dry" -o "$work/report.md" >"$work/out.txt" 2>&1 || code=$?
[ $code = 0 ] || fail "the dry run ended with $code"
grep -q 'limits add up to [0-9]* of 540 s' "$work/report.md" || fail 'the dry run says nothing of limits'
grep -q 'kernels .*lacks .*ballast, kernel_reference' "$work/report.md" || fail 'the dry run does not say what is missing'
parts=$(sed -n 's/^    \([a-z][-a-z0-9]*\)  .*/\1/p' "$work/report.md" | grep -v '^build$')
[ "$(echo "$parts" | wc -l)" -ge 20 ] || fail "the dry run has not all parts: $parts"

# A device without a fault.
run
[ $code = 0 ] || fail "a run without a fault ended with $code"
for name in $parts; do
    [ "$(state_of "$name")" = ok ] || fail "$name is not ok without a fault"
    has_logs "$name" || fail "the log of $name is not in the archive"
done
grep -q 'gpt2-124m .* MFU 52.3% of the data sheet, 50.0% of measured.* 100 MiB beyond the arena' "$work/report.md" ||
    fail 'the steps are not worked out'
grep -q 'operators .*linear 30.0% of the step at 50% of the card' "$work/report.md" || fail 'the card has no part in operators'

# One case fails: it is named, and run again by operator, with every call waited for, and under the sanitizer.
export BROKEN=yes
run --only kernels,rates
unset BROKEN
grep -q 'kernels  *FAILED  *11 passed, 1 failed (kernels second_case)' "$work/report.md" || fail 'the failed case is not named'
[ "$(state_of rates)" = ok ] || fail 'a failed case stopped the next part'
for line in 'kernels.second_case, attention alone: ERROR: attention differs' \
    'kernels.second_case: passes with CUDA_LAUNCH_BLOCKING=1' 'sanitizer: Invalid __global__ read'; do
    grep -q "$line" "$work/run/logs/kernels.log" || fail "the log of kernels lacks: $line"
done
! grep -q 'linear alone' "$work/run/logs/kernels.log" || fail 'an operator that passes is told of'

# What time or disk are too short for is left to a smaller model.
run --only largest
grep -q 'largest  *ok  *llama-8b: ' "$work/report.md" || fail 'with time the largest model is not that of 8 billion parameters'
run --only largest --budget 60
grep -q 'largest  *ok  *llama-3b: ' "$work/report.md" || fail 'without time the largest model is not that of 3'
export ROOM=20G
run --only largest
unset ROOM
grep -q 'largest  *ok  *llama-3b: ' "$work/report.md" || fail 'without room the largest model is not that of 3'

# Text of other words than the processor's is a failure.
export OTHER=yes
run --only runs
unset OTHER
[ "$(state_of runs)" = FAILED ] || fail 'text of other words is no failure'

# A thin bundle: unpacked, with links to libraries of the machine, or told which are missing.
mkdir -p "$work/cuda"
: >"$work/cuda/libballast-borrowed.so.1"
printf '%s\n' 'libballast-borrowed.so.*' 'libballast-nowhere.so.1' >"$work/bundle/borrowed"
tar -C "$work/bundle" -cf "$work/thin.tar" .
rm "$work/bundle/borrowed"
export LD_LIBRARY_PATH="$work/cuda"
run --only libraries --bundle "$work/thin.tar"
unset LD_LIBRARY_PATH
[ "$(readlink "$work/run/bundle/lib/libballast-borrowed.so.1")" = "$work/cuda/libballast-borrowed.so.1" ] ||
    fail 'a library of the machine is not borrowed'
grep -q 'libraries  *ok .*not here: libballast-nowhere.so.1' "$work/report.md" || fail 'a library that is nowhere is not named'

# One that is lost at the first part: all others have their turn.
FAULT=libraries
run
[ $code = 1 ] || fail "a lost device gave $code"
for name in $parts; do
    [ -n "$(state_of "$name")" ] || fail "$name had no turn after the device was lost"
done
grep -q '^Ended: all parts' "$work/report.md" || fail 'a lost device ended the run'

# It fails at each part in turn, and at the next the run is ended from outside.
last=libraries
for name in $(echo "$parts" | tail -n +2); do
    FAULT=$last KILL=$name
    run --only "libraries,$last,$name"
    [ $code != 0 ] || fail "an ended run gave 0 at $name"
    [ "$last" = libraries ] || [ "$(state_of libraries)" = ok ] || fail "libraries is not ok before the fault at $last"
    [ "$(state_of "$last")" = FAILED ] || fail "$last did not fail"
    grep -q '^Ended: signal TERM' "$work/report.md" || fail "the report does not say how the run ended at $name"
    has_logs "$last" || fail "the log of $last is not in the archive"
    last=$name
done

FAULT='' KILL=''
run --only kernels,nonsense
[ $code = 2 ] || fail "a part that is none gave $code"
grep -q "no part 'nonsense'" "$work/out.txt" || fail "a part that is none is not named"

# The machine is taken away: what was written after the part before is there.
export SIGNAL=KILL
FAULT='' KILL=rates
run --only libraries,kernels,rates
unset SIGNAL
[ "$(state_of kernels)" = ok ] || fail 'a killed run left no report'
has_logs kernels || fail 'a killed run left no archive'

FAULT=$last KILL=''
run --only "$last"
[ "$(state_of "$last")" = FAILED ] || fail "$last did not fail"
echo "$(echo "$parts" | wc -l) parts"
