#!/bin/sh
# Fails if a commit's subject is not "area: verb object", in the imperative, in at most 72 characters and without a full
# stop. It recognizes verbs that are not imperative: "adds", "added", "adding".
#   usage: scripts/check-commits.sh [BASE]             checks the commits after BASE
#          scripts/check-commits.sh --message FILE     checks a message before the commit
# Skips merges, and the history before this rule.
set -eu
subjects() {
    if [ "${1-}" = --message ]; then
        printf 'this commit\t%s\n' "$(head -n 1 "$2")"
        return
    fi
    cd "$(dirname "$0")/.."
    base=${1:-bdb996d}
    if ! git rev-parse -q --verify "$base^{commit}" >/dev/null; then
        echo "check-commits: skipped: this clone does not go back to $base" >&2
        return
    fi
    git log --no-merges --format='%h%x09%s' "$base..HEAD"
}
subjects "$@" | awk -F '\t' '
    function fault(text) { printf "%s: %s: %s\n", $1, text, $2; bad = 1 }
    length($2) > 72 { fault("the subject has " length($2) " characters") }
    $2 !~ /^[a-z0-9_,/ ]+: [^ ]/ { fault("the subject names no subsystem") }
    $2 ~ /: (add|allow|avoid|build|change|check|drop|find|fix|give|hold|keep|let|mak|make|merge|mov|move|print|put|read|remov|remove|renam|rename|replac|replace|rewrit|say|set|show|split|support|tell|test|updat|update|us|use|write|writ)(s|es|ed|d|ing|ting) / {
        fault("the subject is not in the imperative")
    }
    $2 ~ /\.$/ { fault("the subject ends with a full stop") }
    END { exit bad }'
