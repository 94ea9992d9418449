#!/bin/bash
# All that a GPU is needed for, in one go: builds, tests, and measures, on a machine with one NVIDIA GPU (8.0 or later).
#   usage: bench/gpu/check.sh [--packages DIR] [--budget SECONDS] [--only NAME,NAME...] [--work DIR] [-o FILE]
# Parts stand in the order of their worth, each with a limit of its own; one that fails or runs out of time does not stop
# the next, and none begins when the budget (540 s) is spent. What came out is a table, last on the output and in FILE
# (bench/results/DATE-gpu.md); what the parts printed is in DIR/NAME.log (/tmp/ballast-gpu).
# Needs: nvcc, CMake, Ninja, gcc, python3; the libraries of scripts/install-packages.sh, or their packages in DIR
# (bench/gpu/packages.sh), which are unpacked beside the build and not installed. Takes compute-sanitizer, and torch with
# transformers, where they are there. No network, no change of the GPU's settings.
set -u
export LC_ALL=C OMP_WAIT_POLICY=passive
source=$(cd "$(dirname "$0")/../.." && pwd)
packages='' budget=540 only='' work=/tmp/ballast-gpu output=$source/bench/results/$(date +%Y-%m-%d)-gpu.md
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || {
        sed -n '3s/^# *//p' "$0" >&2
        exit 2
    }
    case $1 in
    --packages) packages=$(realpath "$2") ;; --budget) budget=$2 ;; --only) only=,$2, ;;
    --work) work=$2 ;; -o) output=$(realpath "$2") ;;
    *)
        sed -n '3s/^# *//p' "$0" >&2
        exit 2
        ;;
    esac
    shift 2
done
mkdir -p "$work"
cd "$work" || exit 1
build=$work/build
ballast=$build/ballast
export XDG_CACHE_HOME=$work/cache
rows=$work/rows
: >"$rows"
begun=$SECONDS

row() { printf '%-28s %-8s %s\n' "$1" "$2" "$3" | tee -a "$rows"; }

# part NAME SECONDS COMMAND...: what the command prints last beginning with "= " is the row's text.
part() {
    local name=$1 limit=$2 left=$((budget - SECONDS + begun)) at=$SECONDS code said
    shift 2
    [ -z "$only" ] || [[ $only == *,$name,* ]] || return 0
    if [ "$left" -lt 5 ]; then
        row "$name" "left out" "no time"
        return 0
    fi
    [ "$limit" -le "$left" ] || limit=$left
    # A shell of its own, so that functions can be limited.
    export limit
    # shellcheck disable=SC2016 # it is the other shell's
    timeout -k 5 "$limit" bash -c '. "$0"; "$@"' "$work/parts.sh" "$@" >"$name.log" 2>&1
    code=$?
    said=$(sed -n 's/^= //p' "$name.log" | tail -1)
    case $code in
    0) row "$name" ok "$said ($((SECONDS - at)) s)" ;;
    77) row "$name" skipped "${said:-$(tail -1 "$name.log")}" ;;
    124 | 137) row "$name" "no time" "$said (limit $limit s)" ;;
    *) row "$name" FAILED "$said $(grep -E 'ERROR|error|FAILED|bug' "$name.log" | head -1 | cut -c 1-160)" ;;
    esac
}

cat >"$work/parts.sh" <<'PARTS'
set -eu -o pipefail

unpack() {
    for package in "$packages"/*.deb; do dpkg -x "$package" "$work/root"; done
    # Their .pc files name /usr.
    find "$work/root" -name '*.pc' -exec sed -i "s,^prefix=.*,prefix=$work/root/usr," {} +
    echo "= $(ls "$packages" | grep -c deb) packages"
}

build_all() {
    local architecture
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
    cmake -G Ninja -S "$source" -B "$build" -DCMAKE_CUDA_ARCHITECTURES="$architecture-real" \
        -DCMAKE_PREFIX_PATH="$work/root/usr" -DBALLAST_EVENT_FILES=OFF -DBALLAST_URING=OFF -DBALLAST_CUDNN=ON
    cmake --build "$build" --parallel "$(nproc)" --target ballast test_kernels test_kernel_reference \
        test_kernel_gradients test_kernel_plain test_reference test_policies test_same_bits test_spans product_choice
    "$ballast" --version
    echo "= for sm_$architecture, $(grep -q '^CUDNN_GRAPH_LIBRARY:.*NOTFOUND' "$build/CMakeCache.txt" && echo without || echo with) cuDNN"
}

# run_test NAME...: cmocka programs, one after the other.
run_test() {
    local name passed=0
    for name in "$@"; do
        "$build/tests/test_$name"
        passed=$((passed + 1))
    done
    echo "= $passed of $# programs passed"
}

# Whole programs on the device against PyTorch's recorded losses, gradients and weights of 20 steps.
run_on_device() { BALLAST_TEST_BACKEND=cuda run_test "$@"; }

# Products, copies each way alone, together and under products: all of it is in the part's log.
rates() {
    "$ballast" profile --device cuda --device-memory 16G --host-memory 8G --disk "$work" | tee rates
    echo "= bf16 $(sed -n 's/^bf16 products *//p' rates); copies in $(sed -n 's/^host *to device *//p' rates);" \
        "out $(sed -n 's/^device *to host *//p' rates);" \
        "each beside the other $(awk '/^copies in memory/ { print $6 }' rates) times as long"
}

# Milliseconds of attention's forward in a profile.
attention_ms() { awk '$1 == "attention" { print $4 }' "$1"; }

# cuDNN's attention beside the own kernel: operators and whole runs against the recorded ones, then its time.
attention_cudnn() {
    ! grep -q '^CUDNN_GRAPH_LIBRARY:.*NOTFOUND' "$build/CMakeCache.txt" || exit 77
    export BALLAST_ATTENTION=cudnn
    run_on_device kernel_reference kernels reference
    "$ballast" profile "$work/gpt2" --device cuda --dtype bf16 --batch 32 --seq 1024 | tee operators-cudnn
    echo "= forward $(attention_ms operators-cudnn) ms; the own kernel $(attention_ms operators) ms"
}

# What each operator of a step takes; what makes up most of it is the row's.
operators() {
    make_model gpt2 "${gpt2[@]}"
    "$ballast" profile "$work/gpt2" --device cuda --dtype bf16 --batch 32 --seq 1024 | tee operators
    echo "= $(sed -n 's/^all operators of a step, one after the other: //p' operators) in operators;" \
        "most: $(sed '1,/^operator /d' operators | awk 'NR <= 4 && $8 ~ /%/ {
        printf "%s%s %s (%.0f TFLOP/s)", (NR > 1 ? ", " : ""), $8, $1, $5 / 1000 }')"
}

product_choice() { "$build/bench/product_choice"; }

# A step's seconds and losses from a run's metrics.
median_step() {
    sed -n '4,$s/.*"step_s": \([0-9.e+-]*\).*/\1/p' "$1" | sort -g | awk '{ s[NR] = $1 } END { print s[int((NR + 1) / 2)] }'
}
predicted_step() { sed -n '$s/.*"predicted_step_s": \([0-9.e+-]*\).*/\1/p' "$1"; }
losses() { sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' "$1" | head -2 | paste -sd ' '; }
mfu() { sed -n '$s/.*"mfu": \([0-9.e+-]*\).*/\1/p' "$1"; }

# make_model NAME INIT-OPTIONS...
make_model() {
    local name=$1
    shift
    [ -e "$work/$name/config.json" ] || "$ballast" init "$work/$name" "$@" --quiet
}

# steps NAME VOCABULARY BATCH STEPS TRAIN-OPTIONS...: of 1024 tokens. The steps that were made count, also where the
# time was too short for what follows them (the model is written at the end). The plan before them has the model's
# operators measured, so that training predicts its step.
steps() {
    local name=$1 vocabulary=$2 batch=$3 count=$4 run=$work/run-$1-$RANDOM tokens=$work/tokens-$2-$3.bin code=0
    shift 4
    timeout 40 "$ballast" plan "$work/$name" --device cuda --dtype bf16 --batch "$batch" --seq 1024 "$@" ||
        echo "no plan: nothing is predicted"
    [ -e "$tokens" ] || python3 "$source/bench/gpu/token_file.py" "$tokens" $((batch * 1024 + 1)) "$vocabulary"
    timeout -s KILL $((limit - SECONDS - 3)) "$ballast" train "$work/$name" "$tokens" -o "$run" --device cuda \
        --dtype bf16 --batch "$batch" --seq 1024 --steps "$count" --save-every 0 --schedule constant --warmup-steps 0 \
        "$@" || code=$?
    [ "$code" = 0 ] || [ "$code" = 137 ] || return "$code"
    [ "$(wc -l <"$run/metrics.jsonl")" -ge 4 ] || return 124
    awk -v step="$(median_step "$run/metrics.jsonl")" -v tokens=$((batch * 1024)) -v mfu="$(mfu "$run/metrics.jsonl")" \
        -v losses="$(losses "$run/metrics.jsonl")" -v predicted="$(predicted_step "$run/metrics.jsonl")" \
        'BEGIN {
            off = predicted > 0 ? sprintf("predicted %.3f s (%+.0f%%)", predicted, 100 * (predicted / step - 1)) : "not predicted"
            printf "= %.0f tokens/s, MFU %.3f of the measured rate, %.3f s a step, %s; losses %s\n", tokens / step, mfu, step, off, losses
        }'
    du -sh "$run"
    rm -rf "$run"
}

gpt2=(--arch gpt2 --layers 12 --hidden 768 --heads 12 --vocab 50257 --context 1024)
gpt2_xl=(--arch gpt2 --layers 48 --hidden 1600 --heads 25 --vocab 50257 --context 1024)
llama_1b=(--arch llama --layers 16 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 --vocab 32000 --context 1024)
llama_3b=(--arch llama --layers 28 --hidden 3072 --heads 24 --kv-heads 8 --ffn 8192 --vocab 32000 --context 1024)

gpt2_steps() { make_model gpt2 "${gpt2[@]}" && steps gpt2 50257 "$@"; }
gpt2_xl_steps() { make_model gpt2-xl "${gpt2_xl[@]}" && steps gpt2-xl 50257 "$@"; }
llama_1b_steps() { make_model llama-1b "${llama_1b[@]}" && steps llama-1b 32000 "$@"; }
llama_3b_steps() { make_model llama-3b "${llama_3b[@]}" && steps llama-3b 32000 "$@"; }

# Spans of a step launched as graphs beside the same calls one by one: equal losses, the time of both, and whether all
# spans can be captured. One grain a step: the shortest steps, of which asking for kernels is the largest part.
graphs() {
    local tokens=$work/tokens-50257-4.bin setting left=''
    make_model gpt2 "${gpt2[@]}"
    BALLAST_TEST_BACKEND=cuda "$build/tests/test_spans" || left='; test_spans FAILED'
    [ -e "$tokens" ] || python3 "$source/bench/gpu/token_file.py" "$tokens" $((4 * 1024 + 1)) 50257
    for setting in off on; do
        rm -rf "$work/run-graphs"
        BALLAST_CUDA_GRAPHS=$setting "$ballast" train "$work/gpt2" "$tokens" -o "$work/run-graphs" --device cuda \
            --dtype bf16 --batch 4 --seq 1024 --steps 30 --save-every 0 --schedule constant --warmup-steps 0 --quiet
        cp "$work/run-graphs/metrics.jsonl" "metrics-graphs-$setting"
        sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "metrics-graphs-$setting" >"losses-graphs-$setting"
    done
    [ "$(wc -l <losses-graphs-on)" = 30 ] && cmp losses-graphs-off losses-graphs-on || left="; losses DIFFER$left"
    echo "= 30 steps: $(median_step metrics-graphs-off) s call by call, $(median_step metrics-graphs-on) s with graphs$left"
    [ -z "$left" ]
}

# The sanitizer over whole steps of the fixtures' models, in both dtypes.
sanitize() {
    command -v compute-sanitizer || exit 77
    local tokens=$work/tokens-211.bin name
    python3 "$source/bench/gpu/token_file.py" "$tokens" 600 211
    for name in llama gpt2; do
        for dtype in bf16 fp32; do
            rm -rf "$work/sanitized"
            compute-sanitizer --tool "$1" --error-exitcode 9 "$ballast" train "$source/tests/fixtures/models/$name" \
                "$tokens" -o "$work/sanitized" --device cuda --dtype "$dtype" --batch 3 --grain 2 --seq 16 --steps 2 \
                --save-every 0 --threads 2 --quiet
            echo "= $name $dtype and those before it without a finding"
        done
    done
}

pytorch() {
    python3 -c 'import torch, transformers; assert torch.cuda.is_available()' || exit 77
    make_model gpt2 "${gpt2[@]}"
    local tokens=$work/tokens-50257-$1.bin
    [ -e "$tokens" ] || python3 "$source/bench/gpu/token_file.py" "$tokens" $(($1 * 1024 + 1)) 50257
    python3 "$source/bench/gpu/pytorch_step.py" "$work/gpt2" "$tokens" --batch "$1" --seq 1024 --steps 12 --micro 16 \
        >pytorch.json
    python3 -c 'import json, statistics, sys
peer = json.load(open("pytorch.json"))
step = statistics.median(peer["step_s"][4:])
print(f"= {int(sys.argv[1]) * 1024 / step:.0f} tokens/s, {step:.3f} s a step; losses", *peer["losses"][:2])' "$1"
}
PARTS
export source work build ballast packages
root=$work/root/usr
export LD_LIBRARY_PATH=$root/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH=$root/lib/x86_64-linux-gnu/pkgconfig:$root/share/pkgconfig PATH=$PATH:$root/bin

card=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader | head -1) || {
    echo "check: no NVIDIA GPU here" >&2
    exit 2
}
[ -z "$packages" ] || part packages 60 unpack
part build 240 build_all
part operators 60 run_on_device kernel_reference kernel_plain kernel_gradients kernels
part reference 60 run_on_device reference
part rate 30 rates
part gpt2-124m 60 gpt2_steps 32 12
part policies 70 run_on_device policies
part operators-gpt2 30 operators
part graphs 60 graphs
part memcheck 60 sanitize memcheck
part llama-1b 60 llama_1b_steps 16 6
part llama-1b-in-8g 70 llama_1b_steps 32 5 --device-memory 8G --host-memory 40G
part determinism 30 product_choice
part attention-cudnn 80 attention_cudnn
part llama-3b-in-24g 100 llama_3b_steps 64 5 --device-memory 24G --host-memory 80G
part pytorch-gpt2-124m 90 pytorch 32
part gpt2-1.5b 70 gpt2_xl_steps 16 6
part racecheck 60 sanitize racecheck
part llama-3b-in-8g 100 llama_3b_steps 64 5 --device-memory 8G --host-memory 80G
part gpt2-1.5b-in-8g 60 gpt2_xl_steps 32 5 --device-memory 8G --host-memory 60G
part same-bits 60 run_on_device same_bits

{
    echo "# One GPU"
    echo
    echo "Command: \`bench/gpu/check.sh\`, $((SECONDS - begun)) s. GPU: $card. Machine: $(nproc) cores of$(
        sed -n 's/^model name[^:]*://p' /proc/cpuinfo | head -1
    ). Commit: $(git -C "$source" rev-parse --short HEAD 2>/dev/null || echo unknown). Date: $(date +%Y-%m-%d)."
    echo "bf16, 1024 tokens a sequence; a step's time is the median from the fourth on (the third is recorded). MFU: of the"
    echo "rate of matrix products that the row \`rate\` has. Predictions are made before the step, from what was measured of"
    echo "operators and copies; \`determinism\`: cuBLASLt's one algorithm a product beside the fastest in any order."
    echo
    sed 's/^/    /; s/ *$//' "$rows"
} >"$output"
echo
cat "$output"
! grep -q FAILED "$rows"
