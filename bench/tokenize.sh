#!/bin/sh
# Tokenizes 100 MB compared with the `tokenizers` library, both on one thread in one run.
#   usage: bench/tokenize.sh PYTHON [BUILD] [DIR]
# PYTHON has tests/reference/requirements.txt. BUILD (build) holds bench/tokenize_speed. Text and tokenizers are made in
# DIR (BUILD/bench-tokenize) where they are not there yet.
set -eu
if [ $# -lt 1 ]; then
    sed -n '2,5s/^# *//p' "$0" >&2
    exit 2
fi
source=$(cd "$(dirname "$0")/.." && pwd)
python=$1
build=${2:-$source/build}
folder=${3:-$build/bench-tokenize}
if [ ! -e "$folder/llama2.json" ]; then
    mkdir -p "$folder"
    "$source/scripts/make-demo-text.sh" "$folder/demo.txt"
    "$python" "$source/bench/tokenize_peer.py" make "$folder/demo.txt" "$folder"
fi
for name in byte_level metaspace llama2; do
    echo "== $name"
    "$build/bench/tokenize_speed" "$folder/$name.json" "$folder/text.txt"
    "$python" "$source/bench/tokenize_peer.py" run "$folder/$name.json" "$folder/text.txt"
done
echo "== worst word"
"$build/bench/tokenize_speed"
