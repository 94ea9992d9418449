#!/bin/sh
# Tests the page in a browser: headless Chromium opens it from file:// and in a wrapper as wide as a phone, in light and
# dark mode, prints it, and acts like a reader (interact.js). Fails if the console has output or a picture is missing.
# Skipped without Chromium, which make test-slow installs; it is too large for make test.
#   usage: tests/page/test_browser.sh [DIR]      keeps pages and pictures in DIR
# ctest: LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 300 PROCESSORS 2
set -eu
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "skipped: no Chromium is installed; needs chromium (make deps-browser)"
    exit 77
fi
source=${BALLAST_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
program=${BALLAST_PROGRAM:-$source/build/ballast}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${1:-$work/out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
for name in run recorded; do
    tar -xzf "$source/tests/fixtures/report/$name.tar.gz" -C "$work"
done
run=$work/run
recorded=$work/recorded

"$program" report "$run" -o "$out/run.html" --quiet
"$program" report "$recorded" --compare "$run" -o "$out/recorded.html" --quiet
"$program" report "$run/plan.json" -o "$out/plan.html" --quiet
mkdir "$work/bare"
cp "$run/run.json" "$work/bare"
"$program" report "$work/bare" -o "$out/bare.html" --quiet
# A run of 100000 steps, with a step of 7500 events, and one whose directory, samples and names would run if they could.
mkdir "$work/large"
cp "$run/run.json" "$run/plan.json" "$work/large"
awk 'BEGIN { for (i = 1; i <= 100000; i++)
    printf "{\"step\": %d, \"loss\": %.4f, \"grad_norm\": %.3f, \"lr\": 1e-4, \"step_s\": 1.5, \"tokens_per_s\": 2700}\n", i, 9 / (1 + i / 5000) + i % 7 / 20, 1 + i % 5 }' \
    >"$work/large/metrics.jsonl"
awk 'BEGIN {
    printf "{\"version\":1,\"kind\":\"measured\",\"step_s\":1.5,\"names\":[\"a kernel\",\"copy x\"],\"moves\":[\"\",\"gradients\"],"
    printf "\"streams\":[{\"role\":\"compute\",\"busy_s\":1,\"waiting_s\":0},{\"role\":\"copy in\",\"busy_s\":1,\"waiting_s\":0}],"
    printf "\"blocks\":[\"embedding\""
    for (i = 0; i < 94; i++) printf ",\"layer %d\"", i
    printf ",\"head\"],\"sections\":[\"pass\"],\"phases\":[\"forward\",\"backward\",\"recomputation\"],\"tiers\":[],\"events\":["
    for (i = 0; i < 7500; i++) {
        block = i < 3750 ? int(i * 96 / 3750) : 95 - int((i - 3750) * 96 / 3750)
        printf "%s[%d,%d,%d,0,0,%d,%d,190,%d,%d]", i ? "," : "", i % 3 == 1, i % 3 == 1, block, i < 3750 ? 0 : 1 + (i % 2), i * 200, i % 3 == 1 ? 64 : 0, i - 1
    }
    print "]}" }' >"$work/large/timeline.json"
"$program" report "$work/large" -o "$out/large.html" --quiet
evil="$work/<img src=x onerror=console.error(1)>"
mkdir "$evil"
cp "$recorded"/*.json "$recorded/metrics.jsonl" "$evil"
printf '{"step": 1, "prompt": "<b>", "text": "</script><script>console.error(2)</script><img src=x onerror=console.error(3)>"}\n' \
    >"$evil/samples.jsonl"
sed -i 's/"layer.0.input_layernorm"/"<img src=x onerror=console.error(4)>"/' "$evil/timeline.json"
"$program" report "$evil" -o "$out/evil.html" --quiet

# A run on preferences, whose loss is that of no token; its kernels changed.
mkdir "$work/pairs"
sed 's/{"version":1,/&"recipe_changes":[{"step":20,"field":"kernels_version","from":"8","to":"9"}],/; s/"document_attention":"across",/&"loss":"dpo","dpo_beta":0.1,"dpo_loss":"sigmoid","dpo_label_smoothing":0.0,/' "$run/run.json" >"$work/pairs/run.json"
awk 'BEGIN { for (i = 1; i <= 60; i++)
    printf "{\"step\": %d, \"loss\": %.4f, \"grad_norm\": 1.5, \"lr\": 1e-4, \"reward_chosen\": %.3f, \"reward_rejected\": %.3f, \"margin\": %.3f, \"accuracy\": %.4f, \"step_s\": 1.5, \"tokens_per_s\": 2700}\n", i, 0.6931 - i / 200, i / 90, -i / 60, i / 36, 1 - 0.5 / i }' \
    >"$work/pairs/metrics.jsonl"
"$program" report "$work/pairs" -o "$out/pairs.html" --quiet

# A run of adapters on all linear layers, which was resumed with other settings, and one of several ranks.
mkdir "$work/adapters"
layers=q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj
changes='[{"step":20,"field":"learning_rate","from":"0.0003","to":"0.0001"},{"step":20,"field":"steps","from":"20","to":"300"}]'
sed "s/{\"version\":1,/{\"version\":2,\"changes\":$changes,/; s/\"lora\":\"\"/\"lora\":\"8,16,$layers\"/" "$run/run.json" >"$work/adapters/run.json"
cp "$run/metrics.jsonl" "$work/adapters"
"$program" report "$work/adapters" -o "$out/adapters.html" --quiet
cp -r "$source/tests/fixtures/released/0.1.0/ranks" "$work/ranks"
"$program" report "$work/ranks" -o "$out/ranks.html" --quiet

# chromium_run CHECK ARGUMENTS...: fails on whatever the page writes to the console, and where the check does not hold
# after three runs: on a machine that is busy, Chromium may end before it has drawn anything.
chromium_run() {
    check=$1
    shift
    for attempt in 1 2 3; do
        timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --enable-logging=stderr \
            --user-data-dir="$work/profile$attempt" --virtual-time-budget=20000 "$@" >"$work/log" 2>&1 </dev/null || true
        if grep CONSOLE "$work/log"; then
            echo "test_browser: the page wrote the above to the console" >&2
            exit 1
        fi
        if $check; then return; fi
        echo "test_browser: attempt $attempt: '$check' does not hold after chromium $*; it said:" >&2
        cut -c 1-300 "$work/log" | tail -20 >&2
    done
    exit 1
}
# picture PAGE WIDTH HEIGHT light|dark. A window is never narrower than 500, so a phone is a frame in one.
picture() {
    preferred=1
    if [ "$4" = dark ]; then preferred=0; fi
    echo "<!doctype html><style>body{margin:0}</style><iframe src=$1.html style='border:0;width:$2px;height:$3px'></iframe>" \
        >"$out/frame.html"
    chromium_run "test -s $out/$1-$2-$4.png" --window-size="$2,$3" --blink-settings=preferredColorScheme=$preferred \
        --screenshot="$out/$1-$2-$4.png" "file://$out/frame.html"
}
for scheme in light dark; do
    picture recorded 390 900 $scheme
    picture recorded 1400 900 $scheme
done
# All kinds of pages on a phone and on a desk, in both schemes.
for page in run recorded plan bare evil pairs adapters ranks; do
    sed -e '/^start();$/r '"$source/tests/page/audit.js" "$out/$page.html" >"$out/audit.html"
    picture audit 390 900 light
    picture audit 390 900 dark
    picture audit 1280 900 dark
done
picture recorded 100 800 light # too narrow for any drawing
chromium_run "grep -q learning_rate.0.0001,.was.0.0003 $work/log" --dump-dom "file://$out/adapters.html"
picture run 360 800 light
picture plan 360 800 light
picture bare 1280 900 dark
chromium_run "test -s $out/run.pdf" --print-to-pdf="$out/run.pdf" --no-pdf-header-footer "file://$out/recorded.html"

# A reader's hands, on a phone's width and a desk's, on a new run compared with another, on one of an older version, on a
# large one and on one that means harm.
for page in recorded run large evil; do
    sed -e '/^start();$/r '"$source/tests/page/interact.js" "$out/$page.html" >"$out/interact.html"
    picture interact 1280 800 light
    chromium_run "grep -q <title>interacted $work/log" --dump-dom "file://$out/interact.html"
done
sed -e '/^start();$/r '"$source/tests/page/interact.js" "$out/recorded.html" >"$out/interact.html"
picture interact 360 800 light

picture pairs 1280 900 light
chromium_run "grep -q kernels_version.9,.was.8 $work/log" --dump-dom "file://$out/pairs.html"
sed '/<script/,/<\/script>/d' "$work/log" >"$work/seen"
for text in 'of pairs of answers' 'Margin of rewards' 'Pairs in the right order' 'Every two of them are a pair' \
    'The first 3 chunks stay' 'optimizer state waits on the disk and is copied' 'so that its activations'; do
    if ! grep -q "$text" "$work/seen"; then
        echo "test_browser: '$text' is not on the page of preferences" >&2
        exit 1
    fi
done
if grep -q perplexity "$work/seen"; then
    echo "test_browser: the loss of pairs has a perplexity" >&2
    exit 1
fi

# What JavaScript made of the page: the parts that the run has, and no number that is none.
chromium_run "grep -q </html> $work/log" --dump-dom "file://$out/recorded.html"
sed '/<script/,/<\/script>/d' "$work/log" >"$work/seen"
for text in '>recorded<' 'Device memory' 'What binds' 'Time against memory' 'The schedule, ' 'What the model wrote' '<title>Loss:' '<title>Throughput' \
    'recorded validation from' 'run training from' 'ballast resume '; do
    if ! grep -q "$text" "$work/seen"; then
        echo "test_browser: '$text' is not on the page" >&2
        exit 1
    fi
done
if grep -E 'NaN|undefined|Infinity|\[object' "$work/seen"; then
    echo "test_browser: a number on the page is none" >&2
    exit 1
fi
