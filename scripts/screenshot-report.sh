#!/bin/sh
# Takes the picture of a run's report page that the README shows. Needs chromium (make deps-browser).
#   usage: scripts/screenshot-report.sh RUN_DIR [PNG]      [default: docs/report.png]
set -eu
run=${1:?"usage: scripts/screenshot-report.sh RUN_DIR [PNG]"}
picture=${2:-docs/report.png}
ballast=${BALLAST:-build/ballast}
limit=204800
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"$ballast" report "$run" -o "$place/report.html" --quiet
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1400,1250 \
    --user-data-dir="$place/profile" --screenshot="$picture" "file://$place/report.html" >/dev/null 2>&1
bytes=$(wc -c <"$picture")
[ "$bytes" -le $limit ] || { echo "screenshot-report: $picture has $bytes bytes, more than $limit" >&2 && exit 1; }
echo "$picture: $bytes bytes"
