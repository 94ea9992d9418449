#include "backend/cpu/simd/attention_tile.h"
#include "backend/cpu/simd/gemm_tile.h"
#include "backend/cpu/simd/table.h"

#define SIMD_TEXT_(name) #name
#define SIMD_TEXT(name) SIMD_TEXT_(name)

const struct simd_kernels SIMD_NAME(simd_kernels) = {
    .name = SIMD_TEXT(CPU_ISA),
    .add = SIMD_NAME(simd_add),
    .accumulate = SIMD_NAME(simd_accumulate),
    .scale = SIMD_NAME(simd_scale),
    .squared_sum = SIMD_NAME(simd_squared_sum),
    .activation = SIMD_NAME(simd_activation),
    .activation_grad = SIMD_NAME(simd_activation_grad),
    .gated = SIMD_NAME(simd_gated),
    .gated_grad = SIMD_NAME(simd_gated_grad),
    .rms_norm = SIMD_NAME(simd_rms_norm),
    .layer_norm = SIMD_NAME(simd_layer_norm),
    .rms_norm_grad = SIMD_NAME(simd_rms_norm_grad),
    .layer_norm_grad = SIMD_NAME(simd_layer_norm_grad),
    .rope = SIMD_NAME(simd_rope),
    .log_sum_exp = SIMD_NAME(simd_log_sum_exp),
    .softmax = SIMD_NAME(simd_softmax),
    .adamw = SIMD_NAME(simd_adamw),
    .gemm_rows = GEMM_ROWS,
    .gemm_columns = GEMM_COLUMNS,
    .gemm = SIMD_NAME(simd_gemm),
    .gemm_pack = SIMD_NAME(simd_gemm_pack),
    .attention_queries = ATTENTION_QUERIES,
    .attention_workspace = SIMD_NAME(simd_attention_workspace),
    .attention = SIMD_NAME(simd_attention),
    .attention_query = SIMD_NAME(simd_attention_query),
    .attention_tile = ATTENTION_TILE,
    .attention_columns = SIMD_NAME(simd_attention_columns),
    .attention_grad_workspace = SIMD_NAME(simd_attention_grad_workspace),
    .attention_grad_prepare = SIMD_NAME(simd_attention_grad_prepare),
    .attention_grad_start = SIMD_NAME(simd_attention_grad_start),
    .attention_grad_pair = SIMD_NAME(simd_attention_grad_pair),
    .attention_grad_queries = SIMD_NAME(simd_attention_grad_queries),
    .attention_grad_finish = SIMD_NAME(simd_attention_grad_finish),
};
