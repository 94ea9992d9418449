#!/bin/sh
# Trains a model on a text, and shows each command: creates a small Llama and a tokenizer, plans the training step,
# trains for about two and a half minutes, and generates text.
#
#     make demo                     (or: BALLAST=build/ballast scripts/demo.sh)
#
# DEMO_SECONDS sets the training time. All output goes to build/demo, which is replaced.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
ballast=${BALLAST:-build/ballast}
seconds=${DEMO_SECONDS:-150}
demo=build/demo

if [ ! -x "$ballast" ]; then
    echo "demo: $ballast is not there: run make demo" >&2
    exit 1
fi
case $seconds in
'' | *[!0-9]*)
    echo "demo: DEMO_SECONDS must be a whole number" >&2
    exit 2
    ;;
esac

announce() { printf '\n# %s\n' "$*"; }
# Prints a command in a form that can be pasted, and runs it, under $limit if that is set.
limit=
show() {
    printf '$'
    for word in "$@"; do
        case $word in
        *[!A-Za-z0-9_./=:,-]*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    # shellcheck disable=SC2086 # a command with arguments, or nothing
    $limit "$@"
}

rm -rf "$demo"
mkdir -p "$demo/data"
# Caches the text's token ids here instead of in the home directory.
XDG_CACHE_HOME=$root/$demo/cache
export XDG_CACHE_HOME

announce "ballast is $ballast here. To call it by its name: export PATH=\"\$PWD/$(dirname "$ballast"):\$PATH\", or make install"

announce 'The text: the King James Bible, its last part held out for validation.'
show scripts/make-demo-text.sh $demo/text.txt
lines=$(wc -l <$demo/text.txt)
held=$((lines / 50))
head -n $((lines - held)) $demo/text.txt >$demo/data/train.txt
tail -n "$held" $demo/text.txt >$demo/data/valid.txt
wc -c $demo/data/train.txt $demo/data/valid.txt

announce 'A small Llama with random weights, and a tokenizer trained on the text.'
show "$ballast" init $demo/model --arch llama --hidden 192 --layers 4 --heads 6 --kv-heads 3 --ffn 512 \
    --vocab 2048 --context 128 --tied --tokenizer-data $demo/data/train.txt

announce 'What a training step will take, exactly, before anything is loaded.'
show "$ballast" plan $demo/model -o $demo/plan.json

# Measures a few steps to compute how many fit into the time.
"$ballast" train $demo/model $demo/data -o $demo/trial --plan $demo/plan.json --steps 12 --valid-every 0 --quiet
steps=$(awk -v seconds="$seconds" '
    match($0, /"step_s": *[0-9.e+-]+/) {
        split(substr($0, RSTART, RLENGTH), part, ":")
        if (++lines > 4) { sum += part[2]; count++ }
    }
    END {
        if (count == 0 || sum <= 0) exit 1
        steps = int(seconds / (sum / count) / 10) * 10
        if (steps < 50) steps = 50
        if (steps > 3000) steps = 3000
        print steps
    }' $demo/trial/metrics.jsonl)
rm -rf $demo/trial

announce "Training: $steps steps, at most about $seconds seconds on this machine."
# If the machine turns out slower than in the trial, the run is stopped as by Ctrl-C.
limit="timeout --foreground -s INT $((seconds * 4 / 3))"
status=0
show "$ballast" train $demo/model $demo/data -o $demo/run --plan $demo/plan.json --steps "$steps" --lr 3e-3 \
    --valid-every $((steps / 5)) --valid-batches 16 --save-every $((steps / 2)) || status=$?
limit=
if [ $status -eq 124 ]; then
    steps=$(grep -c '"loss"' $demo/run/metrics.jsonl)
    announce "The time is up: the run ends with the $steps steps that it has."
    show "$ballast" resume $demo/run --steps "$steps"
elif [ $status -ne 0 ]; then
    exit $status
fi

announce 'The loss on text that it has not seen, before and after.'
show "$ballast" eval $demo/model $demo/data/valid.txt --batches 16
show "$ballast" eval $demo/run/model $demo/data/valid.txt --batches 16

announce 'What it writes now.'
show "$ballast" generate $demo/run/model --prompt 'And the LORD said unto' --tokens 80 --temperature 0.7 --seed 1
echo
show "$ballast" generate $demo/run/model --prompt 'In those days' --tokens 80 --temperature 0.7 --seed 2
echo
show "$ballast" generate $demo/run/model --prompt 'Blessed are they' --tokens 80 --temperature 0.7 --seed 3

announce "$demo/run/model is a Hugging Face directory: transformers loads it as it is."
show ls $demo/run/model
announce "Go on from here: $ballast resume $demo/run --steps $((2 * steps)); all commands: $ballast help"
