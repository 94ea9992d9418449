/* src/base: helpers that every module uses, independent of training.
 *
 * Files, in the order to read them:
 *   base: this file, what nearly every file needs;
 *   status: how functions report failure;
 *   mem: heap memory, growing arrays, regions that are freed as a whole, blocks of whole pages for arenas;
 *   fault: makes the n-th allocation or file operation fail;
 *   file: reading and writing files, also by a thread that writes behind;
 *   folder: directories, paths, durable renames, where caches are;
 *   manifest: a directory's list of files with checksums, and what differs from it;
 *   byte_store: bytes without an address, behind two calls;
 *   json: fields read with errors that name file and field;
 *   text: UTF-8, sizes as people write them, the name that was probably meant;
 *   terminal: lines for a person, the live line, the progress of long work;
 *   clock: time;
 *   random: counter-based numbers; half: 16-bit floating point;
 *   hash: hashes of memory, and of records in files.
 *
 * Headers include this one for C's own headers, failures and memory; a .c file has it through its headers. */
#pragma once

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

/* Before a function that loops over plain arrays: it is compiled for AVX-512 and AVX2 too, and the widest that the
 * processor has is called (chosen when the program is loaded, by an indirect function, which needs glibc). Nothing is
 * fused (-ffp-contract=off) and no sum may be reordered, so all of them give the same bits; kernels, whose sums follow
 * the width, are compiled and chosen by the backend instead. Not where gcc's thread sanitizer is built in: it watches
 * the function that chooses too, which is called before the sanitizer is there, and the program would end at once. Not
 * with clang, whose older releases (14) give the choosing function another name than its callers in other files ask
 * for. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define WIDE_VECTORS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE_VECTORS
#endif

/* An order for qsort, ascending by a number of `item`, the pointer to an item of this type; then by a second one. */
#define ORDER_BY(name, type, key) ORDER_BY_BOTH(name, type, key, 0)
#define ORDER_BY_BOTH(name, type, key, second)                                                                         \
    static int name(const void *left, const void *right) {                                                             \
        type const *item = left;                                                                                       \
        const typeof(key) x = (key);                                                                                   \
        const typeof(second) p = (second);                                                                             \
        item = right;                                                                                                  \
        const typeof(key) y = (key);                                                                                   \
        const typeof(second) q = (second);                                                                             \
        return x < y ? -1 : x > y ? 1 : (p > q) - (p < q);                                                             \
    }
