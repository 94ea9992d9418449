/* The table of the functions of this directory, for one instruction set. */
#include "backend/cpu/simd/attention_tile.h"
#include "backend/cpu/simd/simd.h"

#define SIMD_TEXT_(name) #name
#define SIMD_TEXT(name) SIMD_TEXT_(name)

#if SIMD_LANES == 16
#define ATTENTION_PAIRS(unit) &SIMD_NAME(simd_attention_##unit)
#else
#define ATTENTION_PAIRS(unit) NULL
#endif

const struct simd_kernels SIMD_NAME(simd_kernels) = {.name = SIMD_TEXT(CPU_ISA),
                                                     .gemm_rows = GEMM_ROWS,
                                                     .gemm_columns = GEMM_COLUMNS,
                                                     .attention = {.queries = ATTENTION_QUERIES,
                                                                   .tile = ATTENTION_TILE,
#define SIMD_ENTRY(result, name, arguments) .name = SIMD_NAME(simd_attention_##name),
                                                                   ATTENTION_LIST(SIMD_ENTRY)
#undef SIMD_ENTRY
                                                     },
                                                     .attention_dots = ATTENTION_PAIRS(dots),
                                                     .attention_amx = ATTENTION_PAIRS(amx),
#define SIMD_ENTRY(result, name, arguments) .name = SIMD_NAME(simd_##name),
                                                     SIMD_LIST(SIMD_ENTRY)
#undef SIMD_ENTRY
};
