#include "backend/cpu/cpu_isa.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/matmul_onednn.h"

static struct {
    pthread_once_t once;
    const struct simd_kernels *simd; /* NULL: none fits */
    bool bad_name, bf16_dots, bf16_tiles;
    char name[48];
} chosen = {.once = PTHREAD_ONCE_INIT};

#if defined(__x86_64__)
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static const struct simd_kernels *widest(const char *max) {
    bool avx2_only = max && strcmp(max, "avx2") == 0;
    bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2_only) onednn_limit_avx2();
    if (has_avx2 && has_avx512() && !avx2_only) return &simd_kernels_avx512;
    return has_avx2 ? &simd_kernels_avx2 : NULL;
}

static bool is_isa_name(const char *name) { return strcmp(name, "avx512") == 0 || strcmp(name, "avx2") == 0; }
#else
static const struct simd_kernels *widest(const char *max) {
    (void)max;
    return &simd_kernels_generic;
}

static bool is_isa_name(const char *name) { return strcmp(name, "generic") == 0; }
#endif

static void choose(void) {
    const char *max = getenv("BALLAST_MAX_ISA");
    if (max && max[0] == '\0') max = NULL;
    chosen.bad_name = max && !is_isa_name(max);
    chosen.simd = chosen.bad_name ? NULL : widest(max);
    if (!chosen.simd) {
        snprintf(chosen.name, sizeof chosen.name, "none");
        return;
    }
    const char *extra = onednn_isa_name();
    chosen.bf16_tiles = strcmp(extra, "amx") == 0;
    chosen.bf16_dots = strcmp(extra, "bf16") == 0 || chosen.bf16_tiles;
    if (strcmp(extra, chosen.simd->name) == 0) extra = "";
    snprintf(chosen.name, sizeof chosen.name, "%s%s%s", chosen.simd->name, extra[0] ? "+" : "", extra);
}

enum status cpu_isa_check(void) {
    pthread_once(&chosen.once, choose);
    if (chosen.bad_name)
        return status_set(STATUS_BAD_INPUT,
                          "BALLAST_MAX_ISA=%s: this build knows avx2 and avx512 on x86-64, generic "
                          "elsewhere",
                          getenv("BALLAST_MAX_ISA"));
    if (!chosen.simd)
        return status_set(STATUS_FAILED, "this processor lacks AVX2 and FMA, which Ballast needs on x86-64");
    return STATUS_OK;
}

const struct simd_kernels *cpu_simd(void) { return chosen.simd; }

bool cpu_has_bf16_dots(void) { return chosen.bf16_dots; }

bool cpu_has_bf16_tiles(void) { return chosen.bf16_tiles; }

const char *cpu_isa_name(void) {
    pthread_once(&chosen.once, choose);
    return chosen.name;
}
