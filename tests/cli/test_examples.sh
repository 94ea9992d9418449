#!/bin/sh
# Every shell example of the README and of docs/ runs, and prints what the page shows but for numbers.
# ctest: LABELS slow PROCESSORS 2 TIMEOUT 1500
set -eu
command -v python3 >/dev/null || { echo "skipped: needs python3" && exit 77; }
cd "$BALLAST_SOURCE"
BALLAST=$BALLAST_PROGRAM exec python3 -B scripts/run-examples.py README.md docs/*.md
