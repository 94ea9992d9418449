#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/table.h"

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
