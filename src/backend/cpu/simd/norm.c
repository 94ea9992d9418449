/* RMSNorm (Zhang and Sennrich, arXiv 1910.07467) and layer norm (Ba, Kiros and Hinton, arXiv 1607.06450), row by row.
 */
#include <math.h>

#include "backend/cpu/simd/simd.h"

/* Sums of a row are taken in chains, since an addition waits for the one before: the row's vectors go to them by turns,
 * those after the last whole turn to the first. */
enum { CHAINS = 4, TURN = CHAINS * LANES };

INLINE float chains_sum(const vf sums[CHAINS]) { return vf_sum((sums[0] + sums[1]) + (sums[2] + sums[3])); }

INLINE float row_sum(bool bf16, int64_t n, const void *x) {
    vf sums[CHAINS] = {{0}};
    int64_t i = 0;
    for (; i + TURN <= n; i += TURN)
        for (int chain = 0; chain < CHAINS; chain++)
            sums[chain] += load(x, i + chain * LANES, LANES, bf16);
    for (; i < n; i += LANES)
        sums[0] += load(x, i, n - i, bf16);
    return chains_sum(sums);
}

/* Sum of (x - center)^2. */
INLINE float row_squares(bool bf16, int64_t n, const void *x, float center) {
    vf sums[CHAINS] = {{0}};
    int64_t i = 0;
    for (; i + TURN <= n; i += TURN)
        for (int chain = 0; chain < CHAINS; chain++) {
            vf value = load(x, i + chain * LANES, LANES, bf16) - center;
            sums[chain] = vf_fma(value, value, sums[chain]);
        }
    for (; i < n; i += LANES) {
        vf value = keep(load(x, i, n - i, bf16) - center, n - i);
        sums[0] = vf_fma(value, value, sums[0]);
    }
    return chains_sum(sums);
}

INLINE float reciprocal_root(float squares, int64_t n, double epsilon) {
    return (float)(1.0 / sqrt((double)squares / (double)n + epsilon));
}

/* The factor of a norm. */
INLINE vf load_weight(bool bf16, bool one_plus, const void *weight, int64_t i, int64_t left) {
    vf value = load(weight, i, left, bf16);
    return one_plus ? 1.0f + value : value;
}

INLINE void rms_row(bool bf16, bool one_plus, int64_t n, double epsilon, const void *x, const void *weight, void *y,
                    float *rstd) {
    float scale = reciprocal_root(row_squares(bf16, n, x, 0), n, epsilon);
    for (int64_t i = 0; i < n; i += LANES) {
        prefetch_read(x, i, bf16), prefetch_write(y, i, bf16);
        store(y, i, n - i, bf16, load(x, i, n - i, bf16) * scale * load_weight(bf16, one_plus, weight, i, n - i));
    }
    *rstd = scale;
}

void SIMD_NAME(simd_rms_norm)(enum dtype dtype, int64_t n, struct norm_attributes attributes, const void *x,
                              const void *weight, void *y, float *rstd) {
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16,
                  WITH_CONSTANT(one_plus, attributes.one_plus,
                                rms_row(bf16, one_plus, n, attributes.epsilon, x, weight, y, rstd)));
}

INLINE void layer_row(bool bf16, int64_t n, double epsilon, const void *x, const void *weight, const void *bias,
                      void *y, float *mean, float *rstd) {
    float center = row_sum(bf16, n, x) / (float)n;
    float scale = reciprocal_root(row_squares(bf16, n, x, center), n, epsilon);
    for (int64_t i = 0; i < n; i += LANES) {
        prefetch_read(x, i, bf16), prefetch_write(y, i, bf16);
        vf normal = (load(x, i, n - i, bf16) - center) * scale;
        vf shift = bias ? load(bias, i, n - i, bf16) : (vf){0};
        store(y, i, n - i, bf16, vf_fma(normal, load(weight, i, n - i, bf16), shift));
    }
    *mean = center;
    *rstd = scale;
}

void SIMD_NAME(simd_layer_norm)(enum dtype dtype, int64_t n, double epsilon, const void *x, const void *weight,
                                const void *bias, void *y, float *mean, float *rstd) {
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16, layer_row(bf16, n, epsilon, x, weight, bias, y, mean, rstd));
}

/* Sums of g h and g over the row, where h = (x - mean) rstd and g = dy weight. */
struct gradient_sums {
    vf along[CHAINS], across[CHAINS];
};

/* dweight += dy h, dbias += dy, and the sums' chain. */
INLINE void weight_gradient_vector(bool bf16, bool one_plus, int64_t i, int64_t left, const struct norm_grad_row *row,
                                   int chain, struct gradient_sums *sums) {
    vf dy = load(row->dy, i, left, bf16);
    vf normal = (load(row->x, i, left, bf16) - row->mean) * row->rstd;
    vf g = dy * load_weight(bf16, one_plus, row->weight, i, left);
    sums->along[chain] = vf_fma(g, normal, sums->along[chain]);
    sums->across[chain] += g;
    if (row->dweight) store(row->dweight, i, left, false, vf_fma(dy, normal, load(row->dweight, i, left, false)));
    if (row->dbias) store(row->dbias, i, left, false, dy + load(row->dbias, i, left, false));
}

INLINE struct gradient_sums weight_gradient_row(bool bf16, bool one_plus, int64_t n, const struct norm_grad_row *row) {
    struct gradient_sums sums = {.along = {{0}}};
    int64_t i = 0;
    for (; i + TURN <= n; i += TURN)
        for (int chain = 0; chain < CHAINS; chain++)
            weight_gradient_vector(bf16, one_plus, i + chain * LANES, LANES, row, chain, &sums);
    for (; i < n; i += LANES)
        weight_gradient_vector(bf16, one_plus, i, n - i, row, 0, &sums);
    return sums;
}

/* dx = rstd (g - across - h along) + addend, of the means over the row */
INLINE void input_gradient_row(bool bf16, bool one_plus, int64_t n, const struct norm_grad_row *row, float along,
                               float across) {
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t left = n - i;
        prefetch_read(row->dy, i, bf16), prefetch_read(row->x, i, bf16), prefetch_write(row->dx, i, bf16);
        if (row->addend && row->addend != row->dx) prefetch_read(row->addend, i, bf16);
        vf normal = (load(row->x, i, left, bf16) - row->mean) * row->rstd;
        vf g = load(row->dy, i, left, bf16) * load_weight(bf16, one_plus, row->weight, i, left);
        vf addend = row->addend ? load(row->addend, i, left, bf16) : (vf){0};
        vf change = vf_fma(normal, vf_set(-along), g - across);
        store(row->dx, i, left, bf16, vf_fma(change, vf_set(row->rstd), addend));
    }
}

INLINE void norm_grad_row(bool bf16, bool one_plus, bool centered, int64_t n, const struct norm_grad_row *row) {
    struct gradient_sums sums = weight_gradient_row(bf16, one_plus, n, row);
    float along = chains_sum(sums.along) / (float)n, across = centered ? chains_sum(sums.across) / (float)n : 0;
    if (row->dx) input_gradient_row(bf16, one_plus, n, row, along, across);
}

void SIMD_NAME(simd_rms_norm_grad)(enum dtype dtype, int64_t n, const struct norm_grad_row *row) {
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16,
                  WITH_CONSTANT(one_plus, row->one_plus, norm_grad_row(bf16, one_plus, false, n, row)));
}

void SIMD_NAME(simd_layer_norm_grad)(enum dtype dtype, int64_t n, const struct norm_grad_row *row) {
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16, norm_grad_row(bf16, false, true, n, row));
}
