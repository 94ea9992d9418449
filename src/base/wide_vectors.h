/* Loops over plain arrays for whatever vectors the processor has. */
#pragma once

#include "base/base.h"

/* Before a function: it is compiled for AVX-512 and AVX2 too, and the widest that the processor has is called (chosen
 * when the program is loaded, by an indirect function, which needs glibc). Nothing is fused (-ffp-contract=off) and no
 * sum may be reordered, so all of them give the same bits; kernels, whose sums follow the width, are compiled and
 * chosen by the backend instead. Not where gcc's thread sanitizer is built in: it watches the function that chooses
 * too, which is called before the sanitizer is there, and the program would end at once. Not with clang, whose older
 * releases (14) give the choosing function another name than its callers in other files ask for. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define WIDE_VECTORS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE_VECTORS
#endif
