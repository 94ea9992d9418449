#!/bin/sh
# Makes tests/fixtures/report/recorded.tar.gz: a short run of Ballast with everything that the page draws: a policy from
# the search with a disk, recomputation, samples, validation and a prediction. (make_report_fixtures.py makes
# report/run, with the timelines of older versions.)
#   usage: tests/reference/make_recorded_run.sh BALLAST
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
out=$source/tests/fixtures/report/recorded.tar.gz
work=/tmp/ballast-report-fixture # it is in the files
rm -rf "$work"
mkdir "$work"
cat "$source"/docs/*.md >"$work/text.txt"
tail -c 40000 "$work/text.txt" >"$work/valid.txt"
"$1" init "$work/model" --arch llama --hidden 128 --layers 4 --heads 4 --ffn 384 --vocab 512 --context 64 --tied \
    --tokenizer-data "$work/text.txt" --seed 3
"$1" train "$work/model" "$work/text.txt" --valid "$work/valid.txt" -o "$work/recorded" --batch 8 --seq 64 --micro-batch 4 \
    --device-memory 7M --disk "$work" --steps 40 --lr 3e-3 --valid-every 10 --valid-batches 2 --sample-every 10 \
    --sample-prompt 'The plan' --sample-tokens 40 --save-every 40 --quiet
"$1" simulate "$work/recorded" >/dev/null
(cd "$work" && tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - recorded/run.json recorded/plan.json \
    recorded/metrics.jsonl recorded/samples.jsonl recorded/timeline.json recorded/predicted.json) | gzip -9n >"$out"
rm -rf "$work"
