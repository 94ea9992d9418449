#!/bin/sh
# Fails if the tree uses a word for which the field has another (usage: scripts/check_words/__main__.py).
exec python3 -B "$(dirname "$0")/check_words" "$@"
