#!/bin/sh
# Inputs from public bug reports of trainers, with the values of transformers, peft and trl. All rows use one model and
# one tokenizer (tests/fixtures/reports/model); a row changes the files that it concerns.
# ctest: PROCESSORS 2
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export XDG_CACHE_HOME="$place/cache"
ballast=$BALLAST_PROGRAM
reports=$BALLAST_FIXTURES/reports
data=$reports/data
failures=0

fail() {
    echo "reports: $*" >&2
    failures=$((failures + 1))
}
# A copy of the model, for a row to change.
model() { # <name> [<template>]
    cp -r "$reports/model" "$place/$1"
    chmod -R u+w "$place/$1"
    [ $# -lt 2 ] || cp "$reports/templates/$2.jinja" "$place/$1/chat_template.jinja"
}
# tokenizer_config.json or config.json with a line in place of another.
edit() { # <file> <sed script>
    sed -i "$2" "$1"
}
total() { # <field>, of the JSON on standard input
    awk -v field="\"$1\":" '/"total": \{/ { in_total = 1 } in_total && $1 == field { sub(",", "", $2); print $2; exit }'
}
# Trained tokens and loss of an evaluation; "-" leaves a value out.
evaluates() { # <tokens> <loss> <arguments>
    tokens=$1 loss=$2
    shift 2
    "$ballast" eval "$@" --dtype fp32 --json >"$place/out" 2>"$place/err" || {
        fail "eval $*: $(cat "$place/err")"
        return
    }
    [ "$tokens" = - ] || [ "$(total tokens <"$place/out")" = "$tokens" ] ||
        fail "eval $*: $(total tokens <"$place/out") tokens, not $tokens"
    [ "$loss" = - ] || total loss <"$place/out" | awk -v want="$loss" '{ exit !($1 - want < 2e-4 && want - $1 < 2e-4) }' ||
        fail "eval $*: loss $(total loss <"$place/out"), not $loss"
}
# Exit status 2 with a message.
refuses() { # <words> <arguments>
    words=$1
    shift
    "$ballast" "$@" >"$place/out" 2>"$place/err"
    status=$?
    [ $status -eq 2 ] || fail "$*: exit status $status, not 2: $(cat "$place/err")"
    grep -q -- "$words" "$place/err" || fail "$*: no '$words' in: $(cat "$place/err")"
}

# Rows of conversations keep their keys.
model chatml
model q25 q25
model gptoss gptoss
evaluates 441 - "$place/q25" "$data/f5_sharegpt_tools_string.jsonl" --seq 1500 --loss-on all
evaluates 314 - "$place/q25" "$data/a4.jsonl" --seq 1500 --loss-on all
evaluates 521 - "$place/q25" "$data/f5_tools_json_string.jsonl" --seq 1500 --loss-on all
refuses "a3.jsonl: line 1: tools: must be a list" eval "$place/q25" "$data/a3.jsonl" --seq 1500
evaluates 5 6.6515 "$place/chatml" "$data/f5_weight0.jsonl" --seq 1500
for row in s1 s2 s3 s4; do
    evaluates 40 6.8144 "$place/chatml" "$data/$row.jsonl" --seq 1000 --loss-on all
done
evaluates 235 7.1969 "$place/gptoss" "$data/k_gptoss.jsonl" --seq 3000 --loss-on all --chat-date 2026-11-27
evaluates 3 7.0205 "$place/chatml" "$data/f5_conv_prompt_completion.jsonl" --seq 64
evaluates 24 7.1500 "$place/chatml" "$data/ends_user.jsonl" --seq 64 --loss-on all

# Keys that go to the chat template, which does not name them.
tool='{"type": "function", "function": {"name": "f"}}'
call='{"type": "function", "function": {"name": "f", "arguments": {}}}'
messages="{\"role\": \"user\", \"content\": \"a\", \"name\": \"b\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [$call]}"
printf '{"messages": [%s], "tools": [%s], "chat_template_kwargs": {"effort": 1}}\n' "$messages" "$tool" >"$place/unread.jsonl"
evaluates - - "$place/chatml" "$place/unread.jsonl" --seq 512
grep -q "not read: name, tool_calls, tools, effort$" "$place/err" || fail "keys are dropped by a template: $(cat "$place/err")"
evaluates - - "$place/q25" "$place/unread.jsonl" --seq 512
grep -q "not read: effort$" "$place/err" || fail "keys that a template reads are named: $(cat "$place/err")"
printf '{"conversations": [{"from": "human", "value": "a"}, {"from": "function_call", "value": "%s"}], "tools": "[]"}\n' \
    '{\"name\": \"f\", \"arguments\": {}}' >"$place/unread.jsonl"
evaluates - - "$place/chatml" "$place/unread.jsonl" --seq 512
grep -q "not read: function_call$" "$place/err" || fail "a call is dropped by a template: $(cat "$place/err")"

# Contents in parts, which Nemotron 3's template prints as Python does; its prompt for an answer opens thoughts.
model parts parts
evaluates 101 6.8672 "$place/parts" "$data/parts.jsonl" --seq 512 --loss-on all
evaluates 60 6.7253 "$place/parts" "$data/parts.jsonl" --seq 512

# Integers beyond 64 bits, in rows and in tokenizer_config.json.
evaluates 3 7.0205 "$place/chatml" "$data/f5_big_int_field.jsonl" --seq 64
grep -q "row keys that are not read: id" "$place/err" || fail "the key 'id' is dropped without a word"
model unlimited
edit "$place/unlimited/tokenizer_config.json" 's/"model_max_length": .*/"model_max_length": 1000000000000000019884624838656,/'
evaluates 3 7.0205 "$place/unlimited" "$data/f5_conv_prompt_completion.jsonl" --seq 64

# A completion has one end token: its own, else one that is added, also behind a prompt that ends with one.
printf '{"prompt": "river", "completion": "river<|im_end|>"}\n' >"$place/ends.jsonl"
evaluates 4 - "$place/chatml" "$place/ends.jsonl" --seq 64
printf '{"prompt": "river<|im_end|>", "completion": ""}\n' >"$place/ends.jsonl"
evaluates 1 - "$place/chatml" "$place/ends.jsonl" --seq 64

# The end token: the tokenizer's, else the config's, which must be one.
evaluates 270 - "$place/chatml" "$data/acc.jsonl" --seq 64
model no_end
edit "$place/no_end/config.json" '/"eos_token_id"/d'
evaluates 270 - "$place/no_end" "$data/acc.jsonl" --seq 64
grep -q "a document ends with <|im_end|>, token 3" "$place/err" || fail "the end token is not named"
for id in null -4 99999 1.5 '"1"' '{}' '[1, 2]'; do
    sed "s/\"eos_token_id\": 3,/\"eos_token_id\": $id,/" "$reports/model/config.json" >"$place/no_end/config.json"
    evaluates 8 - "$place/no_end" "$data/eos_out_of_range.jsonl" --seq 64
done
edit "$place/no_end/tokenizer_config.json" '/"eos_token"/d'
evaluates 8 - "$place/no_end" "$data/eos_out_of_range.jsonl" --seq 64
grep -q "a document ends with token 1, config.json's" "$place/err" || fail "the config's end token is not named"
edit "$place/no_end/config.json" 's/"eos_token_id": \[1, 2\],/"eos_token_id": 99999,/'
refuses "config.json: eos_token_id: 99999 is no token" eval "$place/no_end" "$data/eos_out_of_range.jsonl" --seq 64

# Gemma 3's wrapper names its end token in text_config alone.
cp -r "$BALLAST_FIXTURES/models/gemma3_wrapped" "$place/wrapped"
chmod -R u+w "$place/wrapped"
vocab=$(printf '"<unk>": 0' && i=0 && for letter in a b c d e f g h; do i=$((i + 1)) && printf ', "%s": %d' $letter $i; done)
printf '{"model": {"type": "BPE", "vocab": {%s}, "merges": []}}' "$vocab" >"$place/wrapped/tokenizer.json"
printf '{"prompt": "abc", "completion": "defgh"}' >"$place/letters.jsonl"
evaluates 6 - "$place/wrapped" "$place/letters.jsonl" --seq 32
grep -q "a document ends with token 52, config.json's" "$place/err" || fail "the wrapper's end token is not named"

# Plain text begins with what the tokenizer's post-processor adds, in evaluation as in generation, and ends once.
model bos
template='"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}'
edit "$place/bos/tokenizer.json" "/\"post_processor\": {/,/}/c \"post_processor\": {$template},"
printf 'river' >"$place/text.txt"
printf '{"text": "river"}\n{"text": "river<|im_end|>"}\n' >"$place/text.jsonl"
prompt_tokens() { # <model>
    "$ballast" generate "$1" --prompt river --tokens 1 --json 2>"$place/err" | sed -n 's/^  "prompt_tokens": \([0-9]*\).*/\1/p'
}
river=$(prompt_tokens "$place/chatml")
[ "$(prompt_tokens "$place/bos")" = $((river + 1)) ] || fail "generate adds no BOS"
evaluates "$river" - "$place/chatml" "$place/text.txt" --seq "$river"
evaluates $((river + 1)) - "$place/bos" "$place/text.txt" --seq $((river + 1))
evaluates $((2 * river + 1)) - "$place/chatml" "$place/text.jsonl" --seq $((2 * river + 1))
evaluates $((2 * river + 3)) - "$place/bos" "$place/text.jsonl" --seq $((2 * river + 3))
# The same holds for texts of examples, packed or not. A chat template writes its own BOS.
printf '{"prompt": "river", "completion": " stone"}\n{"prompt": "river", "completion": " stone"}\n' >"$place/prompts.jsonl"
printf '{"messages": [{"role": "user", "content": "river"}, {"role": "assistant", "content": "stone"}]}\n' >"$place/chat.jsonl"
for packing in on off; do
    evaluates 12 - "$place/chatml" "$place/prompts.jsonl" --seq 64 --loss-on all --packing $packing
    evaluates 14 - "$place/bos" "$place/prompts.jsonl" --seq 64 --loss-on all --packing $packing
    evaluates 21 - "$place/bos" "$place/chat.jsonl" --seq 64 --loss-on all --packing $packing
done
for name in chatml bos; do
    "$ballast" generate "$place/$name" --chat --prompt river --tokens 1 --json 2>"$place/err" |
        grep -q '^  "prompt_tokens": 17' || fail "$name: chat has another prompt than transformers"
done

# Special tokens that only the files next to tokenizer.json name get transformers' ids.
outside() { # <tokens> <prompt> <what tokenizer_config.json says more>
    model outside
    edit "$place/outside/tokenizer_config.json" "s/^{/{$3,/"
    tokens=$("$ballast" generate "$place/outside" --prompt "$2" --tokens 1 --json 2>"$place/err" |
        sed -n 's/^  "prompt_tokens": \([0-9]*\).*/\1/p')
    [ "$tokens" = "$1" ] || fail "with $3: $tokens prompt tokens, not $1: $(cat "$place/err")"
    rm -r "$place/outside"
}
outside 1 '<|tool|>' '"additional_special_tokens": ["<|tool|>"]'
outside 9 'a<|tool|>b<x><y>' '"additional_special_tokens": ["<|tool|>"]'
outside 7 'a<|tool|>b<x><y>' '"extra_special_tokens": ["<|tool|>", "<x>"]'
outside 9 'a<|tool|>b<x><y>' '"extra_special_tokens": {"tool_token": "<|tool|>"}'
outside 9 'a<|tool|>b<x><y>' '"tool_token": "<|tool|>"'
outside 7 'a<|tool|>b<x><y>' '"added_tokens_decoder": {"502": {"content": "<|tool|>", "special": true}, "501": {"content": "<y>"}}'
model outside
echo '{"<|tool|>": 501, "<x>": 500}' >"$place/outside/added_tokens.json"
[ "$("$ballast" generate "$place/outside" --prompt 'a<|tool|>b<x><y>' --tokens 1 --json 2>/dev/null |
    sed -n 's/^  "prompt_tokens": \([0-9]*\).*/\1/p')" = 7 ] || fail "added_tokens.json is not read"

# An adapter's own tokenizer and template; an adapter of an adapter.
"$ballast" train "$place/chatml" "$data/acc.jsonl" -o "$place/run" --lora 4,8,q_proj,v_proj --steps 1 --seq 16 --batch 2 \
    >"$place/out" 2>"$place/err" || fail "train: $(cat "$place/err")"
cp -r "$place/run/model" "$place/adapter"
rm -f "$place/adapter/manifest.json"
chat_tokens() { # <model>
    "$ballast" generate "$1" --chat --prompt hi --tokens 1 --json 2>"$place/err" | sed -n 's/^  "prompt_tokens": \([0-9]*\).*/\1/p'
}
own=$(chat_tokens "$place/adapter")
cp "$reports/templates/brackets.jinja" "$place/adapter/chat_template.jinja"
model brackets brackets
[ "$(chat_tokens "$place/adapter")" = 16 ] || fail "an adapter's prompt is not that of transformers"
[ "$(chat_tokens "$place/adapter")" = "$(chat_tokens "$place/brackets")" ] || fail "an adapter's template is not used"
[ "$(chat_tokens "$place/adapter")" != "$own" ] || fail "the templates do not differ"
"$ballast" merge "$place/adapter" -o "$place/merged" >"$place/out" 2>"$place/err" || fail "merge: $(cat "$place/err")"
cmp -s "$place/merged/chat_template.jinja" "$reports/templates/brackets.jinja" || fail "merge leaves the adapter's template out"
based_on() { # <base>
    edit "$place/adapter/adapter_config.json" "s,\"base_model_name_or_path\": .*\",\"base_model_name_or_path\": \"$1\","
}
for base in "$place/adapter" .; do
    based_on "$base"
    refuses "the base model is an adapter itself" inspect "$place/adapter"
done
cp -r "$place/adapter" "$place/other"
based_on "$place/other"
refuses "the base model is an adapter itself" eval "$place/adapter" "$data/acc.jsonl" --seq 64
based_on ../chatml
"$ballast" inspect "$place/adapter" >"$place/out" 2>"$place/err" || fail "a base next to the adapter: $(cat "$place/err")"

# The same targets in another order are the same adapter.
"$ballast" train "$place/adapter" "$data/acc.jsonl" -o "$place/again" --lora 4,8,v_proj,q_proj --steps 1 --seq 16 --batch 2 \
    >"$place/out" 2>"$place/err" || fail "train: $(cat "$place/err")"
"$ballast" train "$place/chatml" "$data/acc.jsonl" -o "$place/all" --lora 4,8,all-linear --steps 1 --seq 16 --batch 2 \
    >"$place/out" 2>"$place/err" || fail "train: $(cat "$place/err")"
edit "$place/all/model/adapter_config.json" 's/"q_proj"/"swapped"/; s/"down_proj"/"q_proj"/; s/"swapped"/"down_proj"/'
rm -f "$place/all/model/manifest.json"
"$ballast" train "$place/all/model" "$data/acc.jsonl" -o "$place/all_again" --lora 4,8,all-linear --steps 1 --seq 16 \
    --batch 2 >"$place/out" 2>"$place/err" || fail "train: $(cat "$place/err")"
refuses "differs from the model's adapter" train "$place/adapter" "$data/acc.jsonl" -o "$place/none" --lora 4,8,q_proj --seq 16

# A frozen embedding: the first norm then has no gradient of its input.
"$ballast" profile "$place/chatml" --freeze model.embed_tokens.weight --seq 16 --batch 2 >"$place/out" 2>"$place/err" ||
    fail "profile: $(cat "$place/err")"

# A run of adapters whose base model has moved goes on with --base, if it is the same model.
model first
"$ballast" train "$place/first" "$data/acc.jsonl" -o "$place/lora" --lora 4,8,q_proj --steps 2 --save-every 1 --seq 16 \
    --batch 2 >"$place/out" 2>"$place/err" || fail "train: $(cat "$place/err")"
mv "$place/first" "$place/second"
refuses "is no directory here" resume "$place/lora" --steps 3
sed 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 0.1/' "$place/second/config.json" >"$place/bos/config.json"
refuses "is not the one that the adapters were trained with" resume "$place/lora" --steps 3 --base "$place/bos"
"$ballast" resume "$place/lora" --steps 3 --base "$place/second" >"$place/out" 2>"$place/err" ||
    fail "resume --base: $(cat "$place/err")"
"$ballast" inspect "$place/lora/model" >"$place/out" 2>"$place/err" || fail "after --base: $(cat "$place/err")"

# A size may be in plain bytes.
"$ballast" plan "$place/chatml" --device-memory 702464 >"$place/out" 2>"$place/err"
grep -q "than the 686 KiB that there are" "$place/err" || fail "--device-memory 702464: $(cat "$place/err")"

# A link in place of a run's file is neither written nor cut.
echo "mine" >"$place/mine.txt"
for file in metrics.jsonl samples.jsonl; do
    rm -rf "$place/linked"
    "$ballast" train "$place/chatml" "$data/acc.jsonl" -o "$place/linked" --steps 1 --seq 16 --batch 2 --sample-every 1 \
        >"$place/out" 2>"$place/err" || fail "train: $(cat "$place/err")"
    rm -f "$place/linked/$file"
    ln -s "$place/mine.txt" "$place/linked/$file"
    refuses "$file: is not a regular file" resume "$place/linked" --steps 2
    [ "$(cat "$place/mine.txt")" = mine ] || fail "resume writes through $file"
done

# peft's older form of adapters.
cp -r "$place/adapter" "$place/pickled"
mv "$place/pickled/adapter_model.safetensors" "$place/pickled/adapter_model.bin"
refuses "adapter_model.bin: is a pickle of PyTorch" inspect "$place/pickled"

# A page for all addresses of the machine says so, and names one that works elsewhere.
"$ballast" train "$place/chatml" "$data/acc.jsonl" -o "$place/served" --steps 1 --seq 16 --batch 2 --serve 0.0.0.0:0 \
    >"$place/out" 2>"$place/err" || fail "train --serve: $(cat "$place/err")"
grep -q "everybody who reaches this machine" "$place/err" || fail "--serve 0.0.0.0 warns of nothing"
grep -q "http://$(uname -n):" "$place/out" "$place/err" || fail "--serve names no address of the machine: $(cat "$place/err")"

# Templates by name.
model named
mkdir "$place/named/additional_chat_templates"
cp "$reports/templates/q25.jinja" "$place/named/additional_chat_templates/tool_use.jinja"
evaluates 441 - "$place/named" "$data/f5_sharegpt_tools_string.jsonl" --seq 1500 --loss-on all
evaluates 3 7.0205 "$place/named" "$data/f5_conv_prompt_completion.jsonl" --seq 64
"$ballast" train "$place/named" "$data/acc.jsonl" -o "$place/named_run" --steps 1 --seq 16 --batch 2 \
    >"$place/out" 2>"$place/err" || fail "train: $(cat "$place/err")"
cmp -s "$place/named_run/model/additional_chat_templates/tool_use.jinja" "$reports/templates/q25.jinja" ||
    fail "a run leaves the templates by name out"

# --base is for adapters.
refuses "is for runs that train adapters" resume "$place/named_run" --steps 2 --base "$place/chatml"

# Files that other programs write.
evaluates 3 7.0205 "$place/chatml" "$data/f5_bom.jsonl" --seq 64
printf '\377\376a\0' >"$place/wide.txt"
printf '\357\273\277river stone' >"$place/mark.txt"
"$ballast" eval "$place/chatml" "$place/mark.txt" --seq 4 >"$place/out" 2>"$place/err" || fail "mark.txt: $(cat "$place/err")"
grep -q "mark.txt: begins with a byte-order mark" "$place/err" || fail "a byte-order mark is read without a word"
refuses "wide.txt: is UTF-16" eval "$place/chatml" "$place/wide.txt" --seq 4
mkdir "$place/split"
for split in train-00000-of-00002 train-00001-of-00002 validation; do
    cp "$data/acc.jsonl" "$place/split/$split.jsonl"
done
"$ballast" train "$place/chatml" "$place/split" -o "$place/split_run" --steps 1 --seq 64 --batch 2 \
    >"$place/out" 2>"$place/err" || fail "train: $(cat "$place/err")"
grep -q val_loss "$place/split_run/metrics.jsonl" || fail "validation.jsonl is not read"

# Alpaca's system prompt counts without a chat template too: it replaces the first paragraph.
model no_template
rm "$place/no_template/chat_template.jinja"
printf '{"instruction": "Add.", "output": "5"}\n' >"$place/plain.jsonl"
printf '{"instruction": "Add.", "output": "5", "system": "You are a pirate."}\n' >"$place/system.jsonl"
printf '{"prompt": "You are a pirate.\\n\\n### Instruction:\\nAdd.\\n\\n### Response:\\n", "completion": "5"}\n' >"$place/same.jsonl"
for file in plain system same; do
    "$ballast" eval "$place/no_template" "$place/$file.jsonl" --seq 512 --loss-on all --json 2>/dev/null | total loss >"$place/$file.loss"
done
cmp -s "$place/system.loss" "$place/same.loss" || fail "Alpaca's system prompt is not read"
cmp -s "$place/system.loss" "$place/plain.loss" && fail "Alpaca's system prompt is dropped"

sum='"instruction": "Add the numbers.", "input": "2 3", "output": "5"'
printf '{%s}\n' "$sum" >"$place/plain.jsonl"
printf '{%s, "system": "You are a pirate and answer in rhymes."}\n' "$sum" >"$place/system.jsonl"
evaluates 131 - "$place/no_template" "$place/plain.jsonl" --seq 512 --loss-on all
evaluates 72 - "$place/no_template" "$place/system.jsonl" --seq 512 --loss-on all

# A header of 0x10280 bytes begins with the bytes of a pickle.
model long_header
length=$(od -An -tu8 -N8 "$reports/model/model.safetensors" | tr -d ' ')
{
    printf '\200\002\001\000\000\000\000\000'
    tail -c +9 "$reports/model/model.safetensors" | head -c "$length"
    printf "%$((66176 - length))s" ''
    tail -c +$((9 + length)) "$reports/model/model.safetensors"
} >"$place/long_header/model.safetensors"
evaluates 3 7.0205 "$place/long_header" "$data/f5_conv_prompt_completion.jsonl" --seq 64
"$ballast" inspect "$reports/tied_only_head" >"$place/out" 2>"$place/err" || fail "only the head: $(cat "$place/err")"

# Padding adds nothing to the loss that balances experts (tests/reference/padded_balance.py has transformers' value).
cp -r "$BALLAST_FIXTURES/models/qwen3_moe_balanced" "$place/balanced"
chmod -R u+w "$place/balanced"
vocab=$(echo 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.' | sed 's/./&\n/g' |
    awk 'NF { printf "%s\"%s\": %d", n ? ", " : "", $1, n; n++ }')
echo "{\"version\": \"1.0\", \"added_tokens\": [], \"model\": {\"type\": \"BPE\", \"vocab\": {$vocab}, \"merges\": []}}" \
    >"$place/balanced/tokenizer.json"
printf '{"prompt": "%s", "completion": "%s"}\n' abc qrsu Hello W. zY vutsrqpo mnop KLMNO >"$place/letters.jsonl"
for seq in 12 16 64; do
    rm -rf "$place/balanced_run"
    "$ballast" train "$place/balanced" "$place/letters.jsonl" --valid "$place/letters.jsonl" -o "$place/balanced_run" \
        --steps 1 --batch 4 --micro-batch 4 --seq $seq --packing off --dtype fp32 >"$place/out" 2>"$place/err" || fail "train: $(cat "$place/err")"
    sed -n 's/.*loss": \([0-9.]*\).*/\1/p' "$place/balanced_run/metrics.jsonl" | tr '\n' ' ' >"$place/losses"
    awk 'function near(a, b) { return a - b < 2e-5 && b - a < 2e-5 }
        { exit !(near($1, 5.21432) && near($2, 5.17974)) }' "$place/losses" ||
        fail "at --seq $seq the losses of the first step and of validation are $(cat "$place/losses")"
done
rm "$place/balanced_run/checkpoints/step-00000001/ballast_manifest.json" # version 3 of state.json needs none
sed -i 's/"kernels_version": [0-9]*/"kernels_version": 9/; s/"version": 5/"version": 3/' "$place/balanced_run/run.json" \
    "$place/balanced_run/checkpoints/step-00000001/state.json"
refuses "kernels_version: 9 counts padding in the load-balancing loss" resume "$place/balanced_run" --steps 2
"$ballast" resume "$place/balanced_run" --steps 2 --allow-recipe-change >"$place/out" 2>"$place/err" ||
    fail "resume --allow-recipe-change: $(cat "$place/err")"

[ $failures -eq 0 ] || exit 1
