#!/bin/bash
# All that a GPU is needed for, in one go of nine minutes: tests and measurements on a machine with one NVIDIA GPU (8.0 or
# later), its driver, and python3.
#   usage: bench/gpu/check.sh [--bundle DIR|TAR] [--packages DIR] [--budget SECONDS] [--only NAME,NAME...] [--work DIR] [-o FILE] [--dry-run]
# Runs what bench/gpu/bundle.sh put into DIR (DIR/gpu/check.sh finds it by itself) or, thin, into an archive: then NVIDIA's
# libraries are the machine's, the toolkit's or those that pip installed, and the fixtures those of this checkout. Without
# a bundle it builds one first, which takes nvcc, CMake, Ninja, gcc and the libraries of scripts/install-packages.sh, or
# their packages in --packages (bench/gpu/packages.sh), unpacked beside the build. Takes compute-sanitizer, libnccl.so.2,
# and torch with transformers, where they are there. No network, no change of the GPU's settings.
# The parts that tell most come first; each has a limit, all limits together are the budget (540 s), and what one leaves
# over goes to the next. A part that fails or runs out of time does not stop the next. After every part, and on any end,
# the report is written (FILE, bench/results/DATE-gpu.md) with an archive of all logs (FILE.tar). --dry-run says what each
# part would do and what it lacks here, and runs none.
set -u
export LC_ALL=C OMP_WAIT_POLICY=passive
command="check.sh $*"
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
place='' packages='' budget=540 only='' work=/tmp/ballast-gpu dry='' output=''
[ ! -x "$here/../ballast" ] || place=$(cd "$here/.." && pwd)
usage() {
    sed -n '4s/^# *//p' "$0" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=yes && shift && continue ;;
    --bundle | --packages | --budget | --only | --work | -o) [ $# -ge 2 ] || usage ;;&
    --bundle) place=$(realpath "$2") ;;
    --packages) packages=$(realpath "$2") ;;
    --budget) budget=$2 ;;
    --only) only=,$2, ;;
    --work) work=$2 ;;
    -o) output=$(realpath "$2") ;;
    *) usage ;;
    esac
    shift 2
done
mkdir -p "$work/logs" && cd "$work/logs" || exit 1
work=$(cd "$work" && pwd)
# shellcheck source=bench/gpu/place.sh
. "$here/place.sh"
place=$(place_open "$place") || exit 1
PATH=$PATH:/usr/local/cuda/bin
rows=$work/rows
: >"$rows"
if [ -z "$output" ]; then
    output=$work/$(date +%Y-%m-%d)-gpu.md
    [ ! -d "$source/bench/results" ] || output=$source/bench/results/$(date +%Y-%m-%d)-gpu.md
fi
archive=$output.tar
commit=$(cat "${place:-$source}/commit" 2>/dev/null || git -C "$source" rev-parse --short HEAD 2>/dev/null || echo unknown)

# What the card is called, and products of bf16 a second that its data sheet has.
card=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null | head -1)
case $card in
*H100*PCIe*) peak_flops=756e12 ;;
*A100*) peak_flops=312e12 ;;
*) peak_flops=989e12 ;;
esac
if [ -z "$card" ] && [ -z "$dry" ]; then
    echo "check: no NVIDIA GPU here; --dry-run goes through the parts without one" >&2
    exit 2
fi
card=${card:-none}

# shellcheck source=bench/gpu/report.sh
. "$here/report.sh"
trap finish EXIT
for signal in INT TERM HUP; do
    # shellcheck disable=SC2064 # its name now
    trap "finish 'signal $signal'; exit 1" $signal
done

# part NAME SECONDS NEEDS WHAT COMMAND...: NEEDS are words: test:NAME and bench:NAME of the bundle, command:NAME, torch,
# nccl, nvidia (cuBLASLt).
names=() limits=() needs=() what=() commands=()
part() {
    [ -z "$only" ] || [[ $only == *,$1,* ]] || return 0
    names+=("$1") limits+=("$2") needs+=("$3") what+=("$4")
    shift 4
    commands+=("$*")
}
# A build leaves less for all that follows.
[ -n "$place" ] || part build 240 'command:nvcc command:cmake command:ninja' 'builds the bundle here' build
part libraries 5 nvidia 'that binaries have all libraries' libraries
part kernels 45 'test:kernel_reference test:kernel_plain test:kernel_updates test:kernel_gradients test:kernels test:kernel_runs' \
    'every operator against the CPU and fp64, each case a process' run_tests kernel_reference kernel_plain kernel_updates kernel_gradients kernels kernel_runs
part rates 16 '' 'products, copies each way alone and together' rates
part sustained 14 bench:sustained_rate 'products for 10 s beside a burst of 0.15 s' bench sustained_rate
part operators 18 '' "time of GPT-2's operators, and part of the card's limit" operators
part reference 30 test:reference "20 steps against PyTorch's recorded ones" run_tests reference
part gpt2-124m 25 '' 'steps, MFU, memory beyond the arena' steps gpt2 32 12
part llama-1b 38 '' 'the same' steps llama-1b 16 8
part pytorch-gpt2 42 torch 'compiled, fused AdamW, SDPA' pytorch gpt2 32 16
part pytorch-llama-1b 47 torch 'the same' pytorch llama-1b 16 8
part products 20 bench:product_choice "cuBLASLt's first 8 deterministic algorithms a shape; 50257 beside 50304" bench product_choice
part step-ways 44 bench:step_ways 'one process: grains of 4, 16 and 32 thousand tokens; 50257 beside 50304; graphs beside calls' bench step_ways
part attention 10 bench:attention_ways "own attention and its gradient, and cuDNN's deterministic ones" bench attention_ways
part copies 14 bench:copy_ways 'pageable, registered, pinned; O_DIRECT into pinned' bench copy_ways
part policies 26 'test:policies test:same_bits test:lanes test:spans' 'equal bits under random policies' run_tests policies same_bits lanes spans
part runs 14 '' 'a run that goes on has the bits of an unbroken one; text that is written has the words of the processor' runs
part nccl 6 'test:nccl_self nccl' "a communicator of one rank; the kernels of ranks' sums against the host's" run_tests nccl_self
part memcheck 22 command:compute-sanitizer 'steps of small models under the sanitizer' sanitize memcheck
part racecheck 22 command:compute-sanitizer 'the same for races in shared memory' sanitize racecheck
part llama-1b-in-8g 24 '' 'offload: 8 GB of the card' steps llama-1b 32 5 --device-memory 8G --host-memory 40G
part llama-3b-in-24g 36 '' 'offload: 24 GB of the card' steps llama-3b 32 5 --device-memory 24G --host-memory 80G
part largest 22 '' 'the largest model that there is time for: 8 billion parameters where 100 s are left, else 3' largest

for name in ${only//,/ }; do
    [[ " ${names[*]} " == *" $name "* ]] || {
        echo "check: there is no part '$name'; the parts are: $(sed -n 's/^part \([a-z0-9-]*\) .*/\1/p' "$0" | paste -sd ' ')" >&2
        exit 2
    }
done

# lacks INDEX: what of its needs is not here.
lacks() {
    local need lacking=''
    for need in ${needs[$1]}; do
        case $need in
        test:*) [ -x "$place/tests/test_${need#*:}" ] ;;
        bench:*) [ -x "$place/bench/${need#*:}" ] ;;
        command:*) command -v "${need#*:}" >/dev/null ;;
        nvidia) ! place_missing "$place" | grep -q '^libcublasLt' ;;
        nccl) [ -n "${BALLAST_NCCL:-}" ] || [ -e "$place/lib/libnccl.so.2" ] || ldconfig -p | grep -q 'libnccl\.so\.2 ' ;;
        torch) python3 -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("torch") and u.find_spec("transformers")))' ;;
        esac >/dev/null 2>&1 || lacking="$lacking${lacking:+, }${need#*:}"
    done
    [ "${names[$1]}" = build ] || [ -x "$place/ballast" ] || lacking="ballast${lacking:+, $lacking}"
    echo "$lacking"
}

# The seconds of part INDEX: what is left but for the limits of those after it, so that savings are handed on.
seconds_of() {
    local left=$((budget - SECONDS)) later=0 i
    for ((i = $1 + 1; i < ${#names[@]}; i++)); do later=$((later + limits[i])); done
    if [ $((left - later)) -ge "${limits[$1]}" ]; then
        echo $((left - later))
    else
        echo $((left < limits[$1] ? left : limits[$1]))
    fi
}

run_part() {
    local name=${names[$1]} log=${names[$1]}.log at=$SECONDS code lacking limit said
    lacking=$(lacks "$1")
    [ -z "$lacking" ] || {
        row "$name" lacks "$lacking (${what[$1]})"
        return
    }
    limit=$(seconds_of "$1")
    [ "$limit" -ge 4 ] || {
        row "$name" 'left out' 'no time'
        return
    }
    export limit part=$name
    # In the background and waited for: a signal then ends the wait, not the report. In a group of its own, so that all
    # of it can be ended.
    # shellcheck disable=SC2016,SC2086 # the other shell's; words of a command
    setsid timeout -k 3 "$limit" bash -c '. "$here/parts.sh"; "$@"' part ${commands[$1]} >"$log" 2>&1 &
    running=$!
    wait $running
    code=$?
    running=''
    said=$(sed -n 's/^= //p' "$log" | tail -1)
    [ "$code" != 0 ] || [ -n "$said" ] || code=none
    case $code in
    0) row "$name" ok "$said ($((SECONDS - at)) s)" ;;
    124 | 137) row "$name" 'no time' "$said (limit $limit s)" ;;
    none) row "$name" FAILED 'ended without a result' ;;
    *) row "$name" FAILED "$said $(grep -aE 'ERROR|error|BUG|FAILED' "$log" | head -1 | cut -c 1-160) ($((SECONDS - at)) s)" ;;
    esac
}

build() {
    if [ -n "$packages" ]; then
        for package in "$packages"/*.deb; do dpkg -x "$package" "$work/root"; done
        # Their .pc files name /usr.
        find "$work/root" -name '*.pc' -exec sed -i "s,^prefix=.*,prefix=$work/root/usr," {} +
        # What the choice among alternatives links when packages are installed.
        (cd "$work/root/usr/lib/x86_64-linux-gnu" && ln -sf blas/libblas.so.3 lapack/liblapack.so.3 .)
    fi
    # As the driver tells it: CMake's "native" compiles and runs a program, and says less when that fails.
    local capability architecture=native
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
    [[ ! $capability =~ ^[0-9]+$ ]] || architecture=$capability-real
    # Where a compiler of the machine's own would look without being told.
    local headers=$work/root/usr/include/x86_64-linux-gnu
    C_INCLUDE_PATH=$headers CPLUS_INCLUDE_PATH=$headers LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu "$here/bundle.sh" "$work/bundle" "-DCMAKE_CUDA_ARCHITECTURES=$architecture" ${packages:+-DCMAKE_PREFIX_PATH="$work/root/usr"}
    local code=$?
    [ $code != 0 ] || echo "= $work/bundle"
    return $code
}
export -f build
root=$work/root/usr
export PKG_CONFIG_PATH=$root/lib/x86_64-linux-gnu/pkgconfig:$root/share/pkgconfig PATH=$PATH:$root/bin

place=${place:-$work/bundle}
ballast=$place/ballast
export here source place packages work ballast peak_flops
export XDG_CACHE_HOME=$work/cache

if [ -n "$dry" ]; then
    sum=0
    for i in "${!names[@]}"; do
        lacking=$(lacks "$i")
        [ "$card" != none ] || lacking="a card${lacking:+, $lacking}"
        [ "${names[i]}" = build ] || sum=$((sum + limits[i]))
        echo "$(printf '%-22s %-9s' "${names[i]}" "$([ -z "$lacking" ] && echo 'would run' || echo lacks)")" \
            "${limits[i]} s: ${what[i]}${lacking:+; lacks $lacking}" >>"$rows"
    done
    ended="a dry run: limits add up to $sum of $budget s, nothing was run"
    cat "$rows"
    echo "$ended"
    [ "$sum" -le "$budget" ]
    exit
fi
for i in "${!names[@]}"; do run_part "$i"; done
ended='all parts had their turn'
report
echo
cat "$output"
! grep -qE '^[^ ]+ +FAILED' "$rows"
