#!/bin/sh
# Commands under `ulimit -s 128`, and inputs with 100,000 levels of nesting.
# ctest: PROCESSORS 2
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export XDG_CACHE_HOME="$place/cache" OMP_NUM_THREADS=2
cd "$place" || exit 1
ulimit -s 128
failures=0

fail() {
    echo "small_stack: $*" >&2
    failures=$((failures + 1))
}
works() { # <argument>...
    "$BALLAST_PROGRAM" "$@" > out.txt 2>&1 < /dev/null || fail "$*: status $?: $(tail -2 out.txt)"
}
refused() { # <text> <argument>...
    text=$1
    shift
    "$BALLAST_PROGRAM" "$@" > out.txt 2>&1 < /dev/null
    status=$?
    [ $status = 2 ] || fail "$*: status $status, not 2: $(tail -2 out.txt)"
    grep -q -F -e "$text" out.txt || fail "$*: does not say '$text': $(cat out.txt)"
}
model() { # <name>
    cp -r "$BALLAST_FIXTURES/reports/model" "$1"
    chmod -R u+w "$1"
}
nested() { # <opening> <middle> <closing>
    awk -v a="$1" -v b="$2" -v c="$3" 'BEGIN {
        for (i = 0; i < 100000; i++) printf "%s", a
        printf "%s", b
        for (i = 0; i < 100000; i++) printf "%s", c
    }'
}

model m
echo '{"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c d"}]}' > chat.jsonl
echo 'the quick brown fox jumps over the lazy dog and then over all other dogs that it can find' > text.txt
works train m chat.jsonl -o run --steps 2 --seq 64 --batch 2
works resume run --steps 3
works report run
works inspect run
works train m text.txt -o lora --steps 1 --seq 16 --batch 1 --lora 2,4,q_proj
works merge lora/model -o merged
works plan m --seq 32
works profile m --seq 32
works eval m text.txt --seq 16
works generate m --prompt a --tokens 2
echo hello | "$BALLAST_PROGRAM" chat m --tokens 2 > out.txt 2>&1 || fail "chat: $(tail -2 out.txt)"

for file in config.json tokenizer.json generation_config.json; do
    rm -rf deep && model deep && nested '{"a": ' 1 '}' > deep/$file
    refused "deep/$file: not valid JSON" generate deep --prompt a --tokens 2
done
for kind in brackets blocks signs sums items; do
    rm -rf deep && model deep
    case $kind in
    brackets) template="{{ $(nested '(' 1 ')') }}" message='brackets nested more than 256 deep' ;;
    blocks) template=$(nested '{% if 1 %}' x '{% endif %}') message='nested more than 60 deep' ;;
    signs) template="{{ $(nested - 1 '') }}" message='nested more than 60 deep' ;;
    sums) template="{{ $(nested 1+ 1 '') }}" message='nested more than 200 deep' ;;
    items) template="{{ messages$(nested '[0]' '' '') }}" message='more than 60 calls, filters and attributes in a row' ;;
    esac
    printf '%s' "$template" > deep/chat_template.jinja
    refused "$message" train deep chat.jsonl -o none --steps 1 --seq 64
done
printf '{"text": %s}\n' "$(nested '[' '' ']')" > deep.jsonl
refused 'deep.jsonl: line 1: not valid JSON' train m deep.jsonl -o none --steps 1 --seq 16

[ $failures = 0 ]
