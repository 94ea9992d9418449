/* Declares the functions of this folder for the instruction set that is being compiled; simd_table.c makes the table of
 * them. */
#ifndef BALLAST_BACKEND_CPU_SIMD_TABLE_H
#define BALLAST_BACKEND_CPU_SIMD_TABLE_H

#include "backend/cpu/simd/kernels.h"
#include "backend/cpu/simd/simd.h"

void SIMD_NAME(simd_add)(enum dtype dtype, int64_t n, const void *a, const void *b, void *out);
void SIMD_NAME(simd_accumulate)(enum dtype dtype, int64_t n, const void *x, float *sum);
void SIMD_NAME(simd_scale)(int64_t n, enum dtype from, const void *a, float factor, enum dtype to, void *out);
double SIMD_NAME(simd_squared_sum)(int64_t n, const float *x);

void SIMD_NAME(simd_activation)(enum dtype dtype, enum activation function, int64_t n, const void *x, void *y);
void SIMD_NAME(simd_activation_grad)(enum dtype dtype, enum activation function, int64_t n, const void *dy,
                                     const void *x, void *dx);
void SIMD_NAME(simd_gated)(enum dtype dtype, enum activation function, int64_t n, const void *gate, const void *up,
                           void *y);
void SIMD_NAME(simd_gated_grad)(enum dtype dtype, enum activation function, int64_t n, const void *dy, const void *gate,
                                const void *up, void *dgate, void *dup);

void SIMD_NAME(simd_rms_norm)(enum dtype dtype, int64_t n, double epsilon, const void *x, const void *weight, void *y,
                              float *rstd);
void SIMD_NAME(simd_layer_norm)(enum dtype dtype, int64_t n, double epsilon, const void *x, const void *weight,
                                const void *bias, void *y, float *mean, float *rstd);
void SIMD_NAME(simd_rms_norm_grad)(enum dtype dtype, int64_t n, const struct norm_grad_row *row);
void SIMD_NAME(simd_layer_norm_grad)(enum dtype dtype, int64_t n, const struct norm_grad_row *row);

void SIMD_NAME(simd_rope)(enum dtype dtype, int64_t half, float sign, const void *x, const float *table, void *y);

double SIMD_NAME(simd_log_sum_exp)(int64_t n, const float *logits);
void SIMD_NAME(simd_softmax)(enum dtype dtype, int64_t n, const float *logits, float lse, float scale, void *out);

void SIMD_NAME(simd_adamw)(int64_t n, const struct adamw_step *step, const float *gradient, float *weight,
                           float *exp_avg, float *exp_avg_sq, uint16_t *rounded);

void SIMD_NAME(simd_gemm)(int64_t m, int64_t n, int64_t k, int64_t depth, const float *a, const float *b, float *c,
                          int64_t c_row, bool accumulate);
void SIMD_NAME(simd_gemm_pack)(enum dtype dtype, int64_t panel, int64_t k, int64_t left, const void *from,
                               int64_t k_stride, int64_t stride, float *to);

int64_t SIMD_NAME(simd_attention_workspace)(int64_t head_dim);
void SIMD_NAME(simd_attention)(const struct attention_head *head, int64_t tile, float *workspace);
void SIMD_NAME(simd_attention_query)(const struct attention_query *query, float *scores);

int64_t SIMD_NAME(simd_attention_columns)(int64_t head_dim);
int64_t SIMD_NAME(simd_attention_grad_workspace)(int64_t head_dim);
void SIMD_NAME(simd_attention_grad_prepare)(const struct attention_head *head, int64_t query_tile);
void SIMD_NAME(simd_attention_grad_start)(const struct attention_head *head, int64_t key_tile, float *workspace);
void SIMD_NAME(simd_attention_grad_pair)(const struct attention_head *head, int64_t key_tile, int64_t query_tile,
                                         float *workspace);
void SIMD_NAME(simd_attention_grad_queries)(const struct attention_head *head, int64_t key_tile, int64_t query_tile,
                                            float *workspace);
void SIMD_NAME(simd_attention_grad_finish)(const struct attention_head *head, int64_t key_tile, float *workspace);

#endif
