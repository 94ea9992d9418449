#!/bin/sh
# A typical day of fine-tuning. transformers and peft load the results (tests/reference/fine_tuning_day.py).
# BALLAST_PYTHON names a Python with the packages of tests/reference/requirements.txt.
# ctest: LABELS slow TIMEOUT 900 PROCESSORS 2
set -eu
python=${BALLAST_PYTHON:-$(dirname "$BALLAST_PROGRAM")-venv/bin/python}
if [ ! -x "$python" ]; then
    echo "skipped: no Python with transformers, peft and torch; needs the virtual environment of make deps-python"
    exit 77
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1
"$python" -B "$BALLAST_SOURCE/tests/reference/fine_tuning_day.py" "$BALLAST_PROGRAM" "$place/day"
