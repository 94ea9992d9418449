#!/bin/bash
# Builds what bench/gpu/check.sh runs and puts it into one folder, to be carried to a machine with a GPU.
#   usage: bench/gpu/bundle.sh [--thin] DIR [CMAKE-OPTION...]
# On a machine with the CUDA toolkit (no GPU). DIR holds all but the C library and the driver's, for a machine that has a
# driver and nothing else: DIR/gpu/check.sh is what is run there. With NVIDIA's libraries that is 1.6 GB.
# --thin leaves out these, the fixtures and debugging symbols, and packs the rest as DIR.tar.xz, some 16 MB with one
# CMAKE_CUDA_ARCHITECTURES, for a machine that has the toolkit or PyTorch: bench/gpu/check.sh --bundle DIR.tar.xz finds them
# there by itself. Of the checkout it needs bench/gpu and tests/fixtures, 45 MB.
# Ends with 1, naming it, where a library is missing.
set -euo pipefail
usage() {
    sed -n '3s/^# *//p' "$0" >&2
    exit 2
}
thin=''
[ "${1:-}" != --thin ] || { thin=yes && shift; }
[[ ${1:--} != -* ]] || usage
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
to=$(cd "$1" && pwd)
shift
build=$to.build
tests='test_kernels test_kernel_reference test_kernel_gradients test_kernel_plain test_kernel_updates test_kernel_runs
    test_reference test_policies test_same_bits test_lanes test_spans test_nccl_self'
benches='product_choice copy_ways sustained_rate attention_ways step_ways'

# shellcheck disable=SC2016 # the loader's words
cmake -G Ninja -S "$source" -B "$build" -DBALLAST_PORTABLE_TESTS=ON -DBALLAST_EVENT_FILES=OFF -DBALLAST_URING=OFF \
    -DBALLAST_SERVE=OFF -DBALLAST_LINE_EDIT=OFF -DBALLAST_CUDNN=ON -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
    -DCMAKE_BUILD_RPATH='$ORIGIN/lib;$ORIGIN/../lib' "$@"
# shellcheck disable=SC2086 # lists of names
cmake --build "$build" --target ballast_program $tests $benches

rm -rf "${to:?}"/{tests,bench,lib,fixtures,gpu,borrowed}
mkdir -p "$to"/{tests,bench,lib}
cp "$build/ballast" "$to/"
for name in $tests; do cp "$build/tests/$name" "$to/tests/"; done
for name in $benches; do cp "$build/bench/$name" "$to/bench/"; done
git -C "$source" rev-parse --short HEAD >"$to/commit" 2>/dev/null || echo unknown >"$to/commit"

# NVIDIA's libraries are opened by name, so that no binary lists them (but for cuBLASLt, in one). cuDNN compiles kernels
# by nvrtc. Where cuDNN or NCCL is not here, the bundle is without it.
cuda=$(sed -n 's/^CUDA_cublasLt_LIBRARY:[^=]*=\(.*\)\/.*/\1/p' "$build/CMakeCache.txt")
nvidia=('libcublasLt.so.[0-9]*' 'libnccl.so.2')
grep -q '^CUDNN_LIBRARY:.*NOTFOUND' "$build/CMakeCache.txt" ||
    nvidia+=('libcudnn*.so.[0-9]' 'libnvrtc.so.[0-9]*' 'libnvrtc-builtins.so.[0-9]*')
nccl() {
    {
        tr ':' '\n' <<<"$cuda:${LD_LIBRARY_PATH:-}" | sed '/./!d; s,$,/libnccl.so.2,'
        PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/.*libnccl\.so\.2 .*=> //p'
    } | while read -r library; do
        if [ -e "$library" ]; then echo "$library"; fi
    done | sed -n 1p
}
opened() {
    local name
    for name in "${nvidia[@]}"; do find "$cuda/" -maxdepth 1 -name "$name"; done
    nccl
}
# The C library is the machine's, and libcuda the driver's.
foreign='/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda)\.so'
binaries=("$to/ballast" "$to"/tests/* "$to"/bench/*)
[ -z "$thin" ] || strip "${binaries[@]}"
{
    [ -n "$thin" ] || opened
    ldd "$build/ballast" "$build"/tests/test_kernels "$build"/bench/{product_choice,step_ways} |
        sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | { if [ -n "$thin" ]; then grep -v /libcublasLt; else cat; fi; }
} | sort -u | grep -vE "$foreign" | while read -r library; do
    cp -Ln "$library" "$to/lib/"
done

# As it will be there: what comes from elsewhere than the bundle is missing.
lacking=$(ldd "${binaries[@]}" | grep -E 'not found|=> /' | grep -vE "=> $to/|$foreign${thin:+|libcublasLt}" |
    sed 's/ (0x.*//' | sort -u || true)
[ -z "$lacking" ] || {
    echo "bundle: these libraries are not in it:" >&2
    echo "$lacking" >&2
    exit 1
}
if [ -z "$thin" ]; then
    cp -r "$source/tests/fixtures" "$source/bench/gpu" "$to/"
    ls "$to"/lib/libcublasLt.so.* >/dev/null
    echo "$to: $(du -shL "$to" | cut -f 1), at $(cat "$to/commit"); there: gpu/check.sh"
    exit
fi
# What check.sh borrows from the machine there, of these versions: a pattern a line.
major() { find "$cuda/" -maxdepth 1 -name "$1.so.[0-9]*" | sed 's/.*\.so\.\([0-9]*\).*/\1/' | sort -n | tail -1; }
printf '%s\n' "${nvidia[@]}" | sed "/cublasLt/s/\[.*/$(major libcublasLt)/; /cudnn/s/\[.*/$(major libcudnn)/; /nvrtc/s/\[.*/$(major libnvrtc)*/" >"$to/borrowed"
# One stream with a dictionary as long as all of it: the binaries have most of their bytes in common.
tar -C "$to" -cf - . | xz --x86 --lzma2=preset=9e,dict=256MiB >"$to.tar.xz"
echo "$to.tar.xz: $(du -h --apparent-size "$to.tar.xz" | cut -f 1), at $(cat "$to/commit"); there: bench/gpu/check.sh --bundle $(basename "$to").tar.xz"
