#!/bin/bash
# The first check on a machine with one NVIDIA GPU (compute capability 9.0): is every kernel right, do policies keep the
# bits, how fast is a step? Takes 225 s, most important parts first. Exits with 0 if every check passes; then second.sh
# may follow on the same machine.
#   usage: bench/gpu/first.sh [--out DIR] [--bundle FILE|DIR] [--work DIR] [--budget SECONDS] [--only PART,PART...] [--rehearse]
#
#     here:        bench/gpu/bundle.sh                 writes build-gpu/gpu.tar.xz, which git ignores
#     on the GPU:  bench/gpu/first.sh && bench/gpu/second.sh
#                  with this checkout (no .git needed), build-gpu/gpu.tar.xz, the driver, and cuBLASLt of the toolkit or of pip
#
# Writes first.md and first.tar.gz to DIR (default: $OUT, else /tmp/ballast-gpu/out). Uses no network and does not
# change the GPU's settings. --rehearse runs the tests of bench/gpu/bundle.sh --rehearse without a GPU.
# shellcheck disable=SC2034 # for library.sh
call=first budget=225
# shellcheck source=bench/gpu/library.sh disable=SC2154
. "$(dirname "$0")/library.sh"
# shellcheck source=bench/gpu/list.sh disable=SC2154
. "$here/list.sh"
first_parts
run_parts
