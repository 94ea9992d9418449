#!/bin/sh
# Checks that a compiler for arm64 takes all of src, with the flags of the build; with BALLAST_LONG set machine code is
# made, too, and dropped.
#   usage: scripts/check-arm64.sh [COMPILER]         default: aarch64-linux-gnu-gcc
# The headers of the libraries are this machine's: they are the same on both, and come after the compiler's own.
set -eu
compiler=${1:-aarch64-linux-gnu-gcc}
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

flags='-std=gnu11 -O1 -fopenmp -ffp-contract=off -fno-math-errno -D_GNU_SOURCE -Isrc -Iinclude -idirafter /usr/include
       -idirafter /usr/include/coin
       -idirafter /usr/include/'"$(cc -dumpmachine)"'
       -DBALLAST_VERSION="arm64" -Werror=implicit-function-declaration -Werror=int-conversion'
# Messages are made here, as the build makes them; without protoc-c the file that uses them is left out.
without=
if command -v protoc-c >/dev/null; then
    protoc-c --proto_path=src "--c_out=$out" src/train/event.proto
    flags="$flags -I$out"
else
    without=src/train/event_file.c
fi
# Without liburing, libmicrohttpd and libedit the build leaves these out too.
if [ ! -e /usr/include/liburing.h ]; then without="$without src/runtime/store/disk_uring.c"; fi
if [ ! -e /usr/include/microhttpd.h ]; then without="$without src/report/page/serve.c"; fi
if [ ! -e /usr/include/histedit.h ]; then without="$without src/cli/line_edit.c"; fi
# The plugins are compiled against each MPI's own header; Open MPI's will do here.
mpi=/usr/lib/$(cc -dumpmachine)/openmpi/include
flags="$flags -idirafter $mpi -DPLUGIN_NAME=\"openmpi\""
if [ ! -e "$mpi/mpi.h" ]; then without="$without src/comm/mpi_plugin.c"; fi
how=-fsyntax-only
if [ -n "${BALLAST_LONG:-}" ]; then how="-c -o $out/object.o"; fi
failed=0
for file in $(find src -name '*.c' | sort); do
    case " $without " in *" $file "*) continue ;; esac
    # What takes CUDA's headers is left out, as where there is no toolkit.
    case $file in src/backend/cuda/*) continue ;; esac
    isa=
    case $file in src/backend/cpu/simd/*) isa=-DCPU_ISA=generic ;; esac
    # shellcheck disable=SC2086 # a list of flags
    "$compiler" $flags $isa $how "$file" || failed=1
done
exit $failed
