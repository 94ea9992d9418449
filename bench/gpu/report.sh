# shellcheck shell=bash disable=SC2154 # check.sh sets what is not set here
# What came out of the parts so far, for check.sh: rows, the report that is made of them after every part, and the
# archive of all logs. Uses: work, output, rows, limits, begun, card, commit.

# row NAME STATE TEXT
row() {
    printf '%-22s %-9s %s\n' "$1" "$2" "$3" | tee -a "$rows"
    report
}

# The file is always a whole one: the last, or the new one.
report() {
    {
        echo "# One GPU"
        echo
        echo "Command: \`$command\`, ${SECONDS} s of ${budget} s so far. GPU: $card. Machine: $(nproc) cores of$(
            sed -n 's/^model name[^:]*://p' /proc/cpuinfo | head -1
        ). Commit: $commit. Date: $(date +%Y-%m-%d)."
        echo
        echo "Parts stand in the order of their worth; those after the last were not begun. bf16, 1024 tokens a sequence; a step's"
        echo "time is the median from the fourth on. \"of 989\": of the data sheet's rate; \"of measured\": of products on this card."
        echo "What was expected: 2026-11-23-gpu-expected.md. Every part's log is in $(basename "$archive")."
        echo
        sed 's/^/    /; s/ *$//' "$rows"
        [ -z "${ended:-}" ] || printf '\nEnded: %s.\n' "$ended"
    } >"$output.new"
    mv "$output.new" "$output"
    tar -C "$work" -cf "$archive.new" --exclude='*.new' logs rows 2>/dev/null && mv "$archive.new" "$archive"
}

# On any end, also by a signal: what there is by then.
finish() {
    local code=$?
    trap '' INT TERM HUP
    [ -z "${running:-}" ] || kill -TERM -- "-$running" 2>/dev/null
    : "${ended:=${1:-status $code}}"
    report
}
