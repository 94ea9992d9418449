#!/bin/bash
# Builds the programs that bench/gpu/first.sh and second.sh run in DIR, and packs them as DIR/gpu.tar.xz, to copy to a
# machine with a GPU.
#   usage: bench/gpu/bundle.sh [--rehearse|--size] [DIR [CMAKE-OPTION...]]          DIR: build-gpu, which git ignores
# Needs the CUDA toolkit, but no GPU. Builds only for compute capability 9.0; -DCMAKE_CUDA_ARCHITECTURES=80-real makes a
# bundle for an A100. The machine with the GPU needs the driver, cuBLASLt from the toolkit or from pip's packages, and a
# copy of this checkout for the fixtures.
# --rehearse packs tests of the CUDA kernels that run on the emulator, for first.sh --rehearse without a GPU.
# --size only prints the sizes. Exits with 1 if a library is missing, or if the checkout and the archive together exceed
# 60 MiB.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
rehearse='' size=''
case ${1:-} in
--rehearse) rehearse=yes && shift ;;
--size) size=yes && shift ;;
esac
[[ ${1:-build-gpu} != -* ]] || {
    sed -n '4s/^# *//p' "$0" >&2
    exit 2
}
build=$(realpath -m "${1:-$source/build-gpu}")
shift $(($# > 0))
to=$build/gpu archive=$build/gpu.tar.xz
emulated='kernel_muon kernel_plain kernel_reference kernel_runs kernel_updates'
tests='kernel_attention kernel_gradients kernels nccl_self policies reference same_bits lanes graph_segments'
benches='product_choice copy_ways sustained_rate attention_ways step_ways library_version random_tokens'

# Sizes of all files of the checkout: tracked ones, and untracked ones that git does not ignore. Deleted files count as
# 0.
sizes() {
    (cd "$source" && git ls-files -z --cached --others --exclude-standard | xargs -0 -r stat -c '%s %n' -- 2>/dev/null || true)
}

# size_check [ARCHIVE]: prints the sizes. Returns 1 if checkout and archive exceed the limit.
size_check() {
    local tree archive=0
    tree=$(sizes | awk '{ sum += $1 } END { printf "%d", sum }')
    [ -z "${1:-}" ] || archive=$(stat -c %s "$1") || return
    awk -v tree="$tree" -v archive="$archive" -v limit=60 'BEGIN {
        printf "checkout %.1f MiB, bundle %.1f MiB, limit %d MiB\n", tree / 1048576, archive / 1048576, limit
        exit tree + archive > limit * 1048576 }' && return
    echo "bundle: checkout and bundle are too large to travel; the largest directories are $(sizes |
        awk '{ split($2, part, "/"); sum[part[1] "/" part[2]] += $1 }
            END { for (name in sum) printf "%.1f MiB %s\n", sum[name] / 1048576, name }' | sort -rn | head -3 | paste -sd ,)" >&2
    return 1
}

if [ -n "$size" ]; then
    size_check "$archive"
    exit
fi
size_check # before a long build

# shellcheck disable=SC2016 # the loader's words
cmake -G Ninja -S "$source" -B "$build" -DBALLAST_PORTABLE_TESTS=ON -DBALLAST_EVENT_FILES=OFF -DBALLAST_URING=OFF \
    -DBALLAST_SERVE=OFF -DBALLAST_LINE_EDIT=OFF -DBALLAST_MPI=OFF -DBALLAST_CUDNN=ON -DCMAKE_CUDA_ARCHITECTURES=90-real \
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags -DCMAKE_BUILD_RPATH='$ORIGIN/lib;$ORIGIN/../lib' "$@"
suffix=${rehearse:+_emulated}
# shellcheck disable=SC2046,SC2086 # lists of names
cmake --build "$build" --target ballast_program $benches $(printf "test_%s$suffix " $emulated) $(printf 'test_%s ' $tests)

rm -rf "$to" && mkdir -p "$to"/{tests,bench,lib}
cp "$build/ballast" "$to/"
for name in $emulated; do cp "$build/tests/test_$name$suffix" "$to/tests/test_$name"; done
for name in $tests; do cp "$build/tests/test_$name" "$to/tests/"; done
for name in $benches; do cp "$build/bench/$name" "$to/bench/"; done
git -C "$source" describe --always --dirty >"$to/commit" 2>/dev/null || echo unknown >"$to/commit"
binaries=("$to/ballast" "$to"/tests/* "$to"/bench/*)
strip "${binaries[@]}"

# The other machine provides the C library, libcuda (in the driver) and cuBLASLt.
foreign='/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda|libcublasLt)\.so'
ldd "${binaries[@]}" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | sort -u | grep -vE "$foreign" | while read -r library; do
    cp -Ln "$library" "$to/lib/"
done
lacking=$(ldd "${binaries[@]}" | grep -E 'not found|=> /' | grep -vE "=> $to/|$foreign|libcublasLt" | sed 's/ (0x.*//' |
    sort -u || true)
[ -z "$lacking" ] || {
    echo "bundle: these libraries are missing:" >&2
    echo "$lacking" >&2
    exit 1
}
# The libraries to take from the other machine: one pattern per line, with the major versions of this build.
cuda=$(sed -n 's/^CUDA_cublasLt_LIBRARY:[^=]*=\(.*\)\/.*/\1/p' "$build/CMakeCache.txt")
major() { find "$cuda/" -maxdepth 1 -name "$1.so.[0-9]*" | sed 's/.*\.so\.\([0-9]*\).*/\1/' | sort -n | tail -1; }
{
    echo "libcublasLt.so.$(major libcublasLt)"
    echo libnccl.so.2
    if ! grep -q '^CUDNN_LIBRARY:.*NOTFOUND' "$build/CMakeCache.txt"; then
        printf '%s\n' "libcudnn*.so.$(major libcudnn)" "libnvrtc.so.$(major libnvrtc)*" "libnvrtc-builtins.so.$(major libnvrtc)*"
    fi
} >"$to/borrowed"
# Compresses one stream with a dictionary of its length, because the binaries share most of their bytes.
tar -C "$to" -cf - . | xz --x86 --lzma2=preset=9e,dict=256MiB >"$archive"
size_check "$archive"
