# shellcheck shell=bash disable=SC2154 # check.sh sets what is not set here
# What check.sh's parts do. Each runs in a shell of its own, in the folder of logs, within $limit seconds. The last line
# that begins with "= " is the part's result; 77 says that something it needs is not here.
# Uses: place (the bundle), work, ballast, limit, peak_flops.
set -u -o pipefail
# shellcheck source=bench/gpu/tests.sh
. "$here/tests.sh"
# shellcheck source=bench/gpu/place.sh
. "$here/place.sh"

# Nothing comes from the machine but the C library, the driver and, with a thin bundle, NVIDIA's libraries. What binaries
# list must be there; of NVIDIA's, cuBLASLt.
libraries() {
    local lacking version absent
    find "$place/lib" -type l -printf '%f is %l\n'
    lacking=$(ldd "$ballast" "$place"/tests/test_* "$place"/bench/* | grep -E 'not found|not a dynamic' | sort -u)
    absent=$(place_missing "$place")
    lacking=$lacking$(grep '^libcublasLt' <<<"$absent")
    echo "$lacking"
    version=$("$ballast" --version) || echo "ERROR: ballast does not start: $version"
    echo "= ${version%%$'\n'*}${lacking:+; MISSING: $(echo "$lacking" | paste -sd ' ')}${absent:+; not here: $(echo "$absent" | paste -sd ' ')}"
    [ -z "$lacking" ] && "$ballast" --version >/dev/null
}

rates() {
    "$ballast" profile --device cuda --device-memory 16G --host-memory 8G --disk "$work" | tee rates.txt || return
    echo "= bf16 $(sed -n 's/^bf16 products *//p' rates.txt), fp32 $(sed -n 's/^fp32 products *//p' rates.txt);" \
        "copies in $(sed -n 's/^host *to device *//p' rates.txt), out $(sed -n 's/^device *to host *//p' rates.txt)"
}

# Each operator's time beside the card's limit: by bytes at the rate of zeros, by FLOPs at the data sheet's.
operators() {
    make_model gpt2 || return
    "$ballast" profile "$work/gpt2" --device cuda --dtype bf16 --batch 32 --seq 1024 | tee operators.txt || return
    local memory
    memory=$(sed -n 's/^zeros *to memory *\([0-9.]*\) GB.*/\1/p' operators.txt)
    awk -v gbps="${memory:-0}" -v peak="$peak_flops" '
        /^operator / { rows = 1; next }
        rows && $8 ~ /%/ { part = $5 * 1e9 / peak; bytes = gbps > 0 ? $6 / gbps : 0
            printf "  %-22s %10s ms %5.1f%% of the step, %4.0f%% of the card\n", $1, $4, $8, 100 * (part > bytes ? part : bytes) }
        ' operators.txt | tee parts-of-limit.txt
    echo "= $(sed -n 's/^all operators of a step, one after the other: //p' operators.txt) in operators;" \
        "most: $(head -4 parts-of-limit.txt | awk '{ printf "%s%s %s of the step at %s of the card", (NR > 1 ? ", " : ""), $1, $4, $8 }')"
}

bench() { "$place/bench/$1"; }

# make_model NAME: shapes of the published ones.
make_model() {
    local shape
    case $1 in
    gpt2) shape='--arch gpt2 --layers 12 --hidden 768 --heads 12 --vocab 50257 --context 1024' ;;
    llama-1b) shape='--arch llama --layers 16 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 --vocab 128256 --context 1024 --tied' ;;
    llama-3b) shape='--arch llama --layers 28 --hidden 3072 --heads 24 --kv-heads 8 --ffn 8192 --vocab 128256 --context 1024 --tied' ;;
    llama-8b) shape='--arch llama --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256 --context 1024' ;;
    esac
    # shellcheck disable=SC2086 # options
    [ -e "$work/$1/config.json" ] || "$ballast" init "$work/$1" $shape --quiet
}

# make_tokens BATCH: of a vocabulary that every model has; prints the file.
make_tokens() {
    local tokens=$work/tokens-$1.bin
    [ -e "$tokens" ] || python3 "$here/token_file.py" "$tokens" $(($1 * 1024 + 1)) 50257 || return
    echo "$tokens"
}

field() { sed -n "s/.*\"$2\": \\([0-9.e+-]*\\).*/\\1/p" "$1"; }
median() { sort -g | awk '{ s[NR] = $1 } END { print s[int((NR + 1) / 2)] }'; }
used_mib() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -1; }

# While a run goes on: what the card holds after its third step.
watch_memory() {
    while [ "$(wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0)" -lt 3 ]; do sleep 0.2; done
    used_mib >"$1.memory"
}

# steps MODEL BATCH STEPS OPTIONS...: the steps that were made count, also where the time was too short for the rest.
steps() {
    local name=$1 batch=$2 count=$3 run=$work/run-$1-$$ tokens code=0 before arena flops watcher
    shift 3
    make_model "$name" || return
    tokens=$(make_tokens "$batch") || return
    before=$(used_mib)
    timeout --foreground $((limit / 3)) "$ballast" plan "$work/$name" --device cuda --dtype bf16 --batch "$batch" --seq 1024 "$@" |
        tee plan.txt || echo "no plan: nothing is predicted"
    arena=$(sed -n '/^device tier/,/^ *arena/s/^ *arena *\([0-9]*\) B.*/\1/p' plan.txt | head -1)
    flops=$(sed -n 's/.*, \([0-9.e+]*\) model FLOPs a token.*/\1/p' plan.txt)
    watch_memory "$run" &
    watcher=$!
    timeout --foreground -s KILL $((limit > SECONDS + 8 ? limit - SECONDS - 3 : 5)) "$ballast" train "$work/$name" "$tokens" -o "$run" \
        --device cuda --dtype bf16 --batch "$batch" --seq 1024 --steps "$count" --save-every 0 --schedule constant \
        --warmup-steps 0 "$@" || code=$?
    kill $watcher 2>/dev/null
    [ $code = 0 ] || [ $code = 137 ] || return $code
    [ "$(wc -l <"$run/metrics.jsonl")" -ge 4 ] || return 124
    cp "$run/metrics.jsonl" "metrics-$name.jsonl"
    awk -v name="$name" -v step="$(sed 1,3d "$run/metrics.jsonl" >"$run.late" && field "$run.late" step_s | median)" \
        -v tokens=$((batch * 1024)) -v flops="${flops:-0}" -v peak="$peak_flops" -v mfu="$(field "$run.late" mfu | tail -1)" \
        -v predicted="$(field "$run.late" predicted_step_s | tail -1)" -v arena="${arena:-0}" -v before="$before" \
        -v held="$(cat "$run.memory" 2>/dev/null)" -v losses="$(field "$run/metrics.jsonl" loss | head -2 | paste -sd ' ')" 'BEGIN {
            printf "= %s: %.0f tokens/s, %.4f s a step, MFU %.1f%% of the data sheet, %.1f%% of measured; ", name, tokens / step, step,
                100 * flops * tokens / step / peak, 100 * mfu
            if (predicted > 0) printf "predicted %.4f s (%+.0f%%); ", predicted, 100 * (predicted / step - 1)
            else printf "not predicted; "
            if (held != "") printf "%.0f MiB beyond the arena; ", held - before - arena / 1048576
            printf "losses %s\n", losses }' || return
    rm -rf "$run" "$run".*
}

# A file of 32 GB is made, written and read for the larger one.
largest() {
    local room
    room=$(df --output=avail -BG "$work" | tail -1 | tr -dc 0-9)
    if [ "$limit" -ge 100 ] && [ "$((room + $(du -sBG "$work" | sed 's/G.*//')))" -ge 36 ]; then
        rm -rf "$work"/{gpt2,llama-1b,llama-3b}
        steps llama-8b 32 4
    else
        steps llama-3b 16 5
    fi
}

# train_run NAME STEPS: of the small model that `runs` made.
train_run() {
    "$ballast" train "$work/writer" "$work/text.txt" -o "$work/$1" --device cuda --dtype bf16 --batch 4 --grain 2 --seq 64 \
        --steps "$2" --save-every 2 --schedule constant --warmup-steps 0 --quiet
}
write_text() { "$ballast" generate "$work/whole" --device "$1" --dtype fp32 --temperature 0 --prompt 'part' --tokens 32 --quiet; }

# What a user does, from a text to a text. The programs of fp32 differ by rounding alone, so their words are the same.
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
    on_gpu=$(write_text cuda) && on_host=$(write_text cpu) || return
    if [ -z "$on_gpu" ] || [ "$on_gpu" != "$on_host" ]; then
        echo "ERROR: the GPU wrote: $on_gpu; the processor: $on_host"
        return 1
    fi
    echo '= weights are the same after a resume, and so is the text that the processor writes'
}

# Whole steps of the fixtures' models under the sanitizer.
sanitize() {
    local tokens=$work/tokens-211.bin name dtype
    python3 "$here/token_file.py" "$tokens" 600 211 || return
    for dtype in bf16 fp32; do
        for name in llama gpt2; do
            rm -rf "$work/sanitized"
            compute-sanitizer --tool "$1" --error-exitcode 9 "$ballast" train "$place/fixtures/models/$name" "$tokens" \
                -o "$work/sanitized" --device cuda --dtype $dtype --batch 3 --grain 2 --seq 16 --steps 2 --save-every 0 \
                --threads 2 --quiet || return
            echo "= $name $dtype and those before it without a finding"
        done
    done
}

# PyTorch's best beside it: compiled, fused AdamW, SDPA.
pytorch() {
    local tokens
    make_model "$1" || return
    tokens=$(make_tokens "$2") || return
    python3 "$here/pytorch_step.py" "$work/$1" "$tokens" --batch "$2" --seq 1024 --steps 10 --micro "$3" >"pytorch-$1.json" || return
    python3 -c 'import json, statistics, sys
peer = json.load(open(sys.argv[1]))
step = statistics.median(peer["step_s"][4:])
print(f"= {int(sys.argv[2]) * 1024 / step:.0f} tokens/s, {step:.4f} s a step; losses", *peer["losses"][:2])' "pytorch-$1.json" "$2"
}
