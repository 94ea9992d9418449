#!/bin/sh
# Fails where a folder of src does not say what is in it, or where a room is more than a sixth of src.
#   usage: scripts/check-rooms.sh [ROOT]            checks; and the table in ROOT/ARCHITECTURE.md, if there is one
#          scripts/check-rooms.sh --table [ROOT]    prints the table: lines by room
#
# Each folder of src with a header has exactly one whose opening comment holds the words
#     Files, in the order to read them:
# From there to the end of the comment it names every other file of the folder by its stem, and those of subfolders
# without a header (page/sources). Where a line begins with stems and a colon, as here, these must be files of the folder:
#     jinja_lexer, jinja_parser: from text to a tree;
set -eu
here=$(cd "$(dirname "$0")" && pwd)
print_table=false
if [ "${1:-}" = --table ]; then
    print_table=true
    shift
fi
cd "${1:-$here/..}"

is_source="-name *.[ch] -o -name *.cu -o -name *.cuh -o -name *.cpp -o -name *.js -o -name *.css -o -name *.html -o -name *.proto"
sources() { # FOLDER [DEPTH]
    set -f
    # shellcheck disable=SC2086 # words of find
    find "$1" ${2:+-maxdepth "$2"} -type f \( $is_source \)
    set +f
}
if [ -z "$(sources src)" ]; then
    echo "check-rooms: no sources in $(pwd)/src" >&2
    exit 1
fi

# "room lines files", in the order of the layers
count_rooms() {
    for room in $(sed -n "s/^rooms='\(.*\)'/\1/p" "$here/check-layers.sh"); do
        [ ! -d "src/$room" ] || sources "src/$room" | xargs cat | wc -l |
            awk -v room="$room" -v files="$(sources "src/$room" | wc -l)" '{ print room, $1, files }'
    done
}
if $print_table; then
    count_rooms | awk '
        { room[NR] = $1; lines[NR] = $2; files[NR] = $3; all += $2; all_files += $3 }
        END {
            print "| room | lines | share | files |\n|---|---:|---:|---:|"
            for (i = 1; i <= NR; i++)
                printf "| `%s` | %d | %.1f%% | %d |\n", room[i], lines[i], 100 * lines[i] / all, files[i]
            printf "| all | %d | | %d |\n", all, all_files
        }'
    exit 0
fi

# What a header lists: "entry NAME" for names before a colon, "word NAME" for every word; nothing without the words.
listed() { # HEADER
    awk '
        FNR == 1 && !/^\/\*/ { exit }
        { line = $0; last = sub(/\*\/.*/, "", line); sub(/^[ \t]*\/?\*/, "", line) }
        !found && (at = index(line, "Files, in the order to read them:")) {
            found = 1
            print "list"
            line = substr(line, at + 33)
        }
        found {
            if (match(line, /^ *[a-z0-9_]+(, [a-z0-9_]+)*:/)) {
                entries = substr(line, 1, RLENGTH - 1)
                gsub(/,/, " ", entries)
                count = split(entries, entry, " ")
                for (i = 1; i <= count; i++) print "entry", entry[i]
            }
            gsub(/[^A-Za-z0-9_]/, " ", line)
            count = split(line, word, " ")
            for (i = 1; i <= count; i++) print "word", word[i]
        }
        last { exit }' "$1"
}
# The files that the header of a folder answers for.
answers_for() { # FOLDER
    sources "$1" 1
    for below in "$1"/*/; do
        [ ! -d "$below" ] || [ -n "$(find "$below" -maxdepth 1 -name '*.h')" ] || sources "${below%/}"
    done
}
check_folder() { # FOLDER
    lists=0
    for header in "$1"/*.h; do
        names=$(listed "$header")
        [ -n "$names" ] || continue
        lists=$((lists + 1))
        {
            answers_for "$1" | sed 's,.*/,,; s,\..*,,; s,^,file ,' | sort -u
            printf '%s\n' "$names"
        } | awk -v header="$header" -v own="$(basename "$header" .h)" '
            BEGIN { named[own] = 1 }
            $1 == "file" { file[$2] = 1 }
            $1 == "word" { named[$2] = 1 }
            $1 == "entry" && !($2 in file) { print header ": lists " $2 ", which is no file of the folder" }
            END { for (stem in file) if (!(stem in named)) print header ": does not name " stem | "sort" }'
    done
    [ $lists = 1 ] || echo "$1: $lists headers open with a list of its files; there should be one"
}
# The table may lag behind the sources by a quarter of a room's lines.
check_table() {
    {
        count_rooms
        sed -n 's/^| `\([a-z]*\)` | \([0-9]*\) |.*/\1 table \2/p' ARCHITECTURE.md
    } | awk '
        $2 == "table" { said[$1] = $3; next }
        { lines[$1] = $2 }
        END {
            for (room in lines)
                if (!(room in said)) print "ARCHITECTURE.md: the table of rooms lacks " room
                else if (said[room] > 1.25 * lines[room] || said[room] < 0.75 * lines[room])
                    print "ARCHITECTURE.md: the table says " said[room] " lines for " room "; there are " lines[room]
            for (room in said) if (!(room in lines)) print "ARCHITECTURE.md: the table has " room ", which is no room"
        }' | sort
}

faults=$(
    find src -type d | sort | while read -r folder; do
        [ -z "$(find "$folder" -maxdepth 1 -name '*.h')" ] || check_folder "$folder"
    done
    count_rooms | awk '
        { lines[$1] = $2; all += $2 }
        END {
            for (room in lines) if (NR > 6 && lines[room] > all / 6) # six or fewer cannot all be below
                printf "src/%s: %d lines are more than a sixth of %d\n", room, lines[room], all
        }'
    [ ! -f ARCHITECTURE.md ] || check_table
)
if [ -n "$faults" ]; then
    printf '%s\n' "$faults"
    exit 1
fi
