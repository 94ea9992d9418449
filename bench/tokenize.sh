#!/bin/sh
# Compares tokenizing 100 MB with the `tokenizers` library, both on one thread in one run.
#   usage: bench/tokenize.sh PYTHON [BUILD] [DIR]
# PYTHON has tests/reference/requirements.txt installed. BUILD (build) has bench/tokenize_speed. The script creates text
# and tokenizers in DIR (BUILD/bench-tokenize), unless they exist.
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
