#!/bin/sh
# ctest: PROCESSORS 2 LABELS long
# The files that the program writes match docs/schemas, and docs/formats.md is generated from these.
set -eu
formats=$BALLAST_SOURCE/scripts/formats.py
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
command -v python3 >/dev/null || { echo "skipped: python3 is not installed" && exit 77; }

"$BALLAST_PROGRAM" help schemas | "$formats" settings --check
"$formats" print >"$place/formats.md"
cmp -s "$place/formats.md" "$BALLAST_SOURCE/docs/formats.md" || {
    echo "run: scripts/formats.py print > docs/formats.md" && exit 1
}
python3 -c 'import jsonschema' 2>/dev/null || { echo "skipped: python3-jsonschema is not installed" && exit 77; }

export XDG_CACHE_HOME="$place/cache"
cd "$place"
ballast() { "$BALLAST_PROGRAM" "$@" 2>>errors || { echo "ballast $* failed: $(tail -n 3 errors)" >&2; exit 1; }; }
hold() { # SCHEMA FILE...: what is not as described is named
    "$formats" check "$@" || { echo "not as docs/schemas/$1.json says" && exit 1; }
}

# A text of a small language, and a model that reads it.
awk 'BEGIN { srand(7); for (i = 0; i < 1500; i++) { for (j = 0; j < 12; j++)
    printf "%c%c%c ", 97 + rand() * 9, 97 + rand() * 5, 97 + rand() * 3; print "" } }' >text.txt
head -n 150 text.txt >valid.txt
ballast init model --arch llama --hidden 32 --layers 3 --heads 4 --kv-heads 2 --ffn 64 --vocab 300 --context 64 \
    --tokenizer-data text.txt --quiet
shape="--batch 4 --seq 32 --micro-batch 2"

# Plans: plain, for text, and one that a search found because all does not fit.
ballast plan model $shape --json -o plain.json >plan.out
ballast plan model --for generate --seq 32 --json >text_plan.out
needed=$(sed -n 's/.*"program_bytes": \([0-9]*\),.*/\1/p' plain.json | head -n 1)
ballast plan model $shape --device-memory $((needed * 7 / 10240))K --disk "$place:1G" --json -o searched.json >search.out
grep -q '"enumerated"' search.out || { echo "no search was needed: the test shows less than it says" && exit 1; }
hold plan plan.out plain.json text_plan.out search.out searched.json
ballast plan gpt2 --ranks 8 --nodes 1 --cluster h100x8 --explain --json >explained.out
grep -q '12 heads do not divide by the 8 devices of axis 0' explained.out || { echo "no dropped strategy" && exit 1; }
hold plan explained.out
ballast plan gpt2 --cluster a100-80x8 --devices 16 --batch 64 --price 2 --tokens 1B --target-days 3 --json >many.out
hold cluster_plan many.out

# Runs: with all that there is, from a searched plan with a disk, of adapters, one that goes on, and a mixture.
ballast train model text.txt -o full $shape --steps 4 --valid valid.txt --valid-every 2 --sample-every 2 --save-every 2 \
    --sample-prompt ab --json >train.out
ballast resume full --steps 6 --json --quiet >resume.out
ballast train model text.txt -o disk --plan searched.json --disk "$place:1G" --steps 3 --quiet --json >disk.out
ballast train model text.txt -o lora $shape --lora 2,4,all-linear --freeze '*norm*' --epochs 0.004 --quiet
ballast train --config lora/run.json -o again --quiet
hold train train.out resume.out disk.out
for text in '"run": "full"' '"model": "full/model"' '"checkpoint": "full/checkpoints/step-00000006"' '"step": 6' '"steps": 2'; do
    grep -q "$text" resume.out || { echo "resume --json does not say $text" && exit 1; }
done
ballast init experts --arch mixtral --hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 32 --vocab 300 --context 64 \
    --tokenizer-data text.txt --quiet
ballast train experts text.txt -o mixture $shape --steps 2 --quiet
grep -q '"expert_slots": \[\[' mixture/metrics.jsonl || { echo "no slots of experts" && exit 1; }
# In runs of earlier versions a number that was not given is 0 or -1.
sed 's/"\(schedule_steps\|chat_time_s\|epochs\)": [^,]*/"\1": 0/; s/"warmup_steps": [^,]*/"warmup_steps": -1/' \
    lora/run.json >older.json
grep -q '"warmup_steps": -1' older.json || { echo "run.json has no warmup_steps" && exit 1; }
hold run full/run.json disk/run.json lora/run.json again/run.json older.json
for text in 'for 4 on each of 2 nodes' 'rows-held: as Ballast 0.1.0 packed them' 'null: `steps`'; do
    grep -q "$text" "$BALLAST_SOURCE/docs/formats.md" || { echo "docs/formats.md does not say $text" && exit 1; }
done
hold metrics full/metrics.jsonl disk/metrics.jsonl lora/metrics.jsonl mixture/metrics.jsonl
hold samples full/samples.jsonl
hold timeline full/timeline.json disk/timeline.json
hold plan full/plan.json disk/plan.json lora/plan.json
hold end full/end.json disk/end.json
hold state full/checkpoints/*/state.json disk/checkpoints/*/state.json lora/checkpoints/*/state.json
hold manifest full/checkpoints/*/ballast_manifest.json full/model/ballast_manifest.json lora/model/ballast_manifest.json

# One that fails after it began: its loss is not finite.
if "$BALLAST_PROGRAM" train model text.txt -o failed $shape --steps 50 --lr 1000 --weight-decay 1000 --beta1 0 --beta2 0 \
    --warmup-steps 0 --schedule constant --json --quiet >failed.out 2>>errors; then
    echo "a run whose weights grow by 10^6 each step did not fail" && exit 1
fi
grep -q '"how": "failed"' failed.out
hold train failed.out
hold end failed/end.json

# The other commands.
ballast eval full valid.txt text.txt --batches 2 --seq 32 --json >eval.out
hold eval eval.out
printf 'ab\ncd\n' >prompts.txt
ballast generate full --prompt ab --tokens 5 --json >one.out
ballast generate full --prompts prompts.txt --tokens 5 --json -o texts.jsonl >many.out
hold generate one.out many.out
hold texts texts.jsonl
ballast profile --json -o machine.json >machine.out
ballast profile model $shape --disk "$place" --json -o profile_cluster.json >profile.out
hold profile machine.out profile.out
hold cluster machine.json profile_cluster.json "$BALLAST_SOURCE"/clusters/*.json
ballast simulate full --json >simulate.out
ballast simulate searched.json --disk "$place" --json >simulate_plan.out
hold simulate simulate.out simulate_plan.out
hold timeline full/predicted.json
number=0
for what in model full full/checkpoints/step-00000004 lora/model full/model/model.safetensors model/tokenizer.json \
    plain.json machine.json; do
    number=$((number + 1))
    ballast inspect "$what" --json >"inspect$number.out"
done
ballast inspect full --verify --json >inspect_verify.out
hold inspect inspect*.out

# The schemas refuse: a field that nobody described, one that is lost, one of another type, at the top and below.
refuse() { # SCHEMA FILE PYTHON: the document `d` as that changes it
    python3 -c "import json, sys
d = json.loads(open(sys.argv[1]).read().splitlines()[0] if sys.argv[1].endswith('l') else open(sys.argv[1]).read())
$3
json.dump(d, open('broken.json', 'w'))" "$2"
    if "$formats" check "$1" broken.json >faults; then echo "$1 takes a document after: $3" && exit 1; fi
}
refuse plan plain.json 'd["extra"] = 1'
refuse plan plain.json 'del d["recipe"]'
refuse plan plain.json 'd["recipe"]["batch"] = "4"'
refuse plan plain.json 'd["policy"]["extra"] = 0'
refuse plan plain.json 'd["tiers"][0]["by_kind"]["extra"] = 0'
refuse run full/run.json 'd["options"]["extra"] = 0'
refuse run full/run.json 'd["extra"] = 0'
refuse metrics full/metrics.jsonl 'd["extra"] = 0'
refuse metrics full/metrics.jsonl 'del d["loss"]'
refuse metrics mixture/metrics.jsonl 'd = {"step": 1, "expert_min": 0, "expert_max": 2, "expert_slots": [1]}'
refuse samples full/samples.jsonl 'd["extra"] = 0'
refuse timeline full/timeline.json 'd["events"][0] = [1]'
refuse end full/end.json 'd["how"] = "well"'
refuse state full/checkpoints/step-00000004/state.json 'd["extra"] = 0'
refuse manifest full/model/ballast_manifest.json 'd["files"][0]["blocks"][0] = "x"'
refuse cluster machine.json 'd["devices"][0]["extra"] = 0'
refuse profile profile.out 'd["operators"][0]["extra"] = 0'
refuse eval eval.out 'd["total"]["extra"] = 0'
refuse simulate simulate.out 'd["profile"]["extra"] = 0'
refuse generate one.out 'd["texts"][0]["finish"] = "bored"'
refuse train train.out 'd["extra"] = 0'
refuse inspect inspect1.out 'd["config"]["extra"] = 0'
refuse inspect inspect1.out 'd["extra"] = 0'
refuse inspect inspect7.out 'd["extra"] = 0'

# Nothing but the document is on stdout: it was read as one above. Errors leave none.
if "$BALLAST_PROGRAM" train model text.txt -o full --json >refused.out 2>>errors; then exit 1; fi
[ ! -s refused.out ] || { echo "a run that was refused printed a document" && exit 1; }
