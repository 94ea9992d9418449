/* AdamW, and sums of squares. */
#include "backend/cpu/simd/chance.h"

/* Constants of a loop. */
struct adamw_form {
    bool moments, weight; /* in bf16, rounded by chance */
    bool rounds;
};

/* Random bits of LANES elements: for the moments, and for the weight. */
struct adamw_bits {
    vu state, weight;
};

/* Every operation is exactly rounded (fused multiply-add, division, square root), so that the result is the same on
 * every processor. */
INLINE void adamw_vector(struct adamw_form form, int64_t i, int64_t left, const struct adamw_step *step,
                         const struct adamw_run *run, struct adamw_bits bits) {
    vf g = load(run->gradient, i, left, false) * step->clip;
    vf m = load(run->exp_avg, i, left, form.moments), v = load(run->exp_avg_sq, i, left, form.moments);
    m = vf_fma(vf_set(step->blend1), g - m, m);
    v = vf_fma(g * step->blend2, g, v * step->beta2);
    vf divisor = vf_fma(vf_sqrt(v), vf_set(step->root), vf_set(step->epsilon));
    vf w = load(run->weight, i, left, form.weight) * step->decay;
    w = vf_fma(m / divisor, vf_set(-step->step), w);
    store_by_chance(run->exp_avg, i, left, form.moments, m, bits.state & 0xffffu);
    store_by_chance(run->exp_avg_sq, i, left, form.moments, v, bits.state >> 16);
    store_by_chance(run->weight, i, left, form.weight, w, bits.weight & 0xffffu);
    if (form.rounds) store(run->rounded, i, left, true, w);
}

/* Four vectors at a time, since a block of random numbers is for four elements. */
INLINE void adamw_loop(struct adamw_form form, int64_t n, const struct adamw_step *step, const struct adamw_run *run) {
    for (int64_t i = 0; i < n; i += 4 * LANES) {
        vu state[4] = {{0}}, weight[4] = {{0}};
        if (form.moments) chance_draw(step->seed, RANDOM_ROUND_STATE, step->count, step->number, run->first + i, state);
        if (form.weight)
            chance_draw(step->seed, RANDOM_ROUND_WEIGHT, step->count, step->number, run->first + i, weight);
        for (int v = 0; v < 4 && i + v * LANES < n; v++)
            adamw_vector(form, i + v * LANES, n - i - v * LANES, step, run, (struct adamw_bits){state[v], weight[v]});
    }
}

void SIMD_NAME(simd_adamw)(int64_t n, const struct adamw_step *step, const struct adamw_run *run) {
    if (run->bf16_weight && run->bf16_moments)
        adamw_loop((struct adamw_form){.moments = true, .weight = true}, n, step, run);
    else if (run->bf16_weight)
        adamw_loop((struct adamw_form){.weight = true}, n, step, run);
    else if (run->rounded && run->bf16_moments)
        adamw_loop((struct adamw_form){.moments = true, .rounds = true}, n, step, run);
    else if (run->rounded)
        adamw_loop((struct adamw_form){.rounds = true}, n, step, run);
    else if (run->bf16_moments)
        adamw_loop((struct adamw_form){.moments = true}, n, step, run);
    else
        adamw_loop((struct adamw_form){.moments = false}, n, step, run);
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
