#!/bin/sh
# Each error in a table of wrong inputs has a hint, and following the hint works (wrong_inputs.py).
# ctest: LABELS long PROCESSORS 2 TIMEOUT 600 SKIP_RETURN_CODE 77
set -eu
command -v python3 >/dev/null || { echo "skipped: needs python3" && exit 77; }
BALLAST=$BALLAST_PROGRAM exec python3 -B "$BALLAST_SOURCE/tests/cli/wrong_inputs.py"
