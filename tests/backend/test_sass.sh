#!/bin/sh
# Checks the machine code of CUDA kernels for sm_90 in the program: 16-byte loads and stores, asynchronous copies to
# shared memory, no division in loops, and no spilled registers. Needs no GPU, but cuobjdump and nvdisasm of the CUDA
# toolkit, in PATH, next to nvcc, or from pip (nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm).
#   usage: test_sass.sh [FILE]      checks FILE instead of BALLAST_PROGRAM
set -eu
file=${1:-$BALLAST_PROGRAM}
from_pip=$(python3 -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null || true)
for folder in "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/bin $(for at in $from_pip; do echo "$at"/cu*/bin; done); do
    PATH=$PATH:$folder
done
for tool in cuobjdump nvdisasm c++filt; do
    command -v "$tool" >/dev/null || {
        echo "skipped: there is no $tool; needs the CUDA toolkit with its binary tools, or: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
        exit 77
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cuobjdump -arch sm_90 -sass "$file" >"$work/raw" 2>"$work/errors" || true
if ! grep -q 'Function : ' "$work/raw"; then
    echo "skipped: no code for sm_90 in $file; needs CMAKE_CUDA_ARCHITECTURES with 90"
    exit 77
fi
c++filt <"$work/raw" >"$work/sass"
cuobjdump -arch sm_90 -res-usage "$file" 2>&1 | c++filt >"$work/usage"

# Kernels (whole names of templates, as extended regular expressions), where (all, or loops: between the target of a
# jump back and the jump), instructions, and how many there are: least and most, - for any.
cat >"$work/rules" <<'RULES'
rows_kernel<.*, (float, 4|__nv_bfloat16, 8)>@all@STG\.E@0@0
rows_kernel<.*, (float, 4|__nv_bfloat16, 8)>@all@STG\.E\.128@1@2
rows_kernel<.*, (float, 4|__nv_bfloat16, 8)>@all@LDG\.E(\.U16)?@0@0
embedding_grad_kernel<(float, 4|__nv_bfloat16, 8)>@all@LDG\.E\.128@1@-
rope_kernel<(float, 4|__nv_bfloat16, 8)>@all@STG\.E@0@0
rope_kernel<(float, 4|__nv_bfloat16, 8)>@all@STG\.E\.128@2@-
rope_kernel<(float, 4|__nv_bfloat16, 8)>@all@LDG\.E@0@0
norm_kernel<__nv_bfloat16, 8, .*>@all@LDG\.E\.U16@0@0
norm_kernel<__nv_bfloat16, 8, .*>@all@STG\.E\.128@1@-
norm_kernel<.*>@all@(CALL|MUFU\.RCP64H|DFMA).*@0@0
norm_kernel<__nv_bfloat16, 8, 32, 4>@all@LDG\.E\.128@12@12
norm_dx_kernel<__nv_bfloat16, 8, .*>@all@LDG\.E\.U16@0@0
norm_dx_kernel<__nv_bfloat16, 8, .*>@all@STG\.E\.128@1@-
norm_dx_kernel<.*>@all@CALL.*@0@0
norm_dx_kernel<__nv_bfloat16, 8, 32, 4>@all@LDG\.E\.128@20@20
norm_grad_kernel<__nv_bfloat16, 8, [34]>@all@LDG\.E\.U16@0@0
norm_grad_kernel<__nv_bfloat16, 8, [34]>@loops@LDG\.E\.128@12@-
norm_grad_kernel<__nv_bfloat16, 8, [34]>@loops@STG\.E\.128@1@-
norm_grad_kernel<.*>@all@(CALL|MUFU\.RCP64H|DFMA).*@0@0
norm_grad_kernel<__nv_bfloat16, 8, 3>@all@(LDL|STL).*@0@2
norm_grad_kernel<(float, .*|__nv_bfloat16, 8, 4)>@all@(LDL|STL).*@0@0
norm_weight_kernel<.*>@loops@(CALL|MUFU).*@0@0
norm_weight_kernel<__nv_bfloat16, 8>@all@LDG\.E\.U16@0@0
norm_weight_kernel<__nv_bfloat16, 8>@loops@LDG\.E\.128@8@-
sum_kernel<__nv_bfloat16, 8>@all@LDG\.E\.U16@0@0
sum_kernel<__nv_bfloat16, 8>@loops@LDG\.E\.128@1@-
loss_kernel<__nv_bfloat16>@all@STG\.E\.U16@0@0
loss_kernel<__nv_bfloat16>@loops@STG\.E\.128@2@-
loss_kernel<__nv_bfloat16>@loops@LDG\.E\.128@4@-
(attention|dq|dkv)_kernel<bf16_tiles<(64|128), [0-9]+>.*>@all@LDG\.E\.128@0@0
(attention|dq|dkv)_kernel<bf16_tiles<(64|128), [0-9]+>.*>@loops@LDGSTS.*128@2@-
(attention|dq|dkv)_kernel<bf16_tiles<(64|128), [0-9]+>.*>@loops@VOTE.*@1@-
(attention|dq|dkv)_kernel<bf16_tiles<(64|128), [0-9]+>.*>@all@(LDL|STL).*@0@0
dkv_kernel<bf16_tiles<(64|128), [0-9]+>.*>@loops@LDGSTS\.E@2@-
square_kernel@loops@LDG\.E\.128@1@-
update_kernel<.update_rule.0, float, float>@all@LDG\.E\.128@4@-
update_kernel<.update_rule.0, float, float>@all@STG\.E\.128@3@-
update_kernel<.update_rule.[12], float, float>@all@LDG\.E\.128@3@-
update_kernel<.update_rule.[12], float, float>@all@STG\.E\.128@2@-
RULES

# kernel@where@instruction: one line for each instruction.
awk '
function close_kernel(   i, k, begin, looped) {
    for (i = 1; i <= count; i++)
        if (target[i] >= 0 && target[i] < address[i])
            for (k = 1; k <= i; k++)
                if (address[k] >= target[i]) looped[k] = 1
    for (i = 1; i <= count; i++) print kernel "@" (looped[i] ? "loops" : "all") "@" opcode[i]
    count = 0
}
function number(text,   i, value) {
    value = 0
    for (i = 1; i <= length(text); i++) value = value * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1
    return value
}
/Function : / {
    close_kernel()
    kernel = $0
    sub(/.*Function : (void )?/, "", kernel)
    sub(/\([^()]*\)[^()]*$/, "", kernel)
    next
}
match($0, /^ +\/\*[0-9a-f]+\*\//) {
    count++
    address[count] = number(substr($0, index($0, "/*") + 2, RLENGTH - index($0, "/*") - 3))
    text = substr($0, RLENGTH + 1)
    sub(/^ *(@!?U?P[0-9T]+ +)?/, "", text)
    opcode[count] = text
    sub(/[ ;].*/, "", opcode[count])
    target[count] = -1
    if (opcode[count] ~ /^BRA/ && match(text, /0x[0-9a-f]+/)) target[count] = number(substr(text, RSTART + 2, RLENGTH - 2))
}
END { close_kernel() }' "$work/sass" >"$work/instructions"

awk -F@ '
NR == FNR { kernels[++rules] = $1; where[rules] = $2; name[rules] = $3; least[rules] = $4; most[rules] = $5; next }
!(($1, $3) in all) { names[$1]++; list[$1, names[$1]] = $3 }
{ all[$1, $3]++; loops[$1, $3] += $2 == "loops" }
function count_of(kernel, rule,   i, key, count) {
    for (i = 1; i <= names[kernel]; i++) {
        if (list[kernel, i] !~ ("^(" name[rule] ")$")) continue
        key = kernel SUBSEP list[kernel, i]
        count += where[rule] == "all" ? all[key] : loops[key]
    }
    return count + 0
}
END {
    for (r = 1; r <= rules; r++) {
        found = 0
        for (kernel in names) {
            if (kernel !~ ("^(" kernels[r] ")$")) continue
            found++
            count = count_of(kernel, r)
            if (count >= least[r] + 0 && (most[r] == "-" || count <= most[r] + 0)) continue
            printf "%s: %d of %s (%s); least and most are %s, %s\n", kernel, count, name[r], where[r], least[r], most[r]
            failed = 1
        }
        if (!found) { printf "there is no kernel %s\n", kernels[r]; failed = 1 }
    }
    exit failed
}' "$work/rules" "$work/instructions" || touch "$work/failed"

# Registers let so many blocks of 128 threads be on a multiprocessor, which has 65536; head sizes 64 and 128 spill none.
awk '
/Function / { kernel = $0; sub(/.*Function (void )?/, "", kernel); sub(/:$/, "", kernel); next }
kernel ~ /^(attention|dq|dkv)_kernel<bf16_tiles<(64|128), / && match($0, /REG:[0-9]+/) {
    registers = substr($0, RSTART + 4, RLENGTH - 4)
    most = kernel ~ /^dkv/ ? 255 : 168
    checked++
    if ($0 !~ /STACK:0 / || $0 !~ /LOCAL:0 / || registers > most) {
        print kernel ": " $0 "; at most " most " registers and no stack are expected"
        failed = 1
    }
}
END { if (checked != 12) { print checked + 0 " kernels of attention were found, not 12 (6, with soft caps and without)"; failed = 1 }; exit failed }' \
    "$work/usage" || touch "$work/failed"

[ ! -e "$work/failed" ] || exit 1
echo "$(wc -l <"$work/rules") rules hold for $(cut -d@ -f1 "$work/instructions" | sort -u | wc -l) kernels"
