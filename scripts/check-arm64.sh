#!/bin/sh
# Checks that a compiler for arm64 accepts all of src, with the flags of the build. With BALLAST_LONG set, also
# generates machine code, and discards it.
#   usage: scripts/check-arm64.sh [COMPILER]         default: aarch64-linux-gnu-gcc
# Uses the library headers of this machine, which are the same on both, after the compiler's own.
set -eu
compiler=${1:-aarch64-linux-gnu-gcc}
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

flags='-std=gnu11 -O1 -fopenmp -ffp-contract=off -fno-math-errno -D_GNU_SOURCE -Isrc -Iinclude -idirafter /usr/include
       -idirafter /usr/include/coin
       -idirafter /usr/include/'"$(cc -dumpmachine)"'
       -DBALLAST_VERSION="arm64" -Werror=implicit-function-declaration -Werror=int-conversion'
# Generates the protobuf messages as the build does. Without protoc-c, skips the file that uses them.
without=
if command -v protoc-c >/dev/null; then
    protoc-c --proto_path=src "--c_out=$out" src/train/event.proto
    flags="$flags -I$out"
else
    without=src/train/event_file.c
fi
# The build also skips these without liburing, libmicrohttpd and libedit.
if [ ! -e /usr/include/liburing.h ]; then without="$without src/runtime/store/disk_uring.c"; fi
if [ ! -e /usr/include/microhttpd.h ]; then without="$without src/report/page/serve.c"; fi
if [ ! -e /usr/include/histedit.h ]; then without="$without src/cli/line_edit.c"; fi
# The build compiles a plugin against the header of each MPI. Open MPI's is enough here.
mpi=/usr/lib/$(cc -dumpmachine)/openmpi/include
flags="$flags -idirafter $mpi -DPLUGIN_NAME=\"openmpi\""
if [ ! -e "$mpi/mpi.h" ]; then without="$without src/comm/mpi_plugin.c"; fi
how=-fsyntax-only
if [ -n "${BALLAST_LONG:-}" ]; then how="-c -o $out/object.o"; fi
failed=0
for file in $(find src -name '*.c' | sort); do
    case " $without " in *" $file "*) continue ;; esac
    # Skips files that include CUDA's headers, as a build without the toolkit does.
    case $file in src/backend/cuda/*) continue ;; esac
    isa=
    case $file in src/backend/cpu/simd/*) isa=-DCPU_ISA=generic ;; esac
    # shellcheck disable=SC2086 # a list of flags
    "$compiler" $flags $isa $how "$file" || failed=1
done
exit $failed
