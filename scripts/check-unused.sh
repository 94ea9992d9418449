#!/bin/sh
# Fails if a function or variable of src is external without need: it is unused, only tests and benchmarks use it, or
# only its own file does (then it should be static).
#   usage: scripts/check-unused.sh BUILD [ROOT]      BUILD: a build directory with any options
# Reads definitions and references from the objects of the build. In sources that the build skips (CUDA, optional
# libraries), a word counts as a reference.
set -eu
LC_ALL=C
export LC_ALL
build=$(cd "${1:?usage: scripts/check-unused.sh BUILD [ROOT]}" && pwd)
cd "${2:-$(dirname "$0")/..}"

# Names that stay external, with reasons. A pattern that matches nothing is an error.
exceptions() {
    cat <<'END'
ballast_wire              the plugin's entry, found by name at run time
comm_read_traffic         tests compare the bytes that moved with those of the schedules
disk_store_describe       tests ask which engine a disk has
engine_initialise_weights tests and benchmarks train models that have no files
fault_*                   faults are for tests alone
main                      the program
op_*                      operators are declared by the lists of ir/ops/list.h
recipe_lines_forget       the fuzz target of plans frees the texts that a program keeps to its end
safetensors_open_memory   the fuzz target reads files from memory
session_open_model        tests and benchmarks open models that have no files
tokenizer_decode          whole texts, to which decoding as ids come is held
END
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints the source of an object. CMake compiles src/base/file.c to BUILD/src/base/CMakeFiles/TARGET.dir/file.c.o.
source_of='s,/CMakeFiles/[^/]*\.dir/,/,; s,.*/src/,src/,; s,\.o$,,'
find "$build" -name '*.o' -path '*/src/*' | while read -r object; do
    source=$(echo "$object" | sed "$source_of")
    [ ! -f "$source" ] || echo "$object" # otherwise the source was generated, or removed since
done >"$work/objects"
if [ ! -s "$work/objects" ]; then
    echo "check-unused: no objects in $build" >&2
    exit 1
fi
sed "$source_of" "$work/objects" | sort -u >"$work/built"
find src \( -name '*.c' -o -name '*.cu' -o -name '*.cpp' \) | sort | comm -13 "$work/built" - >"$work/left_out"

# Prints "NAME FILE" for each external name that no object of another file references. Skips names that the compiler
# generates (with a leading underscore or a dot).
xargs nm -A -P <"$work/objects" | awk '
    { file = $1; sub(/\/CMakeFiles\/[^\/]*\.dir/, "", file); sub(/.*\/src\//, "src/", file); sub(/\.o:$/, "", file) }
    $3 == "U" { uses[$2] = uses[$2] " " file; next }
    $3 ~ /^[A-Z]$/ { defined[$2] = file }
    END {
        for (name in defined) {
            count = split(uses[name], user, " ")
            for (i = 1; i <= count && user[i] == defined[name]; i++);
            if (i > count && name ~ /^[a-z][a-z0-9_]*$/) print name, defined[name]
        }
    }' | sort >"$work/names"
cut -d ' ' -f 1 "$work/names" >"$work/words"

# Prints "NAME FILE" for each use of one of the names in the code of FILES, without comments and strings.
uses() { # FILES on stdin
    { xargs grep -lwF -f "$work/words" || true; } | xargs awk -v words="$work/words" '
        BEGIN { while ((getline word <words) > 0) wanted[word] = 1 }
        FNR == 1 { comment = 0 }
        {
            line = $0
            while (comment || (at = index(line, "/*"))) {
                if (!comment) before = substr(line, 1, at - 1)
                else { before = ""; at = -1 }
                end = index(substr(line, at + 2), "*/")
                if (!(comment = !end)) line = before " " substr(line, at + 3 + end)
                else { line = before; break }
            }
            gsub(/"([^"\\]|\\.)*"/, " ", line)
            gsub(/[^A-Za-z0-9_]/, " ", line)
            count = split(line, part, " ")
            for (i = 1; i <= count; i++) if (part[i] in wanted) print part[i], FILENAME
        }' /dev/null
}
cut -d ' ' -f 2 "$work/names" | sort -u | uses >"$work/own"
{ cat "$work/left_out"; ls include/*.h 2>"$work/none" || true; } | uses >"$work/elsewhere"
find tests bench \( -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' \) 2>"$work/none" | uses >"$work/tests"
exceptions >"$work/exceptions"

awk '
    kind == "own" { own[$1, $2]++; next }
    kind == "elsewhere" { elsewhere[$1] = 1; next }
    kind == "tests" { tests[$1] = 1; next }
    kind == "exceptions" {
        pattern[++patterns] = $1
        sub(/\*/, ".*", $1)
        expression[patterns] = "^" $1 "$"
        next
    }
    $1 in elsewhere || (own[$1, $2] > 1 && $1 in tests) { next }
    {
        for (i = 1; i <= patterns; i++)
            if ($1 ~ expression[i]) { needed[i] = 1; next }
        fault = $1 in tests ? "only tests and benchmarks use it" : "nothing uses it"
        if (own[$1, $2] > 1) fault = "only its own file uses it: make it static"
        print $2 ": " $1 ": " fault
        bad = 1
    }
    END {
        for (i = 1; i <= patterns; i++)
            if (check_exceptions && !needed[i]) {
                print "scripts/check-unused.sh: no need for the exception " pattern[i]
                bad = 1
            }
        exit bad
    }' kind=own "$work/own" kind=elsewhere "$work/elsewhere" kind=tests "$work/tests" \
    kind=exceptions "$work/exceptions" kind=names check_exceptions="$([ "${2:-}" ] || echo 1)" "$work/names"
