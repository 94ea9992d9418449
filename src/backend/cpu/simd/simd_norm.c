/* RMSNorm (Zhang and Sennrich, arXiv 1910.07467) and layer norm (Ba, Kiros and Hinton, arXiv 1607.06450), row by row.
 */
#include <math.h>

#include "backend/cpu/simd/simd.h"

INLINE float row_sum(bool bf16, int64_t n, const void *x) {
    vf sum = {0};
    for (int64_t i = 0; i < n; i += LANES)
        sum += load(x, i, n - i, bf16);
    return vf_sum(sum);
}

/* Sum of (x - center)^2. */
INLINE float row_squares(bool bf16, int64_t n, const void *x, float center) {
    vf sum = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        vf value = keep(load(x, i, n - i, bf16) - center, n - i);
        sum = vf_fma(value, value, sum);
    }
    return vf_sum(sum);
}

INLINE float reciprocal_root(float squares, int64_t n, double epsilon) {
    return (float)(1.0 / sqrt((double)squares / (double)n + epsilon));
}

/* What a norm multiplies by. */
INLINE vf load_weight(bool bf16, bool one_plus, const void *weight, int64_t i, int64_t left) {
    vf value = load(weight, i, left, bf16);
    return one_plus ? 1.0f + value : value;
}

INLINE void rms_row(bool bf16, bool one_plus, int64_t n, double epsilon, const void *x, const void *weight, void *y,
                    float *rstd) {
    float scale = reciprocal_root(row_squares(bf16, n, x, 0), n, epsilon);
    for (int64_t i = 0; i < n; i += LANES)
        store(y, i, n - i, bf16, load(x, i, n - i, bf16) * scale * load_weight(bf16, one_plus, weight, i, n - i));
    *rstd = scale;
}

void SIMD_NAME(simd_rms_norm)(enum dtype dtype, int64_t n, struct norm_attributes attributes, const void *x,
                              const void *weight, void *y, float *rstd) {
    if (dtype == DTYPE_BF16 && attributes.one_plus)
        rms_row(true, true, n, attributes.epsilon, x, weight, y, rstd);
    else if (dtype == DTYPE_BF16)
        rms_row(true, false, n, attributes.epsilon, x, weight, y, rstd);
    else if (attributes.one_plus)
        rms_row(false, true, n, attributes.epsilon, x, weight, y, rstd);
    else
        rms_row(false, false, n, attributes.epsilon, x, weight, y, rstd);
}

INLINE void layer_row(bool bf16, int64_t n, double epsilon, const void *x, const void *weight, const void *bias,
                      void *y, float *mean, float *rstd) {
    float center = row_sum(bf16, n, x) / (float)n;
    float scale = reciprocal_root(row_squares(bf16, n, x, center), n, epsilon);
    for (int64_t i = 0; i < n; i += LANES) {
        vf normal = (load(x, i, n - i, bf16) - center) * scale;
        vf shift = bias ? load(bias, i, n - i, bf16) : (vf){0};
        store(y, i, n - i, bf16, vf_fma(normal, load(weight, i, n - i, bf16), shift));
    }
    *mean = center;
    *rstd = scale;
}

void SIMD_NAME(simd_layer_norm)(enum dtype dtype, int64_t n, double epsilon, const void *x, const void *weight,
                                const void *bias, void *y, float *mean, float *rstd) {
    if (dtype == DTYPE_BF16)
        layer_row(true, n, epsilon, x, weight, bias, y, mean, rstd);
    else
        layer_row(false, n, epsilon, x, weight, bias, y, mean, rstd);
}

/* With h = (x - mean) rstd and g = dy weight: dweight += dy h, dbias += dy; *along and *across are the means of g h and
 * g over the row. */
INLINE void weight_gradient_row(bool bf16, bool one_plus, int64_t n, const struct norm_grad_row *row, float *along,
                                float *across) {
    vf products = {0}, sum = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t left = n - i;
        vf dy = load(row->dy, i, left, bf16);
        vf normal = (load(row->x, i, left, bf16) - row->mean) * row->rstd;
        vf g = dy * load_weight(bf16, one_plus, row->weight, i, left);
        products = vf_fma(g, normal, products);
        sum += g;
        if (row->dweight) store(row->dweight, i, left, false, vf_fma(dy, normal, load(row->dweight, i, left, false)));
        if (row->dbias) store(row->dbias, i, left, false, dy + load(row->dbias, i, left, false));
    }
    *along = vf_sum(products) / (float)n;
    *across = vf_sum(sum) / (float)n;
}

/* dx = rstd (g - across - h along) + addend */
INLINE void input_gradient_row(bool bf16, bool one_plus, int64_t n, const struct norm_grad_row *row, float along,
                               float across) {
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t left = n - i;
        vf normal = (load(row->x, i, left, bf16) - row->mean) * row->rstd;
        vf g = load(row->dy, i, left, bf16) * load_weight(bf16, one_plus, row->weight, i, left);
        vf addend = row->addend ? load(row->addend, i, left, bf16) : (vf){0};
        vf change = vf_fma(normal, vf_set(-along), g - across);
        store(row->dx, i, left, bf16, vf_fma(change, vf_set(row->rstd), addend));
    }
}

INLINE void norm_grad_row(bool bf16, bool one_plus, bool centered, int64_t n, const struct norm_grad_row *row) {
    float along, across;
    weight_gradient_row(bf16, one_plus, n, row, &along, &across);
    if (row->dx) input_gradient_row(bf16, one_plus, n, row, along, centered ? across : 0);
}

void SIMD_NAME(simd_rms_norm_grad)(enum dtype dtype, int64_t n, const struct norm_grad_row *row) {
    if (dtype == DTYPE_BF16 && row->one_plus)
        norm_grad_row(true, true, false, n, row);
    else if (dtype == DTYPE_BF16)
        norm_grad_row(true, false, false, n, row);
    else if (row->one_plus)
        norm_grad_row(false, true, false, n, row);
    else
        norm_grad_row(false, false, false, n, row);
}

void SIMD_NAME(simd_layer_norm_grad)(enum dtype dtype, int64_t n, const struct norm_grad_row *row) {
    if (dtype == DTYPE_BF16)
        norm_grad_row(true, false, true, n, row);
    else
        norm_grad_row(false, false, true, n, row);
}
