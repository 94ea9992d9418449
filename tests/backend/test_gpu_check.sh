#!/bin/sh
# Tests bench/gpu/first.sh and second.sh on a fake device made of scripts: without a fault, with a failure of each part
# in turn, terminated in each part, and killed. The report must be complete up to the point where a script ends.
# ctest: TIMEOUT 1200 LABELS long
# shellcheck disable=SC2016 # scripts in quotes
set -eu
work=$(mktemp -d)
# Killed calls leave their models.
trap 'xargs -r rm -rf <"$work/models" 2>/dev/null; rm -rf "$work"' EXIT
gpu=$BALLAST_SOURCE/bench/gpu
mkdir -p "$work/bin" "$work/bundle/tests" "$work/bundle/bench" "$work/bundle/lib" "$work/cuda" "$work/newer" "$work/llmc"
printf '%s\n' 'libcublasLt.so.13' 'libnccl.so.2' 'libballast-nowhere.so.1' >"$work/bundle/borrowed"
: >"$work/bundle/lib/libnccl.so.2"

fail() {
    echo "test_gpu_check: $*" >&2
    cat "$work/out.txt" "$work"/out/*.md >&2
    exit 1
}

# A command of the device. FAULT is the part at which it fails, and with it all later ones; KILL one at which it ends the
# call itself.
fake() {
    cat >"$1" <<EOF
#!/bin/sh
case "\$*" in *importlib*) exit 0 ;; esac
[ "\${part:-}" != "\${KILL:-none}" ] || kill -\${SIGNAL:-TERM} "\$CALL_PID"
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
echo "$*" >>"'"$work"'/commands"
case $1 in
--version) echo "ballast 0" ;;
init) mkdir -p "$2" && echo "{}" >"$2/config.json" && case $2 in /dev/shm/*) dirname "$2" >>"'"$work"'/models" ;; esac ;;
generate) echo "a text" && case "${OTHER:-}$*" in yes*cpu*) echo "of other words" ;; esac ;;
train) mkdir -p "$out/model" && : >"$out/model/model.safetensors" && for step in 1 2 3 4 5; do echo '"'$metrics'"'; done >"$out/metrics.jsonl"
    [ "$part" != gpt2-124m ] || sleep 0.6 ;;
plan) printf "  time                    0.0550 s, 595,782 tokens/s\ndevice tier, at the peak of a step\n  arena                 104,857,600 B     100 MiB\n" ;;
profile) echo "bf16 products    800000.0 GFLOP/s"
    echo "zeros  to memory  3000.00 GB/s after 2.0 us"
    echo "operator               first of its kind               count         ms   GFLOP/s     GB/s  spread  of all"
    echo "linear                 layer.0.mlp.c_fc                   48      0.100  494500.0    100.0      1%   30.0%" ;;
esac'
for name in kernel_reference kernel_plain kernel_updates kernel_gradients kernel_attention kernel_muon kernel_runs reference \
    same_bits lanes graph_segments nccl_self; do
    fake "$work/bundle/tests/test_$name" 'case ${BALLAST_TEST_CASES:-} in
list) echo "first_case"; echo "second_case" ;;
esac'
done
fake "$work/bundle/tests/test_policies" 'case ${BALLAST_TEST_SUBJECTS:-} in
short-list) printf "%s\n" "gpt2 in fp32" "llama in fp32" ;;
list) printf "%s\n" "gpt2 in fp32" "llama in fp32" "opt in bf16" ;;
"${UNEQUAL:-none}") echo "ERROR: step 1: loss 2, plain run 1" && exit 1 ;;
esac
case ${BALLAST_TEST_CASES:-} in list) echo subjects_give_the_same_bits ;; esac'
for name in sustained_rate product_choice attention_ways copy_ways step_ways; do
    fake "$work/bundle/bench/$name" 'echo "= a rate"'
done
fake "$work/bundle/bench/random_tokens" ': >"$1"'
printf '#!/bin/sh\nfor file; do case $(readlink -f $file) in *newer*) echo 130200 $file ;; *) echo 130001 $file ;; esac; done\n' >"$work/bundle/bench/library_version"
# Of one case one operator of two fails, unless every launch is waited for.
fake "$work/bundle/tests/test_kernels" 'case ${BALLAST_TEST_CASES:-} in
list) echo "first_case"; echo "second_case"; exit ;;
first_case) exit ;;
esac
case ${BROKEN:-}${CUDA_LAUNCH_BLOCKING:-}${BALLAST_TEST_PART:-} in
yes | yesattention) echo "ERROR: attention differs"; exit 1 ;;
yeslist) echo "part: linear"; echo "part: attention"; exit 0 ;;
esac
[ -z "${HANG:-}" ] || sleep 60'
fake "$work/bin/compute-sanitizer" 'case $* in *test_kernels*) echo "========= COMPUTE-SANITIZER"; echo "========= Invalid __global__ read" ;; esac
[ -z "${REFUSED:-}" ] || { echo "========= Device not supported"; exit 1; }'
fake "$work/bin/nvidia-smi" 'case $* in
*memory.used*) cat "'"$work"'"/run/run-*/metrics.jsonl >/dev/null 2>&1 && echo 700 || echo 500 ;;
*utilization*) echo "2026/11/27 18:00:00, 1755, 650.11, 61, 0x0000000000000004, 99" ;;
*) echo "NVIDIA H100 80GB HBM3, 81559 MiB, 580.0" ;;
esac'
fake "$work/bin/python3" 'case $* in
*pytorch_step*) echo "{}" ;;
*statistics*) echo "1 tokens/s" ;;
esac'
fake "$work/llmc/train_gpt2cu" 'echo "step 12/12 | 58.1 ms | 563210 tok/s"'
printf '#!/bin/sh\nexit 0\n' >"$work/bin/ldd"
chmod +x "$work/bin/ldd" "$work/bundle/bench/library_version"
: >"$work/cuda/libcublasLt.so.13"
: >"$work/newer/libcublasLt.so.13"
export LD_LIBRARY_PATH="$work/cuda:$work/newer" LLMC="$work/llmc"

# run CALL OPTIONS...: its status in $code.
run() {
    call=$1
    shift
    rm -rf "$work/lost" "$work/run" "$work/out" "$work/commands"
    rm -f "$work/bundle/lib/libcublasLt.so.13" "$work/bundle/fixtures"
    code=0
    OUT=$work/out FAULT=${FAULT:-} KILL=${KILL:-} PATH=$work/bin:$PATH sh -c 'export CALL_PID=$$; exec bash "$@"' sh \
        "$gpu/$call.sh" --bundle "$work/bundle" --work "$work/run" "$@" >"$work/out.txt" 2>&1 || code=$?
    report=$work/out/$call.md
}
state_of() { sed -n "s/^    $1  *\\([a-zA-Z]*\\) .*/\\1/p" "$report"; }
has() { grep -q "$1" "$report"; }
has_logs() { tar -tzf "$work/out/$call.tar.gz" | grep -q "^./$1$"; }
parts_of() { sed -n "/^$1_parts/,/^}/s/^    \\(check\\|measure\\) \\([a-z0-9-]*\\) .*/\\2/p" "$gpu/list.sh"; }

# The limits of all parts fit into the two calls' seconds: 240 and 420, of which unpacking takes some.
[ "$(sed -n '/^first_parts/,/^}/p' "$gpu/list.sh" | sed -n 's/^    [a-z]* [a-z0-9-]* \([0-9]*\) .*/\1/p' | awk '{ s += $1 } END { print s }')" -le 225 ] ||
    fail 'the parts of the first call take more than 225 s'
[ "$(sed -n '/^second_parts/,/^}/p' "$gpu/list.sh" | sed -n 's/^    [a-z]* [a-z0-9-]* \([0-9]*\) .*/\1/p' | awk '{ s += $1 } END { print s }')" -le 400 ] ||
    fail 'the parts of the second call take more than 400 s'

# Without a GPU it says so, and without a bundle what makes it.
CUDA_VISIBLE_DEVICES='' PATH=/usr/bin:/bin bash "$gpu/first.sh" --bundle "$work/bundle" --work "$work/none" --out "$work/none" >"$work/out.txt" 2>&1 && fail 'a GPU was found'
grep -q 'no NVIDIA GPU here; --rehearse' "$work/out.txt" || fail 'nothing said of the GPU'
run first --bundle "$work/nothing.tar.xz"
[ $code = 2 ] && grep -q 'bench/gpu/bundle.sh makes it' "$work/out.txt" || fail 'a missing bundle is not named'

# A device without a fault: both calls are green, and each part has a row and a log.
for call in first second; do
    run $call
    [ $code = 0 ] || fail "$call without a fault ended with $code"
    for name in $(parts_of $call); do
        [ "$(state_of "$name")" = ok ] || fail "$name is not ok without a fault"
        has_logs "$name.log" || fail "the log of $name is not in the archive"
    done
    has_logs clocks.csv || fail 'the clocks are not in the archive'
    has 'MemTotal [0-9.]* GiB' || fail 'the report does not say how much memory the machine has'
    has 'Clocks while busy: 1755 to 1755 MHz.* 0x0000000000000004 in' || fail 'the clocks are not summed up'
    while read -r model; do [ ! -e "$model" ] || fail "$model is left in memory"; done <"$work/models"
done
has 'peer .*563210 tok/s' || fail "llm.c's figure is missing"
has 'subjects  *ok .*1 subjects of 1 have equal bits' || fail 'the second call does not take the other subjects'
run first
has 'cuBLASLt 130200; not here: libballast-nowhere.so.1' || fail 'the newest cuBLASLt is not preferred, or a missing library not named'
has 'bits  *ok .*2 subjects of 2 have equal bits' || fail 'the subjects are not counted'
# 6 x (12 layers x (4 + 8) x 768^2 + 768 x 50257) + 6 x 12 x 768 x 1024 FLOPs, 32768 tokens in 0.05 s, of 989e12.
has 'gpt2-124m .* MFU 52.9% of the data sheet, 50.0% of measured; predicted 0.0550 s (+10%).* 100 MiB beyond the arena' || fail 'the steps are not worked out'
has 'operators .*linear 30.0% of the step at 50% of the GPU' || fail 'the GPU has no part in operators'
grep -q '^init /dev/shm/ballast-gpu-[^/]*/gpt2 .*--dtype bf16' "$work/commands" || fail 'the model is not in memory, or not in bf16'
grep -q '^train .*--device-memory=76G' "$work/commands" || fail 'the first run leaves no memory to CUDA'

# One case fails: it is named, and the call is red; the other parts have their turn. Then it is narrowed down.
export BROKEN=yes
run first --only kernels,operators
[ $code = 1 ] || fail "a failed case gave $code"
has 'kernels  *FAILED  *programs that failed: kernels; cases: 1 passed, 1 failed (kernels second_case)' || fail 'the failed case is not named'
[ "$(state_of operators)" = ok ] || fail 'a failed case stopped the next part'
run second --bisect kernels
unset BROKEN
[ "$(state_of kernels)" = FAILED ] || fail 'the bisected part does not fail'
for line in 'kernels.second_case, attention alone: ERROR: attention differs' \
    'kernels.second_case: passes with CUDA_LAUNCH_BLOCKING=1' 'sanitizer: Invalid __global__ read'; do
    grep -q "$line" "$work/run/second/kernels.log" || fail "the log of kernels lacks: $line"
done
! grep -q 'linear alone' "$work/run/second/kernels.log" || fail 'an operator that passes is named'

# A subject with other bits is a failure; so are generated words that are not the CPU's.
export UNEQUAL='llama in fp32'
run first --only bits
[ "$(state_of bits)" = FAILED ] && grep -q 'failed llama in fp32: ERROR: step 1' "$work/run/first/bits.log" || fail 'other bits are no failure'
unset UNEQUAL
export OTHER=yes
run second --only runs
unset OTHER
[ "$(state_of runs)" = FAILED ] || fail 'text of other words is no failure'

# A check that hangs is red; a sanitizer that the machine refuses is not.
export HANG=yes
run first --only kernels,operators --budget 26
unset HANG
[ $code = 1 ] && [ "$(state_of kernels)" = FAILED ] && has 'kernels .*no end within\|kernels .*after' || fail 'a check that hangs is no failure'
export REFUSED=yes
run second --only memcheck,racecheck
unset REFUSED
[ $code = 0 ] && has 'memcheck  *lacks .*does not work here: ========= Device not supported' || fail 'a refused sanitizer is not named'

# The device is lost at the first part: all others have their turn.
FAULT=libraries
run first
[ $code = 1 ] || fail "a lost device gave $code"
for name in $(parts_of first); do [ -n "$(state_of "$name")" ] || fail "$name had no turn after the device was lost"; done
has '^Ended: all parts' || fail 'a lost device ended the call'

# The device fails at each part in turn, and at the next one the call is ended from outside.
for call in first second; do
    last=''
    for name in $(parts_of $call); do
        if [ -n "$last" ]; then
            FAULT=$last KILL=$name
            run $call --only "$last,$name"
            [ $code != 0 ] || fail "an ended call gave 0 at $name"
            # The sanitizer of a lost device is one that does not work.
            case $last$(state_of "$last") in *FAILED | memchecklacks | racechecklacks) ;; *) fail "$last did not fail" ;; esac
            has '^Ended: signal TERM' || fail "the report does not say how the call ended at $name"
            has_logs "$last.log" || fail "the log of $last is not in the archive"
        fi
        last=$name
    done
done

FAULT='' KILL=''
run first --only kernels,nonsense
[ $code = 2 ] && grep -q "unknown part 'nonsense'" "$work/out.txt" || fail 'an unknown part is not named'

# The call is cut off: the report and archive of the parts before are there, and it names the part that ran.
export SIGNAL=KILL
KILL=operators
run first --only libraries,kernels,operators
unset SIGNAL
[ "$(state_of kernels)" = ok ] || fail 'a killed call left no report'
has_logs kernels.log || fail 'a killed call left no archive'

# A checkout that is too large does not travel.
KILL=''
git init -q "$work/large"
mkdir -p "$work/large/bench/gpu" "$work/large/tests/fixtures" "$work/large/build-gpu"
cp "$gpu/bundle.sh" "$work/large/bench/gpu"
printf 'build-gpu/\n' >"$work/large/.gitignore"
head -c 52428800 /dev/zero >"$work/large/tests/fixtures/weights"
head -c 9437184 /dev/zero >"$work/large/build-gpu/gpu.tar.xz"
"$work/large/bench/gpu/bundle.sh" --size >"$work/out.txt" 2>&1 || fail '59 MiB are refused'
head -c 12582912 /dev/zero >"$work/large/build-gpu/gpu.tar.xz"
! "$work/large/bench/gpu/bundle.sh" --size >"$work/out.txt" 2>&1 || fail '62 MiB may travel'
grep -q 'checkout 50.0 MiB, bundle 12.0 MiB, limit 60 MiB' "$work/out.txt" && grep -q '50.0 MiB tests/fixtures' "$work/out.txt" ||
    fail 'the sizes are not told'
echo "$(parts_of first | wc -l) and $(parts_of second | wc -l) parts"
