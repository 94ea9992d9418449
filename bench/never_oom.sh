#!/bin/bash
# Tests that training never runs out of memory, with random models, recipes and memory limits in a memory cgroup without
# swap (bench/cgroup_run.sh). A run must train, or exit with 3 before the first step. Then every remedy in its hint must
# let it train. Anything else is a failure, above all a process that the kernel killed.
#   usage: bench/never_oom.sh [--ranks N] [--count N] [--seed N] [--from N] [--build DIR] [--folder DIR] [-o FILE]
# Seed and number K determine a combination: `--seed S --from K --count 1` repeats it. DIR (BUILD/bench-never-oom) keeps
# the logs of failures. Needs root. 100 combinations take about a quarter of an hour.
set -eu
export LC_ALL=C
source=$(cd "$(dirname "$0")/.." && pwd)
usage() {
    sed -n '5s/^# *//p' "$0" >&2
    exit 2
}
steps='' limit='' ranks=1 count=100 seed=1 from=1 build=$source/build folder='' output=''
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --ranks) ranks=$2 ;; --count) count=$2 ;; --seed) seed=$2 ;; --from) from=$2 ;;
    --build) build=$2 ;; --folder) folder=$2 ;; -o) output=$(realpath "$2") ;;
    *) usage ;;
    esac
    shift 2
done
build=$(cd "$build" && pwd)
families=$("$build/ballast" help models | sed -n 's/^## `\(.*\)`$/\1/p')
folder=${folder:-$build/bench-never-oom}
mkdir -p "$folder/disk"
cd "$folder"
# Caches measurements of the machine there, so that only one combination makes them.
export XDG_CACHE_HOME=$folder/cache

# An llm.c token file: 65536 tokens below 256, so that every vocabulary has them.
if [ ! -e tokens.bin ]; then
    {
        printf '\x88\xd8\x34\x01\x01\0\0\0\0\0\1\0' && head -c 1012 /dev/zero
        seq 65536 | awk '{ x = (x * 75 + 74) % 65537; printf "\\x%02x\\0", x % 256 } END { print "" }' |
            { read -r bytes && printf '%b' "$bytes"; }
    } >tokens.bin
fi

# Draws from a digest of seed and combination, four hexadecimal digits each.
begin_draws() { digits=$(printf '%s %s' "$seed" "$1" | sha256sum | cut -c-64); }
draw() { # VARIABLE CHOICE...
    local -n variable=$1
    shift
    local choices=("$@")
    # shellcheck disable=SC2034 # a reference
    variable=${choices[$((16#${digits:0:4} % $#))]}
    digits=${digits:4}
}
# LOW * (HIGH / LOW)^u for a u drawn from [0, 1).
draw_between() { # VARIABLE LOW HIGH
    local -n variable=$1
    # shellcheck disable=SC2034
    variable=$(awk -v u=$((16#${digits:0:4})) -v low="$2" -v high="$3" \
        'BEGIN { printf "%.0f", low * (high / low) ^ (u / 65536) }')
    digits=${digits:4}
}

# Sets model, recipe, disk and limit, and their description. Limits recipes to some seconds of GEMMs.
draw_combination() {
    local arch layers hidden vocab dtype batch seq micro_batch disk save
    begin_draws "$1"
    # shellcheck disable=SC2086 # several words
    draw arch $families
    draw layers 1 2 3 4 5 6 8
    draw hidden 64 128 192 256 320 384 512
    draw vocab 512 1024 4096 16384
    draw dtype fp32 bf16
    draw batch 1 2 3 4 6 8 12 16
    draw seq 64 128 200 256 512 1024 2048
    draw micro_batch default default 1
    draw disk no yes
    draw save 0 0 1
    draw steps 2 3
    parameters=$((12 * layers * hidden * hidden + 2 * vocab * hidden))
    while [ $((6 * parameters * batch * seq * steps)) -gt 60000000000 ]; do
        if [ "$batch" -gt 1 ]; then batch=$((batch / 2)); elif [ "$seq" -gt 64 ]; then seq=$((seq / 2)); else break; fi
    done
    # 16 bytes per parameter for fp32, plus activations: the memory of a plain plan, or somewhat more.
    plain=$((16 * parameters + batch * seq * (layers * 100 * hidden + 4096) + ranks * (96 << 20)))
    draw_between limit $((ranks * (48 << 20))) "$plain"
    model=(--arch "$arch" --layers "$layers" --hidden "$hidden" --heads $((hidden / 64)) --vocab "$vocab" --context "$seq")
    recipe=(--dtype "$dtype" --batch "$batch" --seq "$seq" --steps "$steps" --save-every "$save")
    [ "$micro_batch" = default ] || recipe+=(--micro-batch "$micro_batch")
    [ "$disk" = no ] || recipe+=(--disk "$folder/disk")
}

# Sets status, kills and peak.
train() { # LOG LIMIT
    local log=$1
    rm -rf run
    status=0
    "$source/bench/cgroup_run.sh" "$2" "$build/ballast" train model tokens.bin -o run --warmup-steps 0 "${recipe[@]}" \
        --ranks "$ranks" >"$log" 2>&1 || status=$?
    kills=$(sed -n 's/^cgroup_run: .*oom_kills=\([0-9]*\).*/\1/p' "$log")
    peak=$(sed -n 's/^cgroup_run: .*peak=\([0-9]*\).*/\1/p' "$log")
}
trained() { [ "$status" = 0 ] && [ "$kills" = 0 ] && [ "$(wc -l <run/metrics.jsonl)" -ge "$steps" ]; }
mib() { echo $((($1 + (1 << 20) - 1) >> 20)); }

# Prints the remedies in a hint, one per line: "memory SIZE" for that much more memory, or options.
ways_of() { # LOG
    sed -n 's/^hint: //p' "$1" | sed 's/; or /\n/g' | tr -d , | sed -E \
        -e 's/^(--.*) would fit \(.*\)$/\1/' \
        -e 's/^(--disk) DIR with .* there$/\1 DIR/' \
        -e 's/^([0-9.]+) (.)iB more memory for the process(es)?( with )?/memory \1\2 /'
}
# Replaces an option of the recipe.
set_option() { # NAME VALUE
    local i
    for ((i = 0; i < ${#recipe[@]}; i += 2)); do
        if [ "${recipe[i]}" = "$1" ]; then recipe[i + 1]=$2 && return; fi
    done
    recipe+=("$1" "$2")
}
try_way() { # LOG WAY
    local recipe=("${recipe[@]}") words bytes=$limit
    read -ra words <<<"$2"
    if [ "${words[0]}" = memory ]; then
        bytes=$((limit + $(numfmt --from=iec "${words[1]}")))
        words=("${words[@]:2}")
    fi
    while [ ${#words[@]} -gt 0 ]; do
        set_option "${words[0]}" "${words[1]/#DIR/$folder/disk}"
        words=("${words[@]:2}")
    done
    train "$1" "$bytes"
}

fail() { # NUMBER WHAT
    failures=$((failures + 1))
    printf 'FAILED: %s\n' "$2"
    grep -v '^step' "failed-$seed-$1.log" | tail -4 | sed 's/^/    | /'
}

try_combination() { # NUMBER
    local log=failed-$seed-$1.log ways way
    draw_combination "$1"
    printf '%3d  %s; %s; cap %d MiB: ' "$1" "${model[*]}" "${recipe[*]}" "$(mib "$limit")"
    rm -rf model run
    "$build/ballast" init model "${model[@]}" --quiet >"$log" 2>&1 || { fail "$1" init && return; }
    train "$log" "$limit"
    if trained; then
        trains=$((trains + 1))
        printf 'trained, peak %d MiB\n' "$(mib "$peak")"
        rm -f "$log"
        return
    fi
    if [ "$status" != 3 ] || [ "$kills" != 0 ] || [ -e run ]; then
        fail "$1" "status $status, oom_kill $kills"
        return
    fi
    refusals=$((refusals + 1))
    ways=$(ways_of "$log")
    [ -n "$ways" ] || { fail "$1" "the hint names no way" && return; }
    printf 'no fit'
    while read -r way; do
        suggestions=$((suggestions + 1))
        mv "$log" "$log.refused"
        try_way "$log" "$way"
        cat "$log" >>"$log.refused" && mv "$log.refused" "$log"
        trained || { printf '; ' && fail "$1" "with $way status $status, oom_kill $kills" && return; }
        printf '; with %s trained, peak %d MiB' "${way% }" "$(mib "$peak")"
    done <<<"$ways"
    printf '\n'
    rm -f "$log"
}

trains=0 refusals=0 suggestions=0 failures=0
try_all() {
    for ((number = from; number < from + count; number++)); do try_combination "$number"; done
    rm -rf model run
    printf 'seed %s, combinations %s to %s: %d trained as they were, %d were refused with %d suggestions, %d failed\n' \
        "$seed" "$from" $((from + count - 1)) "$trains" "$refusals" "$suggestions" "$failures"
}
try_all > >(tee result.txt)
wait $!
if [ -n "$output" ]; then
    processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
    {
        echo "# Random models and memory limits: never killed for want of memory"
        echo
        echo "Command: \`bench/never_oom.sh --ranks $ranks --seed $seed --from $from --count $count\`."
        echo "Machine: $(nproc) cores of $processor. Date: $(date +%Y-%m-%d)."
        echo
        sed 's/^/    /' result.txt
    } >"$output"
fi
tail -1 result.txt | grep -q ' 0 failed$'
