#!/bin/sh
# Runs two builds of Ballast on the same cases and compares their results (usage: scripts/same_results/__main__.py).
exec python3 -B "$(dirname "$0")/same_results" "$@"
