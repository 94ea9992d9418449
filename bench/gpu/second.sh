#!/bin/bash
# The second check on a machine with one NVIDIA GPU, after first.sh passed: sustained rates, copies, graphs, offloading,
# the sanitizer, PyTorch, and as many more tests of equal bits as time allows. Takes 400 s.
#   usage: bench/gpu/second.sh [--out DIR] [--bundle FILE|DIR] [--work DIR] [--budget SECONDS] [--only PART,PART...] [--bisect PART] [--rehearse]
#
# Options and files are those of first.sh. --bisect PART runs one part of either script case by case. It narrows each
# failing case down to an operator, with synchronous launches, and under compute-sanitizer if that works.
# LLMC=DIR names a build of llm.c, whose train_gpt2cu is timed on the same batch.
# shellcheck disable=SC2034 # for library.sh
call=second budget=400
# shellcheck source=bench/gpu/library.sh disable=SC2154
. "$(dirname "$0")/library.sh"
# shellcheck source=bench/gpu/list.sh disable=SC2154
. "$here/list.sh"
[ -z "$bisect" ] || first_parts
second_parts
run_parts
