# shellcheck shell=bash disable=SC2154 # library.sh sets what is not set here
# The parts that list.sh names. Each runs in its own shell, in the directory of logs, within $limit seconds. Its last
# line that begins with "= " is its result. It exits with 77 if a requirement is missing.
# Uses: place (the bundle), work, models, ballast, device, tests_on, limit, peak_flops, rehearse.
set -u -o pipefail
# of_rehearsal A B: A in a rehearsal, else B.
of_rehearsal() { if [ -n "$rehearse" ]; then echo "$1"; else echo "$2"; fi; }

# ---- tests ----

# test_command PROGRAM [COMMAND...]: a test program on the device; the emulator's is "cuda" too.
test_command() {
    local program=$1 backend=$tests_on
    shift
    [[ $program != */test_kernel* ]] || backend=cuda
    BALLAST_TEST_BACKEND=$backend timeout --foreground -k 2 "$test_limit" "$@" "$program"
}
test_limit=$limit

# one_case PROGRAM CASE [COMMAND...]: runs one case in its own process, because a device error affects its whole
# process.
one_case() {
    local program=$1 case=$2
    shift 2
    BALLAST_TEST_CASES=$case test_command "$program" "$@"
}

list_cases() { BALLAST_TEST_CASES=list test_command "$1" 2>/dev/null; }

is_skipped() { [ "$1" = 77 ] || grep -aq '^skipped: ' "$2"; } # CODE LOG

report_failure() { # NAME CODE LOG: the line of a failure
    case $2 in
    124 | 137) echo "  $1: no end within $test_limit s" ;;
    139 | 134) echo "  $1: ended by signal $(($2 - 128)): $(grep -aE 'ERROR|error|BUG' "$3" | head -1 | cut -c 1-200)" ;;
    *) echo "  $1: $(grep -aE 'ERROR|error|Error' "$3" | head -1 | cut -c 1-200)" ;;
    esac
}

# under_sanitizer LOG COMMAND...: the first finding. PROBE: whether the sanitizer starts on this machine at all.
under_sanitizer() {
    local log=$1
    shift
    command -v compute-sanitizer >/dev/null || return 0
    compute-sanitizer --error-exitcode 9 "$@" >"$log" 2>&1 || true
    sed -n '/^========= COMPUTE-SANITIZER/d;/^========= [A-Z]/{s/^=*/  sanitizer:/p;q}' "$log"
}

# again PROGRAM CASE: narrows a failing case down to an operator or model, with synchronous launches, and under the
# sanitizer.
again() {
    local program=$1 case=$2 name part parts first='' code
    name=${program##*/test_}.$case
    parts=$(BALLAST_TEST_PART=list one_case "$program" "$case" 2>&1 | sed -n 's/^part: //p' | sort -u)
    for part in $parts; do
        code=0
        BALLAST_TEST_PART=$part one_case "$program" "$case" >"again.$name.$part" 2>&1 || code=$?
        [ $code = 0 ] && continue
        report_failure "$name, $part alone" $code "again.$name.$part"
        first=${first:-$part}
    done
    [ -z "$parts" ] || [ -n "$first" ] || echo "  $name: each part alone passes"
    [ -z "$first" ] || export BALLAST_TEST_PART=$first
    code=0
    one_case "$program" "$case" env CUDA_LAUNCH_BLOCKING=1 >"again.$name.blocking" 2>&1 || code=$?
    if [ $code = 0 ]; then
        echo "  $name: passes with CUDA_LAUNCH_BLOCKING=1"
    else
        report_failure "$name with CUDA_LAUNCH_BLOCKING=1" $code "again.$name.blocking"
    fi
    BALLAST_TEST_CASES=$case BALLAST_TEST_BACKEND=cuda under_sanitizer "again.$name.sanitizer" "$program"
    unset BALLAST_TEST_PART
}

# case_by_case PROGRAM: sets `failed` to the failing cases; counts the others.
case_by_case() {
    local program=$1 name=${1##*/test_} case code
    for case in $(list_cases "$program"); do
        code=0
        one_case "$program" "$case" >"case.$name.$case" 2>&1 || code=$?
        if is_skipped $code "case.$name.$case"; then
            skipped=$((skipped + 1))
        elif [ $code = 0 ]; then
            passed=$((passed + 1))
        else
            report_failure "$name.$case" $code "case.$name.$case"
            failed+=("$name $case")
        fi
        test_result
    done
}

test_result() { echo "= $passed passed, ${#failed[@]} failed${failed[0]:+ (${failed[*]})}, $skipped skipped"; }

# run_tests NAME...: runs test programs in parallel, then repeats failing ones case by case.
run_tests() {
    local name code passed=0 skipped=0 failed=() red=() pids=()
    for name in "$@"; do
        test_command "$place/tests/test_$name" >"test.$name" 2>&1 &
        pids+=($!)
    done
    for name in "$@"; do
        code=0
        wait "${pids[0]}" || code=$?
        pids=("${pids[@]:1}")
        if is_skipped $code "test.$name" && [ $code != 1 ]; then
            skipped=$((skipped + 1))
        elif [ $code = 0 ]; then
            passed=$((passed + 1))
        else
            report_failure "$name" $code "test.$name"
            red+=("$name")
        fi
        echo "= programs: $passed passed, ${#red[@]} failed${red[0]:+ (${red[*]})}, $skipped skipped"
    done
    [ ${#red[@]} -gt 0 ] || { [ $passed -gt 0 ] && return; }
    passed=0 skipped=0
    for name in "${red[@]}"; do case_by_case "$place/tests/test_$name"; done
    echo "= programs that failed: ${red[*]}; cases: $passed passed, ${#failed[@]} failed${failed[0]:+ (${failed[*]})}, $skipped skipped"
    return 1
}

# run_subjects: runs the subjects on standard input, eight at a time. Counts those that end within the limit.
one_subject() {
    local log="subject.${1// /-}" code=0
    BALLAST_TEST_SUBJECTS=$1 test_command "$place/tests/test_policies" >"$log" 2>&1 || code=$?
    case $code in
    0) echo "passed $1" ;;
    124 | 137) echo "late $1" ;;
    *) echo "failed $1: $(grep -aE 'ERROR|error|BUG' "$log" | head -1 | cut -c 1-200)" ;;
    esac >>subjects
}
run_subjects() {
    : >subjects
    test_limit=$((limit > 8 ? limit - 4 : limit))
    export -f one_subject test_command
    export test_limit
    timeout "$test_limit" xargs -P "$(of_rehearsal 2 8)" -d '\n' -I{} bash -c 'one_subject "$1"' subject {} 2>/dev/null
    grep '^failed' subjects
    echo "= $(grep -c '^passed' subjects) subjects of $1 have equal bits, $(grep -c '^failed' subjects) have not"
    ! grep -q '^failed' subjects && grep -q '^passed' subjects
}
subjects() { BALLAST_TEST_SUBJECTS=$1 test_command "$place/tests/test_policies"; } # short-list or list
short_subjects() {
    subjects short-list >wanted && run_subjects "$(wc -l <wanted)" <wanted && [ "$(grep -c '^passed' subjects)" = "$(wc -l <wanted)" ]
}
other_subjects() { subjects list | grep -vxFf <(subjects short-list) >wanted && run_subjects "$(wc -l <wanted)" <wanted; }

# reference MODEL...: bounds of bf16 means are soft, because they have not been measured on a GPU yet.
reference() {
    local model code passed=0 failed=() pids=()
    export BALLAST_TEST_SOFT_MEANS=yes
    for model in "$@"; do
        BALLAST_TEST_PART=$model test_command "$place/tests/test_reference" >"reference.$model" 2>&1 &
        pids+=($!)
    done
    for model in "$@"; do
        code=0
        wait "${pids[0]}" || code=$?
        pids=("${pids[@]:1}")
        grep -a 'soft: ' "reference.$model"
        if [ $code = 0 ]; then passed=$((passed + 1)); else report_failure "$model" $code "reference.$model" && failed+=("$model"); fi
    done
    echo "= $passed models as in PyTorch, ${#failed[@]} not${failed[0]:+ (${failed[*]})}, $(cat reference.* | grep -ac 'soft: ') soft bounds exceeded"
    [ ${#failed[@]} = 0 ]
}

# bisect COMMAND...: runs a part case by case, and narrows down each failure.
bisect() {
    local name case passed=0 skipped=0 failed=()
    test_limit=$((limit / 4 + 1))
    case $1 in
    run_tests) shift && for name in "$@"; do case_by_case "$place/tests/test_$name"; done ;;
    reference) case_by_case "$place/tests/test_reference" ;;
    *_subjects) case_by_case "$place/tests/test_policies" ;;
    *)
        export CUDA_LAUNCH_BLOCKING=1 BALLAST_CUDA_GRAPHS=off
        echo 'every launch waited for, without graphs:'
        "$@"
        return
        ;;
    esac
    for case in "${failed[@]}"; do
        # shellcheck disable=SC2086 # program and case
        again "$place/tests/test_"$case
    done
    test_result
    [ ${#failed[@]} = 0 ]
}

# probe TOOL: whether the sanitizer works here. Some virtual machines do not allow it.
probe() {
    BALLAST_TEST_CASES=list compute-sanitizer --tool "$1" "$place/bench/sustained_rate" 0 >"probe.$1" 2>&1 && return
    echo "= compute-sanitizer does not work here: $(grep -a '^=========' "probe.$1" | tail -1 | cut -c 1-120)"
    return 77
}
sanitize() { # TOOL PROGRAM...: cases under the tool until the time is over
    local tool=$1 name case cases=0 found=0
    probe "$tool" || return
    shift
    for name in "$@"; do
        for case in $(list_cases "$place/tests/test_$name"); do
            one_case "$place/tests/test_$name" "$case" compute-sanitizer --tool "$tool" --error-exitcode 9 >"$tool.$name.$case" 2>&1
            case $? in 9) found=$((found + 1)) && grep -a '^========= [A-Z]' "$tool.$name.$case" | head -3 ;; esac
            cases=$((cases + 1))
            echo "= $tool: $cases cases, $found with findings"
        done
    done
    [ $found = 0 ]
}
memcheck() { sanitize memcheck kernel_plain kernel_runs kernel_reference; }
# The tool does not know that cp.async's groups order copies, so its findings need judgement.
racecheck() { sanitize racecheck kernel_reference || [ $? != 77 ] || return 77; }

# ---- libraries and rates ----

# Only the C library, the driver and NVIDIA's libraries come from the machine. cuBLASLt is required.
libraries() {
    local lacking version absent blas
    find "$place/lib" -type l -printf '%f is %l\n'
    lacking=$(ldd "$ballast" "$place"/tests/test_* "$place"/bench/* | grep -E 'not found|not a dynamic' | sort -u)
    absent=$(while read -r pattern; do compgen -G "$place/lib/$pattern" >/dev/null || echo "$pattern"; done <"$place/borrowed")
    lacking=$lacking$(grep '^libcublasLt' <<<"$absent")
    echo "$lacking"
    blas=$("$place/bench/library_version" "$place"/lib/libcublasLt.so.*)
    version=$("$ballast" --version) || echo "ERROR: ballast does not start: $version"
    grep -E '^(MemTotal|MemAvailable|HugePages_Total)' /proc/meminfo
    echo "= ${version%%$'\n'*}, cuBLASLt ${blas%% *}${lacking:+; MISSING: $(echo "$lacking" | paste -sd ' ')}${absent:+; not here: $(echo "$absent" | paste -sd ' ')}"
    [ -z "$lacking" ] && "$ballast" --version >/dev/null
}

rates() {
    # shellcheck disable=SC2046 # options
    "$ballast" profile --device "$device" $(of_rehearsal '--device-memory 1G --host-memory 64M' '--device-memory 16G --host-memory 8G') --disk "$work" | tee rates.txt || return
    echo "= bf16 $(sed -n 's/^bf16 products *//p' rates.txt), fp32 $(sed -n 's/^fp32 products *//p' rates.txt);" \
        "copies in $(sed -n 's/^host *to device *//p' rates.txt), out $(sed -n 's/^device *to host *//p' rates.txt)"
}

# Compares each operator's time with the GPU's limits: bytes at the rate of zeroing, FLOPs at the data sheet's rate.
operators() {
    make_model gpt2 || return
    "$ballast" profile "$models/gpt2" --device "$device" --dtype bf16 --batch "$(of_rehearsal 2 32)" --seq "$sequence" | tee operators.txt || return
    local memory
    memory=$(sed -n 's/^zeros *to memory *\([0-9.]*\) GB.*/\1/p' operators.txt)
    awk -v gbps="${memory:-0}" -v peak="$peak_flops" '
        /^operator / { rows = 1; next }
        rows && $8 ~ /%/ { part = $5 * 1e9 / peak; bytes = gbps > 0 ? $6 / gbps : 0
            printf "  %-22s %10s ms %5.1f%% of the step, %4.0f%% of the GPU\n", $1, $4, $8, 100 * (part > bytes ? part : bytes) }
        ' operators.txt | tee parts-of-limit.txt
    echo "= $(sed -n 's/^all operators of a step, one after the other: //p' operators.txt) in operators;" \
        "most: $(head -4 parts-of-limit.txt | awk '{ printf "%s%s %s of the step at %s of the GPU", (NR > 1 ? ", " : ""), $1, $4, $8 }')"
}

bench() { "$place/bench/$1"; }

# Dimensions of published models: layers, width, heads, key-value heads, MLP width, vocabulary. A rehearsal uses the
# first layers at a sixteenth of the width.
shape_of() {
    case $1 in
    gpt2) echo 12 768 12 12 3072 50257 ;;
    llama-1b) echo 16 2048 32 8 8192 128256 ;;
    llama-8b) echo 32 4096 32 8 14336 128256 ;;
    esac | if [ -z "$rehearse" ]; then cat; else awk '{ print 2, $2 / 16, $3 / 4, $4 / 4, $5 / 16, 512 }'; fi
}
sequence=$(of_rehearsal 64 1024)

make_model() {
    local layers width heads kv ffn vocab shape
    read -r layers width heads kv ffn vocab < <(shape_of "$1")
    shape="--layers $layers --hidden $width --heads $heads --vocab $vocab --context 1024"
    [ "$1" = gpt2 ] || shape="$shape --kv-heads $kv --ffn $ffn"
    [ "$1" != llama-1b ] || shape="$shape --tied"
    mkdir -p "$models"
    # shellcheck disable=SC2086 # options
    [ -e "$models/$1/config.json" ] || "$ballast" init "$models/$1" --arch "${1%%-*}" $shape --dtype bf16 --quiet
}

# FLOPs per token, as in PaLM's MFU with causal attention: 6 per weight of a GEMM, and 6 per feature, layer and
# position.
flops_of() {
    shape_of "$1" | awk -v gpt2="$([ "$1" = gpt2 ] && echo 1)" -v positions="$sequence" '{
        mlp = (gpt2 ? 2 : 3) * $2 * $5
        attention = 2 * $2 * $2 + 2 * $2 * $2 * $4 / $3
        printf "%.0f\n", 6 * ($1 * (attention + mlp) + $2 * $6) + 6 * $1 * $2 * positions }'
}

# make_tokens BATCH: writes tokens that are in every model's vocabulary, and prints the file.
make_tokens() {
    local tokens=$work/tokens-$1.bin
    "$place/bench/random_tokens" "$tokens" $(($1 * sequence + 1)) "$(shape_of gpt2 | cut -d ' ' -f 6)" && echo "$tokens"
}

field() { sed -n "s/.*\"$2\": \\([0-9.e+-]*\\).*/\\1/p" "$1"; }
median() { sort -g | awk '{ s[NR] = $1 } END { print s[int((NR + 1) / 2)] }'; }
used_mib() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -1; }

# Prints the GPU memory in use after the third step of a running process.
watch_memory() {
    while [ "$(wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0)" -lt 3 ]; do sleep 0.2; done
    used_mib >"$1.memory"
}

# The first runs leave 3 GiB for CUDA, because its libraries' use has not been measured yet: 76G of an H100's 79.6 GiB.
device_memory() { sed -n 's/.*, \([0-9]*\) MiB.*/\1/p' <<<"$gpu" | awk '{ printf "--device-memory=%dG", $1 / 1024 - 3 }'; }

# steps MODEL BATCH STEPS OPTIONS...: counts the completed steps, also if time ran out.
steps() {
    local name=$1 batch=$2 count=$3 run=$work/run-$1-$$ tokens code=0 before arena watcher reserve
    shift 3
    reserve=$(device_memory)
    [[ " $* " != *' --device-memory '* ]] || reserve=''
    [ -z "$rehearse" ] || set -- # the CPU's memory is its device tier
    make_model "$name" && tokens=$(make_tokens "$batch") || return
    before=$(used_mib)
    # shellcheck disable=SC2086 # an option or none
    timeout --foreground $((limit / 3)) "$ballast" plan "$models/$name" --device "$device" --dtype bf16 --batch "$batch" \
        --seq "$sequence" $reserve "$@" | tee "plan-$name.txt" || echo 'no plan: nothing is predicted'
    arena=$(tr -d , <"plan-$name.txt" | sed -n '/^device tier/,/^ *arena/s/^ *arena *\([0-9]*\) B.*/\1/p' | head -1)
    watch_memory "$run" &
    watcher=$!
    # shellcheck disable=SC2086 # an option or none
    timeout --foreground -s KILL $((limit > SECONDS + 8 ? limit - SECONDS - 3 : 5)) "$ballast" train "$models/$name" "$tokens" -o "$run" \
        --device "$device" --dtype bf16 --batch "$batch" --seq "$sequence" --steps "$count" --save-every 0 --schedule constant \
        --warmup-steps 0 $reserve "$@" || code=$?
    kill $watcher 2>/dev/null
    [ $code = 0 ] || [ $code = 137 ] || return $code
    [ "$(wc -l <"$run/metrics.jsonl")" -ge 4 ] || return 124
    cp "$run/metrics.jsonl" "metrics-$name.jsonl"
    sed 1,3d "$run/metrics.jsonl" >"$run.late"
    awk -v name="$name" -v step="$(field "$run.late" step_s | median)" -v tokens=$((batch * sequence)) -v flops="$(flops_of "$name")" \
        -v peak="$peak_flops" -v mfu="$(field "$run.late" mfu | tail -1)" \
        -v predicted="$(sed -n 's/^ *time *\([0-9.]*\) s, .*/\1/p' "plan-$name.txt" | head -1)" -v arena="${arena:-0}" -v before="$before" \
        -v held="$(cat "$run.memory" 2>/dev/null)" -v losses="$(field "$run/metrics.jsonl" loss | head -2 | paste -sd ' ')" 'BEGIN {
            printf "= %s: %.0f tokens/s, %.4f s a step, MFU %.1f%% of the data sheet, %.1f%% of measured; ", name, tokens / step, step,
                100 * flops * tokens / step / peak, 100 * mfu
            if (predicted > 0) printf "predicted %.4f s (%+.0f%%); ", predicted, 100 * (predicted / step - 1)
            else printf "not predicted; "
            if (held != "" && arena > 0) printf "%.0f MiB beyond the arena; ", held - before - arena / 1048576
            printf "losses %s\n", losses }' || return
    rm -rf "$run" "$run".*
}

# train_run NAME STEPS: trains the small model that `runs` created.
train_run() {
    "$ballast" train "$work/writer" "$work/text.txt" -o "$work/$1" --device "$device" --dtype bf16 --batch 4 --micro-batch 2 --seq 64 \
        --steps "$2" --save-every 2 --schedule constant --warmup-steps 0 --quiet
}
write_text() { "$ballast" generate "$work/whole" --device "$1" --dtype fp32 --temperature 0 --prompt 'part' --tokens 32 --quiet; }

# A user's workflow, from a text to a generated text. fp32 programs differ only by rounding, so their texts are equal.
runs() {
    local on_gpu on_host
    rm -rf "$work"/{writer,whole,halves}
    cat "$here"/*.sh >"$work/text.txt"
    "$ballast" init "$work/writer" --arch llama --layers 2 --hidden 64 --heads 4 --kv-heads 2 --vocab 512 --context 64 \
        --tokenizer-data "$work/text.txt" --quiet || return
    train_run whole 4 && train_run halves 2 && "$ballast" resume "$work/halves" --steps 4 --quiet || return
    cmp "$work/whole/model/model.safetensors" "$work/halves/model/model.safetensors" || {
        echo 'ERROR: a run that went on has other weights'
        return 1
    }
    echo '= weights are the same after a resume'
    on_gpu=$(write_text "$device") && on_host=$(write_text cpu) || return
    if [ -z "$on_gpu" ] || [ "$on_gpu" != "$on_host" ]; then
        echo "ERROR: the GPU wrote: $on_gpu; the processor: $on_host"
        return 1
    fi
    echo '= weights are the same after a resume, and so is the text that the processor writes'
}

# pytorch MODEL BATCH MICRO: eager, then compiled, fused AdamW, SDPA.
pytorch() {
    local tokens way results=''
    make_model "$1" && tokens=$(make_tokens "$2") || return
    for way in --eager ''; do
        # shellcheck disable=SC2086 # an option or none
        python3 "$here/pytorch_step.py" "$models/$1" "$tokens" --batch "$2" --seq "$sequence" --steps 8 --micro "$3" $way >"pytorch-$1${way#-}.json" || return
        results="$results${results:+; }${way:-compiled} $(python3 -c 'import json, statistics, sys
peer = json.load(open(sys.argv[1]))
step = statistics.median(peer["step_s"][4:])
print(f"{int(sys.argv[2]) / step:.0f} tokens/s, {step:.4f} s a step; losses", *peer["losses"][:2])' "pytorch-$1${way#-}.json" $(($2 * sequence)))"
        echo "= $results"
    done
}

# llm.c's own line of a step: "step 10/12 | loss ... | 58.1 ms | 52.3% bf16 MFU | 563210 tok/s".
peer() {
    local tokens
    [ -x "${LLMC:-/nowhere}/train_gpt2cu" ] || {
        echo '= no build of llm.c: LLMC is not set'
        return 77
    }
    tokens=$(make_tokens 32) || return
    (cd "$LLMC" && ./train_gpt2cu -i "$tokens" -j "$tokens" -e d12 -b 32 -t 1024 -d 32768 -x 12 -v 0 -s 0) | tee llmc.txt
    echo "= $(grep -a '^step' llmc.txt | tail -1)"
}
