#!/bin/sh
# Shows that what `ballast train` writes loads in transformers and gives the same logits: a Llama trained in bf16 and a GPT-2
# in fp32, the final model and a checkpoint of each. Needs Python with tests/reference/requirements.txt.
#
#     bench/transformers.sh [PYTHON] [BUILD]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
build=${2:-$root/build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

"$root/scripts/make-demo-text.sh" "$work/text.txt"
check() {
    "$build/bench/logits" "$1" "$work/logits.safetensors"
    "$python" "$root/tests/reference/check_transformers.py" "$1" "$work/logits.safetensors" 2>/dev/null
}
cd "$work"
for arch in llama gpt2; do
    dtype=bf16
    if [ $arch = gpt2 ]; then dtype=fp32; fi
    echo "== $arch, trained in $dtype"
    "$build/ballast" init $arch --arch $arch --hidden 192 --layers 4 --heads 6 --vocab 2048 --context 128 --tied \
        --tokenizer-data text.txt
    "$build/ballast" train $arch text.txt -o run-$arch --dtype $dtype --steps 60 --save-every 30 --lr 2e-3 --quiet
    check run-$arch/model
    check run-$arch/checkpoints/step-00000030
done
