/* Updates of parameters, and sums of squares. */
#include "backend/cpu/simd/moment_codes.h"
#include "backend/cpu/simd/stochastic_rounding.h"

/* Constants of a loop. */
struct update_form {
    enum update_rule rule;
    bool moments, weight; /* in bf16, rounded stochastically */
    bool rounds;
    bool halves; /* of the weight */
};

/* As float_join and float_split of base/half.h, LANES numbers at a time. */
INLINE vf load_halves(const struct update_run *run, int64_t i, int64_t left) {
    vi lower = (vi)load(run->lower, i, left, true) >> 16;
    return (vf)((vu)load(run->upper, i, left, true) + (vu)lower);
}

INLINE void store_halves(const struct update_run *run, int64_t i, int64_t left, vf value) {
    vf quiet = (vf)(((vu)value | 0x400000u) & 0xffff0000u);
    vu bits = (vu)vf_select(value != value, quiet, value);
    store_half(run->upper, i, left, vu_narrow((bits + 0x8000u) >> 16));
    store_half(run->lower, i, left, vu_narrow(bits & 0xffffu));
}

INLINE vf load_weight(struct update_form form, const struct update_run *run, int64_t i, int64_t left) {
    return form.halves ? load_halves(run, i, left) : load(run->weight, i, left, form.weight);
}

/* `bits`: of a weight that is rounded stochastically. */
INLINE void store_weight(struct update_form form, const struct update_run *run, int64_t i, int64_t left, vf value,
                         vu bits) {
    if (form.halves) {
        store_halves(run, i, left, value);
        return;
    }
    store_stochastic(run->weight, i, left, form.weight, value, bits & 0xffffu);
    if (form.rounds) store(run->rounded, i, left, true, value);
}

/* Random bits of LANES elements: for the moments, and for the weight. */
struct update_bits {
    vu state, weight;
};

/* What a rule changes. */
struct update_values {
    vf weight, moments[UPDATE_MOMENTS_MAX];
};

/* Every operation is exactly rounded (fused multiply-add, division, square root), so that the result is the same on
 * every processor. */
INLINE void adamw_update(const struct update_step *step, vf g, struct update_values *values) {
    vf m = values->moments[0], v = values->moments[1];
    m = vf_fma(vf_set(step->blend1), g - m, m);
    v = vf_fma(g * step->blend2, g, v * step->beta2);
    vf divisor = vf_fma(vf_sqrt(v), vf_set(step->root), vf_set(step->epsilon));
    values->weight = vf_fma(m / divisor, vf_set(-step->step), values->weight * step->decay);
    values->moments[0] = m;
    values->moments[1] = v;
}

INLINE void lion_update(const struct update_step *step, vf g, struct update_values *values) {
    vf m = values->moments[0], zero = vf_set(0), one = vf_set(1);
    vf blend = vf_fma(vf_set(step->blend1), g - m, m);
    vf sign = vf_select(blend > zero, one, vf_select(blend < zero, -one, zero));
    values->weight = vf_fma(sign, vf_set(-step->step), values->weight * step->decay);
    values->moments[0] = vf_fma(vf_set(step->blend2), g - m, m);
}

INLINE void sgd_update(const struct update_step *step, vf g, struct update_values *values) {
    g = vf_fma(values->weight, vf_set(step->decay), g);
    values->moments[0] = vf_fma(values->moments[0], vf_set(step->beta1), g);
    values->weight = vf_fma(values->moments[0], vf_set(-step->step), values->weight);
}

/* The direction stands in the weight's place. */
INLINE void muon_update(const struct update_step *step, vf g, struct update_values *values) {
    vf m = vf_fma(vf_set(step->blend1), g - values->moments[0], values->moments[0]);
    values->weight = vf_fma(vf_set(step->blend1), g - m, m);
    values->moments[0] = m;
}

INLINE void update_vector(struct update_form form, int64_t i, int64_t left, const struct update_step *step,
                          const struct update_run *run, struct update_bits bits) {
    bool second = form.rule == UPDATE_ADAMW;
    vf g = load(run->gradient, i, left, false) * step->clip;
    bool muon = form.rule == UPDATE_MUON;
    struct update_values values = {.weight = muon ? (vf){0} : load_weight(form, run, i, left)};
    values.moments[0] = load(run->moments[0], i, left, form.moments);
    if (second) values.moments[1] = load(run->moments[1], i, left, form.moments);
    if (form.rule == UPDATE_ADAMW) adamw_update(step, g, &values);
    if (form.rule == UPDATE_LION) lion_update(step, g, &values);
    if (form.rule == UPDATE_SGD) sgd_update(step, g, &values);
    if (muon) muon_update(step, g, &values);
    store_stochastic(run->moments[0], i, left, form.moments, values.moments[0], bits.state & 0xffffu);
    if (second) store_stochastic(run->moments[1], i, left, form.moments, values.moments[1], bits.state >> 16);
    if (muon) {
        store(run->direction, i, left, false, values.weight);
        return;
    }
    store_weight(form, run, i, left, values.weight, bits.weight);
}

/* Four vectors at a time, since a block of random numbers is for four elements. */
INLINE void update_loop(struct update_form form, int64_t n, const struct update_step *step,
                        const struct update_run *run) {
    for (int64_t i = 0; i < n; i += 4 * LANES) {
        vu state[4] = {{0}}, weight[4] = {{0}};
        if (form.moments) random_draw(step->seed, RANDOM_ROUND_STATE, step->count, step->number, run->first + i, state);
        if (form.weight)
            random_draw(step->seed, RANDOM_ROUND_WEIGHT, step->count, step->number, run->first + i, weight);
        for (int v = 0; v < 4 && i + v * LANES < n; v++)
            update_vector(form, i + v * LANES, n - i - v * LANES, step, run, (struct update_bits){state[v], weight[v]});
    }
}

INLINE void update_by(enum update_rule rule, int64_t n, const struct update_step *step, const struct update_run *run) {
    if (run->bf16_weight && run->bf16_moments)
        update_loop((struct update_form){.rule = rule, .moments = true, .weight = true}, n, step, run);
    else if (run->bf16_weight)
        update_loop((struct update_form){.rule = rule, .weight = true}, n, step, run);
    else if (run->upper && run->bf16_moments)
        update_loop((struct update_form){.rule = rule, .moments = true, .halves = true}, n, step, run);
    else if (run->upper)
        update_loop((struct update_form){.rule = rule, .halves = true}, n, step, run);
    else if (run->rounded && run->bf16_moments)
        update_loop((struct update_form){.rule = rule, .moments = true, .rounds = true}, n, step, run);
    else if (run->rounded)
        update_loop((struct update_form){.rule = rule, .rounds = true}, n, step, run);
    else if (run->bf16_moments)
        update_loop((struct update_form){.rule = rule, .moments = true}, n, step, run);
    else
        update_loop((struct update_form){.rule = rule}, n, step, run);
}

INLINE void update_run(enum update_rule rule, int64_t n, const struct update_step *step, const struct update_run *run) {
    if (rule == UPDATE_ADAMW) update_by(UPDATE_ADAMW, n, step, run);
    if (rule == UPDATE_LION) update_by(UPDATE_LION, n, step, run);
    if (rule == UPDATE_SGD) update_by(UPDATE_SGD, n, step, run);
    if (rule == UPDATE_MUON && run->bf16_moments)
        update_loop((struct update_form){.rule = UPDATE_MUON, .moments = true}, n, step, run);
    else if (rule == UPDATE_MUON)
        update_loop((struct update_form){.rule = UPDATE_MUON}, n, step, run);
}

/* ---- moments in 8 bits ---- */

INLINE void update_block(enum update_rule rule, int64_t n, const struct level_tables *tables,
                         const struct update_step *step, const struct update_run *run) {
    float numbers[UPDATE_MOMENTS_MAX][MOMENT_BLOCK];
    struct update_run block = *run;
    for (int i = 0; i < UPDATE_MOMENTS_MAX && run->scales[i]; i++) {
        unpack_block(tables[i].map, n, run->moments[i], *run->scales[i], numbers[i]);
        block.moments[i] = numbers[i];
    }
    update_run(rule, n, step, &block);
    for (int i = 0; i < UPDATE_MOMENTS_MAX && run->scales[i]; i++)
        pack_block(&tables[i], n, numbers[i], run->moments[i], run->scales[i]);
}

void SIMD_NAME(simd_update)(enum update_rule rule, int64_t n, const struct update_step *step,
                            const struct update_run *run) {
    struct level_tables tables[UPDATE_MOMENTS_MAX];
    if (!run->scales[0]) {
        update_run(rule, n, step, run);
        return;
    }
    for (int i = 0; i < UPDATE_MOMENTS_MAX && run->scales[i]; i++)
        fill_tables(moment_map_of(rule, i), &tables[i]);
    for (int64_t i = 0; i < n; i += MOMENT_BLOCK) {
        const struct update_run block = update_run_from(run, i);
        update_block(rule, n - i < MOMENT_BLOCK ? n - i : MOMENT_BLOCK, tables, step, &block);
    }
}

/* ---- Muon: the weight, and sums of a matrix and GEMMs ---- */

INLINE void follow_loop(struct update_form form, bool bf16, int64_t n, const struct update_step *step,
                        const struct update_run *run, const void *direction) {
    for (int64_t i = 0; i < n; i += 4 * LANES) {
        vu bits[4] = {{0}};
        if (form.weight) random_draw(step->seed, RANDOM_ROUND_WEIGHT, step->count, step->number, run->first + i, bits);
        for (int v = 0; v < 4 && i + v * LANES < n; v++) {
            int64_t at = i + v * LANES, left = n - at;
            vf weight = load_weight(form, run, at, left);
            weight = vf_fma(load(direction, at, left, bf16), vf_set(-step->step), weight * step->decay);
            store_weight(form, run, at, left, weight, bits[v]);
        }
    }
}

void SIMD_NAME(simd_follow)(enum dtype dtype, int64_t n, const struct update_step *step, const struct update_run *run,
                            const void *direction) {
    if (dtype == DTYPE_BF16 && run->bf16_weight)
        follow_loop((struct update_form){.weight = true}, true, n, step, run, direction);
    else if (dtype == DTYPE_BF16 && run->upper)
        follow_loop((struct update_form){.halves = true}, true, n, step, run, direction);
    else if (dtype == DTYPE_BF16)
        follow_loop((struct update_form){.rounds = true}, true, n, step, run, direction);
    else
        follow_loop((struct update_form){.rounds = false}, false, n, step, run, direction);
}

INLINE void mix_loop(bool bf16, int64_t n, float a, float b, const float *y, void *x) {
    for (int64_t i = 0; i < n; i += LANES)
        store(x, i, n - i, bf16, vf_fma(load(x, i, n - i, bf16), vf_set(a), load(y, i, n - i, false) * b));
}

void SIMD_NAME(simd_mix)(enum dtype dtype, int64_t n, float a, float b, const float *y, void *x) {
    if (dtype == DTYPE_BF16)
        mix_loop(true, n, a, b, y, x);
    else
        mix_loop(false, n, a, b, y, x);
}

/* Sixteen sums side by side, in as many vectors as they take. */
enum { SQUARE_LANES = 16, SQUARE_VECTORS = SQUARE_LANES / WIDE_LANES };

double SIMD_NAME(simd_squared_sum)(int64_t n, const float *x) {
    vd sums[SQUARE_VECTORS] = {0};
    int64_t i = 0;
    for (; i + SQUARE_LANES <= n; i += SQUARE_LANES) {
        prefetch_read(x, i, false);
        for (int part = 0; part < SQUARE_VECTORS; part++) {
            vd wide = vd_load(x + i + part * WIDE_LANES);
            sums[part] += wide * wide;
        }
    }
    double lanes[SQUARE_LANES], total = 0;
    memcpy(lanes, sums, sizeof lanes);
    for (int lane = 0; i < n; i++, lane++)
        lanes[lane] += (double)x[i] * (double)x[i];
    for (int lane = 0; lane < SQUARE_LANES; lane++)
        total += lanes[lane];
    return total;
}
