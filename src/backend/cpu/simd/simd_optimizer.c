/* AdamW, and sums of squares. */
#include "backend/cpu/simd/simd.h"

/* Every operation is exactly rounded (fused multiply-add, division, square root), so that the result is the same on
 * every processor. */
INLINE void adamw_row(bool rounds, int64_t n, const struct adamw_step *step, const float *gradient, float *weight,
                      float *exp_avg, float *exp_avg_sq, uint16_t *rounded) {
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t left = n - i;
        vf g = load(gradient, i, left, false) * step->clip;
        vf m = load(exp_avg, i, left, false), v = load(exp_avg_sq, i, left, false);
        m = vf_fma(vf_set(step->blend1), g - m, m);
        v = vf_fma(g * step->blend2, g, v * step->beta2);
        vf divisor = vf_fma(vf_sqrt(v), vf_set(step->root), vf_set(step->epsilon));
        vf w = load(weight, i, left, false) * step->decay;
        w = vf_fma(m / divisor, vf_set(-step->step), w);
        store(exp_avg, i, left, false, m);
        store(exp_avg_sq, i, left, false, v);
        store(weight, i, left, false, w);
        if (rounds) store(rounded, i, left, true, w);
    }
}

void SIMD_NAME(simd_adamw)(int64_t n, const struct adamw_step *step, const float *gradient, float *weight,
                           float *exp_avg, float *exp_avg_sq, uint16_t *rounded) {
    if (rounded)
        adamw_row(true, n, step, gradient, weight, exp_avg, exp_avg_sq, rounded);
    else
        adamw_row(false, n, step, gradient, weight, exp_avg, exp_avg_sq, NULL);
}

/* Sixteen sums side by side, in as many vectors as they take. */
enum { SQUARE_LANES = 16, SQUARE_VECTORS = SQUARE_LANES / WIDE_LANES };

double SIMD_NAME(simd_squared_sum)(int64_t n, const float *x) {
    vd sums[SQUARE_VECTORS] = {0};
    int64_t i = 0;
    for (; i + SQUARE_LANES <= n; i += SQUARE_LANES)
        for (int part = 0; part < SQUARE_VECTORS; part++) {
            vd wide = vd_load(x + i + part * WIDE_LANES);
            sums[part] += wide * wide;
        }
    double lanes[SQUARE_LANES], total = 0;
    memcpy(lanes, sums, sizeof lanes);
    for (int lane = 0; i < n; i++, lane++)
        lanes[lane] += (double)x[i] * (double)x[i];
    for (int lane = 0; lane < SQUARE_LANES; lane++)
        total += lanes[lane];
    return total;
}
