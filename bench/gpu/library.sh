# shellcheck shell=bash disable=SC2154
# Runs the parts of a check on a machine with a GPU, and writes a report. first.sh and second.sh set `call` (their name)
# and `budget` (seconds for all parts), and list parts with `check` and `measure`; parts.sh defines the parts.
#
# After a part that fails or runs out of time, the next one follows. The report, DIR/CALL.md, and all logs,
# DIR/CALL.tar.gz, are written after every part, every ten seconds, and on exit. DIR is --out, else $OUT.
set -u
export LC_ALL=C OMP_WAIT_POLICY=passive
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
work=/tmp/ballast-gpu bundle=$source/build-gpu/gpu.tar.xz out='' only='' bisect='' rehearse=''
command="$call.sh $*"

usage() {
    sed -n '/^#   usage: /s/^# *//p' "$here/$call.sh" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --rehearse) rehearse=yes && shift && continue ;;
    --bundle | --out | --work | --budget | --only | --bisect) [ $# -ge 2 ] || usage ;;&
    --bundle) bundle=$(realpath "$2") ;;
    --out) out=$2 ;;
    --work) work=$2 ;;
    --budget) budget=$2 ;;
    --only) only=,$2, ;;
    --bisect) [ "$call" = second ] || usage && bisect=$2 ;;
    *) usage ;;
    esac
    shift 2
done
out=${out:-${OUT:-$work/out}}
mkdir -p "$out" "$work/$call" || exit 1
out=$(cd "$out" && pwd) work=$(cd "$work" && pwd) logs=$(cd "$work/$call" && pwd)
cd "$logs" || exit 1
rm -rf ./*
PATH=$PATH:/usr/local/cuda/bin
rows=$logs/rows
: >"$rows"
# Models are in a memory file system, so that only the disk tier uses the disk.
models=/dev/shm/ballast-gpu-$$
[ -w /dev/shm ] || models=$work/models

# The GPU, and the bf16 FLOP/s in its data sheet. A rehearsal uses the emulator, the deferred device and the CPU
# instead, with ten times the time limits.
gpu=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null | head -1)
case $gpu in
*H100*PCIe*) peak_flops=756e12 ;;
*A100*) peak_flops=312e12 ;;
*) peak_flops=989e12 ;;
esac
device=cuda tests_on=cuda slowness=1
[ -z "$rehearse" ] || device=cpu tests_on=deferred slowness=10 budget=$((10 * budget))
if [ -z "$gpu$rehearse" ]; then
    echo "$call: no NVIDIA GPU here; --rehearse runs without one" >&2
    exit 2
fi
gpu=${gpu:-none}

# ---- the bundle ----

# Prints directories that may contain NVIDIA's libraries: the loader's, the toolkit's, those of pip's packages.
nvidia_directories() {
    tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}"
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | sed -n 's,.*lib\(cublasLt\|cudnn\|nccl\|nvrtc\)\.so.* => \(.*\)/.*,\2,p'
    printf '%s\n' /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib
    python3 -c 'import glob, nvidia
for root in nvidia.__path__: print(*glob.glob(root + "/*/lib"), sep="\n")' 2>/dev/null
}

has() { compgen -G "$1/$2" >/dev/null; } # DIR PATTERN

# borrow_directory PATTERN DIR...: prints the first directory with such a file; for cuBLASLt, the one with the newest
# version.
borrow_directory() {
    local pattern=$1 directory found=()
    shift
    for directory in "$@"; do has "$directory" "$pattern" && found+=("$directory"); done
    [ ${#found[@]} -gt 0 ] || return 0
    if [[ $pattern == libcublasLt* ]]; then
        local newest
        newest=$("$place/bench/library_version" "${found[@]/%//$pattern}" 2>/dev/null | sort -n | tail -1)
        [ -z "$newest" ] || found=("$(dirname "${newest#* }")")
    fi
    echo "${found[0]}"
}

# Links the libraries that the bundle borrows into its lib.
borrow() {
    local pattern directory directories
    mapfile -t directories < <(nvidia_directories | sed '/./!d')
    while read -r pattern; do
        if has "$place/lib" "$pattern"; then continue; fi
        directory=$(borrow_directory "$pattern" "${directories[@]}")
        # shellcheck disable=SC2086 # a pattern
        [ -z "$directory" ] || ln -s "$directory"/$pattern "$place/lib/"
    done <"$place/borrowed"
}

# Patterns without a matching file.
borrowed_missing() {
    local pattern
    while read -r pattern; do has "$place/lib" "$pattern" || echo "$pattern"; done <"$place/borrowed"
}

# Unpacks with Python if xz is missing.
unpack() {
    rm -rf "$work/bundle" && mkdir -p "$work/bundle" || return
    tar -C "$work/bundle" -xf "$1" 2>/dev/null || python3 -m tarfile -e "$1" "$work/bundle" 2>/dev/null
}

place=$bundle
[ -d "$bundle" ] || place=$work/bundle
if [ -f "$bundle" ] && ! unpack "$bundle" || [ ! -x "$place/ballast" ]; then
    echo "$call: $bundle is missing, or cannot be unpacked without xz or python3; bench/gpu/bundle.sh makes it" >&2
    exit 2
fi
[ -e "$place/fixtures" ] || ln -s "$source/tests/fixtures" "$place/fixtures"
borrow
ballast=$place/ballast
commit=$(cat "$place/commit" 2>/dev/null || echo unknown)
export here source place work logs models ballast device tests_on peak_flops rehearse gpu
export XDG_CACHE_HOME=$work/cache

# ---- the report ----

row() { # NAME STATE TEXT
    printf '%-18s %-9s %s\n' "$1" "$2" "$3" | tee -a "$rows"
    report
}

memory_total() { sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo | awk '{ printf "%.1f GiB", $1 / 1048576 }'; }

# The lowest and highest clock while the GPU was busy, and reasons to slow down in hexadecimal (nvidia-smi names them).
clocks() {
    awk -F', ' '$2 ~ /^[0-9]+$/ && $6 > 50 { if (!n++ || $2 < low) low = $2; if ($2 > high) high = $2; why[$5]++
            if ($3 > power) power = $3; if ($4 > heat) heat = $4 }
        END { if (!n) exit; printf "Clocks while busy: %d to %d MHz, at most %.0f W and %d C; reasons to slow down:", low, high, power, heat
            for (w in why) printf " %s in %d of %d s", w, why[w], n; print "." }' clocks.csv 2>/dev/null
}

# Replaces both files atomically.
report() {
    local new=$out/.$BASHPID
    {
        echo "# $call call on a GPU"
        echo
        echo "Command: \`$command\`, $SECONDS s of $budget s. GPU: $gpu. Machine: $(nproc) cores of$(
            sed -n 's/^model name[^:]*://p' /proc/cpuinfo | head -1
        ), MemTotal $(memory_total). Commit: $commit. Date: $(date +%Y-%m-%d)."
        [ -z "$rehearse" ] || echo "A rehearsal on the emulator, the deferred device and the CPU: no figure is a GPU's."
        clocks
        echo
        sed 's/^/    /; s/ *$//' "$rows"
        [ ! -e running ] || echo "    $(cat running) $(sed -n 's/^= //p' "$(cut -d ' ' -f 1 running).log" 2>/dev/null | tail -1)"
        [ ! -e ended ] || printf '\nEnded: %s.\n' "$(cat ended)"
    } >"$new.md" 2>/dev/null
    mv "$new.md" "$out/$call.md"
    tar -C "$logs" -czf "$new.tar" . 2>/dev/null
    mv "$new.tar" "$out/$call.tar.gz"
}

finish() {
    local code=$?
    trap '' INT TERM HUP
    # shellcheck disable=SC2086 # process ids
    kill ${ticker:-} ${smi:-} 2>/dev/null
    [ -z "${running:-}" ] || kill -TERM -- "-$running" 2>/dev/null
    [ -e ended ] || echo "${1:-status $code}" >ended
    report
    rm -rf "$models"
}
trap finish EXIT
for signal in INT TERM HUP; do
    # shellcheck disable=SC2064 # its name now
    trap "finish 'signal $signal'; exit 1" $signal
done

# ---- parts ----

# check NAME SECONDS NEEDS WHAT COMMAND...: a part that must pass in time. NEEDS lists requirements: test:NAME and
# bench:NAME of the bundle, command:NAME, torch, nccl, nvidia (cuBLASLt), gpu.
# measure NAME ...: the same, but running out of time is not a failure.
names=() kinds=() limits=() needs=() what=() commands=()
add_part() {
    kinds+=("$1") names+=("$2") limits+=($(($3 * slowness))) needs+=("$4") what+=("$5")
    shift 5
    commands+=("$*")
}
check() { add_part check "$@"; }
measure() { add_part measure "$@"; }

# lacks INDEX: prints the missing requirements of a part.
lacks() {
    local need lacking=''
    for need in ${needs[$1]}; do
        case $need in
        test:*) [ -x "$place/tests/test_${need#*:}" ] ;;
        bench:*) [ -x "$place/bench/${need#*:}" ] ;;
        command:*) command -v "${need#*:}" ;;
        gpu) [ "$gpu" != none ] ;;
        nvidia) ! borrowed_missing | grep -q '^libcublasLt' ;;
        nccl) [ -n "${BALLAST_NCCL:-}" ] || ! borrowed_missing | grep -q '^libnccl' ;;
        torch) python3 -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("torch") and u.find_spec("transformers")))' ;;
        esac >/dev/null 2>&1 || lacking="$lacking${lacking:+, }$need"
    done
    echo "$lacking"
}

# The seconds for part INDEX: the remaining time minus the limits of later parts, so that later parts gain saved time.
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
    local name=${names[$1]} log=${names[$1]}.log at=$SECONDS code lacking limit result late='cut off'
    lacking=$(lacks "$1")
    if [ -n "$lacking" ]; then
        [[ $lacking == *test:* || $lacking == *bench:* ]] && row "$name" FAILED "the bundle lacks $lacking" && return
        row "$name" lacks "$lacking (${what[$1]})"
        return
    fi
    limit=$(seconds_of "$1")
    [ "$limit" -ge 4 ] || {
        row "$name" 'left out' 'no time'
        return
    }
    export limit part=$name
    echo "$name runs since $at s:" >running
    # Runs in the background, so that a signal ends the wait and not the report, and in its own process group, which can
    # be killed as a whole.
    # shellcheck disable=SC2016,SC2086 # the other shell's; words of a command
    setsid timeout -k 3 "$limit" bash -c '. "$here/parts.sh"; "$@"' part ${commands[$1]} >"$log" 2>&1 &
    running=$!
    wait $running
    code=$?
    running=''
    rm -f running
    result=$(sed -n 's/^= //p' "$log" | tail -1)
    [ "$code" != 0 ] || [ -n "$result" ] || code=none
    [ "${kinds[$1]}" = measure ] || late=FAILED
    case $code in
    0) row "$name" ok "$result ($((SECONDS - at)) s)" ;;
    77) row "$name" lacks "$result" ;;
    124 | 137) row "$name" "$late" "after $limit s: $result" ;;
    none) row "$name" FAILED 'ended without a result' ;;
    *) row "$name" FAILED "$result $(grep -aE 'ERROR|error|BUG|FAILED' "$log" | head -1 | cut -c 1-160) ($((SECONDS - at)) s)" ;;
    esac
}

# Keeps the parts that --only names, or the one part of --bisect, case by case.
select_parts() {
    local i wanted=${bisect:+,$bisect,} name
    wanted=${wanted:-$only}
    for name in ${wanted//,/ }; do
        [[ " ${names[*]} " == *" $name "* ]] || {
            echo "$call: unknown part '$name'; the parts are: ${names[*]}" >&2
            exit 2
        }
    done
    for i in "${!names[@]}"; do
        [ -z "$wanted" ] || [[ $wanted == *,${names[i]},* ]] || unset "names[i]" "kinds[i]" "limits[i]" "needs[i]" "what[i]" "commands[i]"
    done
    names=("${names[@]}") kinds=("${kinds[@]}") limits=("${limits[@]}") needs=("${needs[@]}") what=("${what[@]}") commands=("${commands[@]}")
    [ -z "$bisect" ] || commands=("bisect ${commands[0]}")
}

# Runs the parts. Exits with 1 if one failed.
run_parts() {
    local i reasons
    select_parts
    if [ "$gpu" != none ]; then
        for reasons in clocks_event_reasons.active clocks_throttle_reasons.active; do
            nvidia-smi --query-gpu=$reasons --format=csv,noheader >/dev/null 2>&1 && break
        done
        timeout $((budget + 30)) nvidia-smi --query-gpu=timestamp,clocks.sm,power.draw,temperature.gpu,$reasons,utilization.gpu \
            --format=csv,noheader,nounits -l 1 >clocks.csv 2>&1 &
        smi=$!
    fi
    while sleep 10 && kill -0 $$; do report; done >/dev/null 2>&1 & # ends if this script is killed
    ticker=$!
    for i in "${!names[@]}"; do run_part "$i"; done
    echo "all parts had their turn, $SECONDS s" >ended
    report
    echo
    cat "$out/$call.md"
    ! grep -qE '^[^ ]+ +FAILED' "$rows"
    exit
}
