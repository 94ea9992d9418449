#!/bin/sh
# Tests that models of `ballast train` load in transformers and give the same logits, for every family. Checks the final
# model and a checkpoint; GPT-2 and OPT train in fp32, the others in bf16. Needs Python with
# tests/reference/requirements.txt, and the text of scripts/install-packages.sh demo.
#
#     bench/transformers.sh [PYTHON] [BUILD] [FAMILY]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/${python##*/} ;; esac
build=$(cd "${2:-$root/build}" && pwd)
if [ ! -x "$build/bench/logits" ]; then
    echo "transformers: $build/bench/logits is not there: ninja -C $build logits" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

"$root/scripts/make-demo-text.sh" "$work/text.txt"
check() {
    "$build/bench/logits" "$1" "$work/logits.safetensors"
    "$python" "$root/tests/reference/check_transformers.py" "$1" "$work/logits.safetensors" 2>"$work/errors" ||
        { cat "$work/errors" >&2 && return 1; }
}
cd "$work"
# Rows of the table have the form "| `llama` | positions | norm | MLP | grouped queries | sliding window | ...".
"$build/ballast" help models | awk -F ' *[|] *' '$2 ~ /^`[a-z0-9_]+`$/ && $2 != "`model_type`" { gsub("`", "", $2); print $2, $7 }' >families
for arch in ${3:-$(cut -d' ' -f1 families)}; do
    dtype=bf16 window=
    case $arch in
    gpt2 | opt) dtype=fp32 ;;
    esac
    if grep -qx "$arch yes" families; then window='--window 24'; fi
    echo "== $arch, trained in $dtype"
    "$build/ballast" init $arch --arch $arch --hidden 192 --layers 4 --heads 6 --vocab 2048 --context 128 --tied $window \
        --tokenizer-data text.txt
    "$build/ballast" train $arch text.txt -o run-$arch --dtype $dtype --steps 60 --save-every 30 --lr 2e-3 --quiet
    check run-$arch/model
    check run-$arch/checkpoints/step-00000030
done
