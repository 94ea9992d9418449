#!/bin/sh
# Manual pages are well-formed, list every option, and are installed. Completions work in bash, zsh and fish.
set -eu
ballast=$BALLAST_PROGRAM
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
fail() { echo "$1" && exit 1; }

cmake --install "$(dirname "$ballast")" --prefix "$place" >/dev/null
commands=$("$ballast" help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -vx 'help\|version')
[ "$(echo "$commands" | wc -l)" -ge 12 ] || fail "the program lists only: $commands"
for command in '' $commands; do
    page=$place/share/man/man1/ballast${command:+-$command}.1
    [ -f "$page" ] || fail "make install installs no manual page of '$command'"
    if command -v mandoc >/dev/null; then
        mandoc -T lint -W warning "$page" | grep -v 'missing date' >"$place/lint" || true
        [ ! -s "$place/lint" ] || fail "$(cat "$place/lint")"
    fi
    [ -n "$command" ] || continue
    for option in $("$ballast" "$command" --help-all | grep -o '^  \(-., \)\?--[a-z0-9-]*' | grep -o -- '--.*'); do
        sed 's/\\-/-/g' "$page" | grep -q -- "$option\\\\fR" || fail "$page lacks $option"
    done
done

# bash_completes WORD... : what bash offers for the last word
bash_completes() {
    bash -c '. "$1"; shift; COMP_WORDS=(ballast "$@"); COMP_CWORD=$#; _ballast; printf "%s\n" "${COMPREPLY[@]}"' \
        - "$place/share/bash-completion/completions/ballast" "$@"
}
[ "$(bash_completes sim)" = simulate ] || fail "bash: no command for 'sim'"
[ "$(bash_completes train --quant)" = --quantize-base ] || fail "bash: no option for 'train --quant'"
[ -z "$(bash_completes merge --quant)" ] || fail "bash: merge has no --quantize-base"
[ "$(bash_completes train --dtype b)" = bf16 ] || fail "bash: no value for '--dtype b'"
touch "$place/data.txt"
[ "$(bash_completes train "$place/da")" = "$place/data.txt" ] || fail "bash: no file"
[ -z "$(bash_completes train --batch "$place/da")" ] || fail "bash: a file as a number"

if command -v fish >/dev/null; then
    script=$place/share/fish/vendor_completions.d/ballast.fish
    fish_completes() { HOME=$place fish -N -c "source $script; complete -C '$1'" | cut -f1; }
    [ "$(fish_completes 'ballast sim')" = simulate ] || fail "fish: no command for 'sim'"
    fish_completes 'ballast train --quant' | grep -qx -- --quantize-base || fail "fish: no option for 'train --quant'"
    fish_completes 'ballast train --dtype b' | grep -qx bf16 || fail "fish: no value for '--dtype b'"
fi
if command -v zsh >/dev/null; then
    zsh -n "$place/share/zsh/site-functions/_ballast" || fail "zsh cannot read its completion"
fi

"$ballast" help completion csh 2>"$place/err" && fail "there is a completion for csh"
grep -q '^hint: .*bash' "$place/err" || fail "$(cat "$place/err")"
