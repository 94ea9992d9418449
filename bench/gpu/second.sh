#!/bin/bash
# The second call on a machine with one NVIDIA GPU, after first.sh was green: sustained rates, copies, graphs, offloading,
# the sanitizer, PyTorch, and as many of the remaining subjects of equal bits as fit. 400 s in all.
#   usage: bench/gpu/second.sh [--out DIR] [--bundle FILE|DIR] [--work DIR] [--budget SECONDS] [--only PART,PART...] [--bisect PART] [--rehearse]
#
# Options and files are those of first.sh. --bisect PART runs one part of either call case by case: each failing case alone, each of its
# operators, with every launch waited for, and under compute-sanitizer where it works.
# LLMC=DIR names a build of llm.c, whose train_gpt2cu is then timed on the same batch.
# shellcheck disable=SC2034 # for library.sh
call=second budget=400
# shellcheck source=bench/gpu/library.sh disable=SC2154
. "$(dirname "$0")/library.sh"
# shellcheck source=bench/gpu/list.sh disable=SC2154
. "$here/list.sh"
[ -z "$bisect" ] || first_parts
second_parts
run_parts
