#!/bin/bash
# Builds what bench/gpu/check.sh runs and puts it into one folder, with libraries and fixtures, to be carried to a
# machine with a GPU that has a driver and nothing else.
#   usage: bench/gpu/bundle.sh DIR [CMAKE-OPTION...]
# On a machine with the CUDA toolkit (no GPU). The folder holds all but the C library and the driver's: DIR/gpu/check.sh
# is what is run there. With cuBLASLt that is some 800 MB. Ends with 1, naming it, where a library is missing.
set -euo pipefail
[ $# -ge 1 ] || {
    sed -n '4s/^# *//p' "$0" >&2
    exit 2
}
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
to=$(cd "$1" && pwd)
shift
build=$to.build
tests='test_kernels test_kernel_reference test_kernel_gradients test_kernel_plain test_reference test_policies
    test_same_bits test_spans test_nccl_self'
benches='product_choice copy_ways sustained_rate attention_ways step_ways'

# shellcheck disable=SC2016 # the loader's words
cmake -G Ninja -S "$source" -B "$build" -DBALLAST_PORTABLE_TESTS=ON -DBALLAST_EVENT_FILES=OFF -DBALLAST_URING=OFF \
    -DBALLAST_SERVE=OFF -DBALLAST_LINE_EDIT=OFF -DBALLAST_CUDNN=ON -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
    -DCMAKE_BUILD_RPATH='$ORIGIN/lib;$ORIGIN/../lib' "$@"
# shellcheck disable=SC2086 # lists of names
cmake --build "$build" --target ballast_program $tests $benches

rm -rf "${to:?}"/{tests,bench,lib,fixtures,gpu}
mkdir -p "$to"/{tests,bench,lib}
cp "$build/ballast" "$to/"
for name in $tests; do cp "$build/tests/$name" "$to/tests/"; done
for name in $benches; do cp "$build/bench/$name" "$to/bench/"; done
cp -r "$source/tests/fixtures" "$source/bench/gpu" "$to/"
git -C "$source" rev-parse --short HEAD >"$to/commit" 2>/dev/null || echo unknown >"$to/commit"

# cuBLASLt and cuDNN's parts are opened by name, so that no binary lists them.
opened() {
    local folder
    folder=$(sed -n 's/^CUDA_cublasLt_LIBRARY:[^=]*=\(.*\)\/.*/\1/p' "$build/CMakeCache.txt")
    find "$folder/" -maxdepth 1 -name 'libcublasLt.so.*'
    grep -q '^CUDNN_LIBRARY:.*NOTFOUND' "$build/CMakeCache.txt" || find "$folder/" -maxdepth 1 -name 'libcudnn*.so.*'
}
# So is NCCL; where it is not here, the bundle is without it.
nccl() {
    {
        tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}" | sed '/./!d; s,$,/libnccl.so.2,'
        PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/.*libnccl\.so\.2 .*=> //p'
    } | while read -r library; do
        [ ! -e "$library" ] || { echo "$library" && break; }
    done
}
# The C library is the machine's, and libcuda the driver's.
foreign='/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda)\.so'
binaries=("$build/ballast" "$to"/tests/* "$to"/bench/*)
{
    opened
    nccl
    ldd "${binaries[@]}" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p'
} | sort -u | grep -vE "$foreign" | while read -r library; do
    cp -Ln "$library" "$to/lib/"
done

# As it will be there: what comes from elsewhere than the bundle is missing.
lacking=$(ldd "$to/ballast" "$to"/tests/* "$to"/bench/* | grep -E 'not found|=> /' | grep -vE "=> $to/|$foreign" |
    sed 's/ (0x.*//' | sort -u || true)
[ -z "$lacking" ] || {
    echo "bundle: these libraries are not in it:" >&2
    echo "$lacking" >&2
    exit 1
}
ls "$to"/lib/libcublasLt.so.* >/dev/null
echo "$to: $(du -shL "$to" | cut -f 1), at $(cat "$to/commit"); there: gpu/check.sh"
