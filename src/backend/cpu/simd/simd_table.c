/* The table of the functions of this folder, for one instruction set. */
#include "backend/cpu/simd/attention_tile.h"
#include "backend/cpu/simd/gemm_tile.h"
#include "backend/cpu/simd/simd.h"

#define SIMD_TEXT_(name) #name
#define SIMD_TEXT(name) SIMD_TEXT_(name)

const struct simd_kernels SIMD_NAME(simd_kernels) = {.name = SIMD_TEXT(CPU_ISA),
                                                     .gemm_rows = GEMM_ROWS,
                                                     .gemm_columns = GEMM_COLUMNS,
                                                     .attention_queries = ATTENTION_QUERIES,
                                                     .attention_tile = ATTENTION_TILE,
#define SIMD_ENTRY(result, name, arguments) .name = SIMD_NAME(simd_##name),
                                                     SIMD_LIST(SIMD_ENTRY)
#undef SIMD_ENTRY
};
