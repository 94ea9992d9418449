#!/bin/sh
# Runs with tensor, sequence and pipeline parallelism, with and without sharded states, write the same directory as one
# rank, file for file and tensor for tensor. In one rank, the weights give the same losses, and texts equal the ranks'
# samples. If Python has torch and transformers (BALLAST_PYTHON names another Python), transformers loads the complete
# model and computes the same logits.
# ctest: TIMEOUT 1800 PROCESSORS 2 LABELS long
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export XDG_CACHE_HOME="$place/cache"
python=${BALLAST_PYTHON:-python3}
ballast=$BALLAST_PROGRAM
logits=$(dirname "$ballast")/bench/logits

fail() {
    echo "saved_layouts: $*" >&2
    exit 1
}
quietly() { "$@" </dev/null >"$place/output" 2>&1 || { cat "$place/output" >&2 && fail "$*"; }; }
has_mpi() { command -v mpirun >/dev/null && ls "$(dirname "$ballast")"/ballast-mpi-*.so >/dev/null 2>&1; }
has_mpi || { echo "skipped: jobs of several ranks need an MPI and its plugin" && exit 77; }
checks=1
"$python" -c 'import torch, transformers' 2>/dev/null || checks=
[ "$checks" ] || echo "skipped: transformers' view; $python has no torch and transformers (BALLAST_PYTHON)"

i=0
while [ $i -lt 400 ]; do
    echo "the river ran by the old mill $((i * 7 % 31)) and on to the sea, $((i % 13)) boats in the mill's river"
    i=$((i + 1))
done >"$place/text.txt"

# 8 heads read 2 key-value heads; 4 layers.
init() { # <family>
    heads='--heads 8 --kv-heads 2'
    [ "$1" != gpt2 ] || heads='--heads 8'
    # shellcheck disable=SC2086 # words
    quietly "$ballast" init "$place/$1" --arch "$1" --hidden 64 --layers 4 $heads --vocab 300 --context 32 \
        --tokenizer-data "$place/text.txt"
}
train() { # <family> <name> <options>
    # shellcheck disable=SC2086 # words
    quietly "$ballast" train "$place/$1" "$place/text.txt" -o "$place/run-$2" --steps 6 --batch 8 --micro-batch 1 --lanes 4 \
        --seq 32 --dtype fp32 --threads 1 --lr 2e-3 --save-every 3 --sample-every 3 --sample-tokens 8 \
        --sample-prompt 'the river' --quiet $3
}
header_bytes() { # <safetensors>: of its header, which names all tensors, their shapes and places
    echo $(($(od -An -t u8 -N 8 "$1") + 8))
}
same_folder() { # <run> <run>
    (cd "$1" && ls) >"$place/a" && (cd "$2" && ls) >"$place/b"
    cmp "$place/a" "$place/b" || fail "$2 has other files"
    for file in $(cat "$place/a"); do
        case $file in
        *.safetensors)
            bytes=$(header_bytes "$1/$file")
            cmp -n "$bytes" "$1/$file" "$2/$file" || fail "$2/$file has other tensors"
            [ "$(stat -c %s "$1/$file")" = "$(stat -c %s "$2/$file")" ] || fail "$2/$file has another size"
            ;;
        ballast_manifest.json) ;; # sums of the files
        *) cmp "$1/$file" "$2/$file" || fail "$2/$file is another" ;;
        esac
    done
}
loss_of() { # <model>: on one rank
    "$ballast" eval "$1" "$place/text.txt" --seq 32 --dtype fp32 --threads 1 --json 2>/dev/null |
        sed -n 's/.*"loss": *\([0-9][0-9.e+-]*\).*/\1/p' | tail -n 1
}
near() { # <a> <b>
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && b > 0 && a - b < 2e-5 * b && b - a < 2e-5 * b) }'
}

text_of() { sed -n 's/.*"text": *\(".*"\)[,}].*/\1/p'; }
same_sample() { # <run> <step> <model of that step>: one rank writes the same
    found=$(grep "^{\"step\":$2," "$1/samples.jsonl" | text_of)
    expected=$("$ballast" generate "$1/$3" --prompt 'the river' --tokens 8 --seq 32 --dtype fp32 --threads 1 --json \
        </dev/null 2>/dev/null | text_of)
    [ "$expected" ] && [ "$found" = "$expected" ] || fail "$1, step $2: ranks wrote $found, one rank writes $expected"
}

check() { # <family> <name>
    one=$place/run-$1-alone many=$place/run-$2
    same_folder "$one/model" "$many/model"
    found=$(loss_of "$many/model") expected=$(loss_of "$one/model")
    near "$found" "$expected" || fail "$2: loss $found, one rank's model has $expected"
    same_sample "$many" 3 checkpoints/step-00000003
    same_sample "$many" 6 model
    [ "$checks" ] || return 0
    quietly "$logits" "$many/model" "$place/logits.safetensors"
    quietly "$python" "$BALLAST_SOURCE/tests/reference/check_transformers.py" "$many/model" "$place/logits.safetensors"
}

# A layout a line; each family has its turn, in long sweeps all.
number=0
while read -r options; do
    number=$((number + 1)) turn=0
    for family in llama phi3 gpt2; do
        turn=$((turn + 1))
        [ "${BALLAST_LONG-}" ] || [ $((number % 3 + 1)) = $turn ] || continue
        [ -e "$place/$family" ] || { init $family && train $family $family-alone ''; }
        train $family $family-$number "$options"
        check $family $family-$number
        echo "$family $options: as one rank's"
    done
done <<END
--ranks 2 --tensor-parallel 2
--ranks 4 --tensor-parallel 4 --sequence-parallel on
--ranks 2 --tensor-parallel 2 --layout solver
--ranks 4 --tensor-parallel 2 --partition zero3
--ranks 4 --tensor-parallel 2 --pipeline-parallel 2
--ranks 4 --pipeline-parallel 2 --partition zero2
--ranks 4 --tensor-parallel 2 --layout solver --partition zero1
--ranks 8 --tensor-parallel 2 --pipeline-parallel 2 --partition zero3 --sequence-parallel on
END
