#!/bin/sh
# Fails if a directory of src does not list its files, or if a module is more than a sixth of src.
#   usage: scripts/check-modules.sh [ROOT]            checks src, and the table in ROOT/ARCHITECTURE.md if it exists
#          scripts/check-modules.sh --table [ROOT]    prints the table: lines per module
#
# In each directory of src with headers, the opening comment of exactly one header contains the words
#     Files, in the order to read them:
# After them, the comment names every other file of the directory by its stem, and files of subdirectories without a
# header (page/sources). Stems before a colon at the beginning of a line, as here, must be files of the directory:
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
sources() { # DIR [DEPTH]
    set -f
    # shellcheck disable=SC2086 # words of find
    find "$1" ${2:+-maxdepth "$2"} -type f \( $is_source \)
    set +f
}
if [ -z "$(sources src)" ]; then
    echo "check-modules: no sources in $(pwd)/src" >&2
    exit 1
fi

# The modules, in the order of the layers: directories of src that check-layers.sh lists, or whose subdirectories it
# lists.
module_list() {
    sed -n "/^order='/,/'\$/p" "$here/check-layers.sh" | sed "s/^order=//; s/'//g" | tr -s ' ' '\n' | sed 's,/.*,,' |
        awk 'NF && !seen[$1]++'
}
# "module lines files", in the order of the layers
count_modules() {
    for module in $(module_list); do
        [ ! -d "src/$module" ] || sources "src/$module" | xargs cat | wc -l |
            awk -v module="$module" -v files="$(sources "src/$module" | wc -l)" '{ print module, $1, files }'
    done
}
if $print_table; then
    count_modules | awk '
        { module[NR] = $1; lines[NR] = $2; files[NR] = $3; all += $2; all_files += $3 }
        END {
            print "| module | lines | share | files |\n|---|---:|---:|---:|"
            for (i = 1; i <= NR; i++)
                printf "| `%s` | %d | %.1f%% | %d |\n", module[i], lines[i], 100 * lines[i] / all, files[i]
            printf "| all | %d | | %d |\n", all, all_files
        }'
    exit 0
fi

# Prints the list in a header: "entry NAME" for names before a colon, "word NAME" for every word.
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
# Prints the files that the header of a directory must list.
answers_for() { # DIR
    sources "$1" 1
    for below in "$1"/*/; do
        [ ! -d "$below" ] || [ -n "$(find "$below" -maxdepth 1 -name '*.h')" ] || sources "${below%/}"
    done
}
check_folder() { # DIR
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
            $1 == "entry" && !($2 in file) { print header ": lists " $2 ", which is no file of the directory" }
            END { for (stem in file) if (!(stem in named)) print header ": does not name " stem | "sort" }'
    done
    [ $lists = 1 ] || echo "$1: $lists headers open with a list of its files; there should be one"
}
# The table may differ from the sources by a quarter of a module's lines.
check_table() {
    {
        count_modules
        sed -n 's/^| `\([a-z]*\)` | \([0-9]*\) |.*/\1 table \2/p' ARCHITECTURE.md
    } | awk '
        $2 == "table" { said[$1] = $3; next }
        { lines[$1] = $2 }
        END {
            for (module in lines)
                if (!(module in said)) print "ARCHITECTURE.md: the table of modules lacks " module
                else if (said[module] > 1.25 * lines[module] || said[module] < 0.75 * lines[module])
                    print "ARCHITECTURE.md: the table says " said[module] " lines for " module "; there are " lines[module]
            for (module in said) if (!(module in lines)) print "ARCHITECTURE.md: the table has " module ", which is no module"
        }' | sort
}

faults=$(
    find src -type d | sort | while read -r folder; do
        [ -z "$(find "$folder" -maxdepth 1 -name '*.h')" ] || check_folder "$folder"
    done
    count_modules | awk '
        { lines[$1] = $2; all += $2 }
        END {
            for (module in lines) if (NR > 6 && lines[module] > all / 6) # six or fewer cannot all be below
                printf "src/%s: %d lines are more than a sixth of %d\n", module, lines[module], all
        }'
    [ ! -f ARCHITECTURE.md ] || check_table
)
if [ -n "$faults" ]; then
    printf '%s\n' "$faults"
    exit 1
fi
