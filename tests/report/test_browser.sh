#!/bin/sh
# The page in a browser: headless Chromium opens it from file:// and from a wrapper as wide as a phone, in light and in
# dark, and prints it. Fails where anything is written to the console or a picture is missing. Without Chromium
# (it is large, so make test leaves it out; make test-slow installs it) the test is skipped.
#   usage: tests/report/test_browser.sh [FOLDER]      FOLDER: keep pages and pictures there, to be looked at
# ctest: LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 300 PROCESSORS 2
set -eu
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "skipped: no Chromium is installed; needs chromium (make packages-browser)"
    exit 77
fi
source=${BALLAST_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
program=${BALLAST_PROGRAM:-$source/build/ballast}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${1:-$work/out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
run=$source/tests/fixtures/report/run

"$program" report "$run" -o "$out/run.html" --quiet
"$program" report "$run/plan.json" -o "$out/plan.html" --quiet
mkdir "$work/bare"
cp "$run/run.json" "$work/bare"
"$program" report "$work/bare" -o "$out/bare.html" --quiet

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
    scheme=1
    if [ "$4" = dark ]; then scheme=0; fi
    echo "<!doctype html><style>body{margin:0}</style><iframe src=$1.html style='border:0;width:$2px;height:$3px'></iframe>" \
        >"$out/frame.html"
    chromium_run "test -s $out/$1-$2-$4.png" --window-size="$2,$3" --blink-settings=preferredColorScheme=$scheme \
        --screenshot="$out/$1-$2-$4.png" "file://$out/frame.html"
}
for scheme in light dark; do
    picture run 360 800 $scheme
    picture run 1280 900 $scheme
done
picture plan 360 800 light
picture bare 1280 900 dark
chromium_run "test -s $out/run.pdf" --print-to-pdf="$out/run.pdf" --no-pdf-header-footer "file://$out/run.html"

# A reader's hands, on a phone's width and a desk's.
sed -e '/^start();$/r '"$source/tests/report/interact.js" "$out/run.html" >"$out/interact.html"
for width in 360 1280; do
    picture interact $width 800 light
done
chromium_run "grep -q <title>interacted $work/log" --dump-dom "file://$out/interact.html"

# What JavaScript made of the page: the parts that the run has, and no number that is none.
chromium_run "grep -q </html> $work/log" --dump-dom "file://$out/run.html"
sed '/<script/,/<\/script>/d' "$work/log" >"$work/seen"
for text in '>llama-124m<' 'Device memory' 'What binds' 'What else was simulated' 'Memory against time' '<title>Loss:' '<title>Throughput' '; validation from'; do
    if ! grep -q "$text" "$work/seen"; then
        echo "test_browser: '$text' is not on the page" >&2
        exit 1
    fi
done
if grep -E 'NaN|undefined|Infinity|\[object' "$work/seen"; then
    echo "test_browser: a number on the page is none" >&2
    exit 1
fi
