/* Updates of parameters, and sums of squares. */
#include "backend/cpu/simd/simd.h"
#include "backend/kernel_parts.h"
#include "base/random.h"

/* ---- stochastic rounding (backend/kernel_parts.h): Philox's blocks for LANES times four elements at a time ---- */

typedef uint64_t vl __attribute__((vector_size(LANES * 4)));

/* Products of the even lanes, 64 bits each. */
#if SIMD_LANES == 16
INLINE vl vu_multiply_even(vu a, vu b) { return (vl)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
#elif SIMD_LANES == 8
INLINE vl vu_multiply_even(vu a, vu b) { return (vl)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
#else
INLINE vl vu_multiply_even(vu a, vu b) { return (vl){(uint64_t)a[0] * b[0], (uint64_t)a[2] * b[2]}; }
#endif

/* Lower and upper halves of a lane's product with a constant. */
INLINE void vu_multiply(vu a, uint32_t by, vu *low, vu *high) {
    vu factor = (vu){0} + by;
    vl even = vu_multiply_even(a, factor), odd = vu_multiply_even((vu)((vl)a >> 32), factor);
    *low = (vu)((even & 0xffffffffu) | odd << 32);
    *high = (vu)(even >> 32 | (odd & ~UINT64_C(0xffffffff)));
}

/* As philox_round, a block in each lane. */
INLINE void random_round(struct philox_key key, vu c[4]) {
    vu low0, high0, low2, high2;
    vu_multiply(c[0], 0xD2511F53u, &low0, &high0);
    vu_multiply(c[2], 0xCD9E8D57u, &low2, &high2);
    vu next0 = high2 ^ c[1] ^ key.k0, next2 = high0 ^ c[3] ^ key.k1;
    c[0] = next0;
    c[1] = low2;
    c[2] = next2;
    c[3] = low0;
}

/* The words of elements first to first + 4 * LANES - 1, in their order; `first` is a multiple of 4. */
INLINE void random_draw(uint64_t seed, uint32_t stream, uint32_t step, uint32_t number, int64_t first, vu words[4]) {
    struct philox_key key = philox_key_of(seed);
    vu zero = {0};
    vu c[4] = {(vu)vi_iota() + (uint32_t)(first / 4), zero + number, zero + step, zero + stream};
    for (int round = 0; round < PHILOX_ROUNDS; round++, key = philox_next_key(key))
        random_round(key, c);
    /* Four words of each block become neighbours. */
    vf even_low = vf_weave_low((vf)c[0], (vf)c[2]), odd_low = vf_weave_low((vf)c[1], (vf)c[3]);
    vf even_high = vf_weave_high((vf)c[0], (vf)c[2]), odd_high = vf_weave_high((vf)c[1], (vf)c[3]);
    words[0] = (vu)vf_weave_low(even_low, odd_low);
    words[1] = (vu)vf_weave_high(even_low, odd_low);
    words[2] = (vu)vf_weave_low(even_high, odd_high);
    words[3] = (vu)vf_weave_high(even_high, odd_high);
}

/* `bits`: 16 random ones a lane. */
INLINE vh bf16_round_stochastic(vf value, vu bits) {
    vf quiet = (vf)((vu)value | 0x400000u);
    return vu_narrow((vu)vf_select(value != value, quiet, (vf)((vu)value + bits)) >> 16);
}

INLINE void store_half(void *to, int64_t index, int64_t left, vh value) {
    uint16_t *at = (uint16_t *)to + index;
    if (left >= LANES)
        *(vh_unaligned *)at = (vh_unaligned)value;
    else
        memcpy(at, &value, (size_t)left * sizeof *at);
}

/* As `store`, but in bf16 with stochastic rounding. */
INLINE void store_stochastic(void *to, int64_t index, int64_t left, bool bf16, vf value, vu bits) {
    if (bf16)
        store_half(to, index, left, bf16_round_stochastic(value, bits));
    else
        store(to, index, left, false, value);
}

/* ---- moments in 8 bits (backend/kernel_parts.h): a block's numbers from its codes, and the nearest codes ---- */

/* Four vectors are packed together. */
enum { MOMENT_BLOCK = UPDATE_SCALE_BLOCK, MOMENT_GROUP = 4 * LANES };
_Static_assert(MOMENT_BLOCK % MOMENT_GROUP == 0, "a block is packed by groups");

/* A map's levels but for 0's, each number of theirs in a table of its own. */
enum { LEVEL_ENTRIES = MOMENT_LEVELS - 1 };
struct level_tables {
    const struct moment_map *map;
    float above[LEVEL_ENTRIES]; /* -inf: of the first, below which all are 0 */
    float slope[LEVEL_ENTRIES], offset[LEVEL_ENTRIES];
    float reach[LEVEL_ENTRIES]; /* the last code less the first */
    float code[LEVEL_ENTRIES];  /* bits: the first */
};

INLINE void fill_tables(const struct moment_map *map, struct level_tables *out) {
    out->map = map;
    for (int i = 0; i < LEVEL_ENTRIES; i++) {
        const struct moment_level *level = &map->levels[i + 1];
        out->above[i] = i == 0 ? -__builtin_inff() : level->above;
        out->slope[i] = level->slope;
        out->offset[i] = level->offset;
        out->reach[i] = (float)(level->last - level->code);
        memcpy(&out->code[i], &level->code, sizeof level->code);
    }
}

/* table[index] of numbers by code; codes as integers; table[level] of the lower 3 bits; the smaller; level less 1
 * where a <= b; `code` where a > b, 0 elsewhere; -code where x is negative; four vectors as bytes, 0 where they are
 * negative. */
#if SIMD_LANES == 16
INLINE vf vf_gather(const float *table, vi index) { return (vf)_mm512_i32gather_ps((__m512i)index, table, 4); }
INLINE vi vi_of_bytes(const uint8_t *from) { return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from)); }
INLINE vf vf_by_level(const float table[LEVEL_ENTRIES], vi level) {
    return (vf)_mm512_permutexvar_ps((__m512i)level, _mm512_broadcast_f32x8(_mm256_loadu_ps(table)));
}
INLINE vi vi_lower(vi level, vf a, vf b) {
    __mmask16 lower = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ);
    return (vi)_mm512_mask_sub_epi32((__m512i)level, lower, (__m512i)level, _mm512_set1_epi32(1));
}
INLINE vi vi_above(vi code, vf a, vf b) {
    return (vi)_mm512_maskz_mov_epi32(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ), (__m512i)code);
}
INLINE vi vi_signed(vi code, vf x) {
    return (vi)_mm512_mask_sub_epi32((__m512i)code, _mm512_movepi32_mask((__m512i)x), _mm512_setzero_si512(),
                                     (__m512i)code);
}
INLINE void store_codes(uint8_t to[MOMENT_GROUP], const vi codes[4]) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low = _mm512_packs_epi32((__m512i)codes[0], (__m512i)codes[1]);
    __m512i high = _mm512_packs_epi32((__m512i)codes[2], (__m512i)codes[3]);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}
#elif SIMD_LANES == 8
INLINE vf vf_gather(const float *table, vi index) { return (vf)_mm256_i32gather_ps(table, (__m256i)index, 4); }
INLINE vi vi_of_bytes(const uint8_t *from) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from)); }
INLINE vf vf_by_level(const float table[LEVEL_ENTRIES], vi level) {
    return (vf)_mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)level);
}
INLINE vi vi_lower(vi level, vf a, vf b) { return level + (a <= b); }
INLINE vi vi_above(vi code, vf a, vf b) { return code & (a > b); }
INLINE vi vi_signed(vi code, vf x) { return (vi)_mm256_sign_epi32((__m256i)code, (__m256i)((vi)x | 1)); }
INLINE void store_codes(uint8_t to[MOMENT_GROUP], const vi codes[4]) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_packs_epi32((__m256i)codes[0], (__m256i)codes[1]);
    __m256i high = _mm256_packs_epi32((__m256i)codes[2], (__m256i)codes[3]);
    _mm256_storeu_si256((__m256i *)to, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
}
#else
INLINE vf vf_gather(const float *table, vi index) {
    vf found;
    for (int i = 0; i < LANES; i++)
        found[i] = table[index[i]];
    return found;
}
INLINE vi vi_of_bytes(const uint8_t *from) {
    vi codes;
    for (int i = 0; i < LANES; i++)
        codes[i] = from[i];
    return codes;
}
INLINE vf vf_by_level(const float table[LEVEL_ENTRIES], vi level) {
    return vf_gather(table, level & (LEVEL_ENTRIES - 1));
}
INLINE vi vi_lower(vi level, vf a, vf b) { return level + (a <= b); }
INLINE vi vi_above(vi code, vf a, vf b) { return code & (a > b); }
INLINE vi vi_signed(vi code, vf x) {
    vi sign = (vi)x >> 31;
    return (code ^ sign) - sign;
}
INLINE void store_codes(uint8_t to[MOMENT_GROUP], const vi codes[4]) {
    for (int i = 0; i < MOMENT_GROUP; i++) {
        int32_t code = codes[i / LANES][i % LANES];
        to[i] = (uint8_t)(code < 0 ? 0 : code);
    }
}
#endif

/* The level of a magnitude up to 1, from 0 on, as in the tables. An exponent and its mantissa, read as one number, are
 * less than log2 by 0 to 0.0861. So the sum is less than log10 + 7.1 by 0 to 0.026. That gives the level or, just below
 * its beginning, the next one. (Level k begins at 10^(k - 7 + t), -0.002 < t < 0.45.) */
INLINE vi level_of(const struct level_tables *tables, vf magnitude) {
    const float power = 0x1.344136p-2f /* log10(2) */, bias = 127 * power - 7.1f;
    vf guess = vf_fma(__builtin_convertvector((vi)magnitude, vf), vf_set(power * 0x1p-23f), vf_set(-bias));
    vi level = __builtin_convertvector(vf_max(guess, vf_set(0)), vi);
    return vi_lower(level, magnitude, vf_by_level(tables->above, level));
}

/* The codes of the nearest numbers; NaN has the code of 0. With `both`, the map has numbers of both signs, one fewer of
 * them negative: -1 has the code -1, which store_codes turns into 0. With the other map no x is negative. */
INLINE vi codes_of(const struct level_tables *tables, bool both, vf x) {
    vf magnitude = vf_max(both ? (vf)((vi)x & 0x7fffffff) : x, vf_set(0));
    vi level = level_of(tables, magnitude);
    vf place = vf_fma(magnitude, vf_by_level(tables->slope, level), vf_by_level(tables->offset, level));
    place = vf_min(place, vf_by_level(tables->reach, level));
    vi code = (vi)vf_by_level(tables->code, level) + __builtin_convertvector(place, vi);
    code = vi_above(code, magnitude, vf_set(tables->map->levels[1].above));
    return both ? vi_signed(code, x) + tables->map->zero : code;
}

/* x / y, rounded once, where y is a normal number and 1 / y is `inverse`. A quotient that is wrong by 2 in its last
 * place is corrected twice by its remainder of x (Markstein, IBM J. Res. Dev. 34, 1990). Quotients below 2^-40, which
 * have the code of 0, may be less exact. */
INLINE vf quotient_of(vf x, vf y, vf inverse) {
    vf quotient = x * inverse;
    quotient = vf_fma(vf_fma(-quotient, y, x), inverse, quotient);
    return vf_fma(vf_fma(-quotient, y, x), inverse, quotient);
}

/* `numbers` gets zeros from n to the block's end. */
INLINE void unpack_block(const struct moment_map *map, int64_t n, const uint8_t *codes, float scale, float *numbers) {
    const float *of_code = map->numbers;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vf_store(numbers + i, vf_gather(of_code, vi_of_bytes(codes + i)) * scale);
    for (; i < MOMENT_BLOCK; i++)
        numbers[i] = i < n ? of_code[codes[i]] * scale : 0;
}

/* `plain`: the scale is far from the least and the largest numbers. */
INLINE void pack_codes(const struct level_tables *tables, bool both, bool plain, const float numbers[MOMENT_BLOCK],
                       float scale, uint8_t codes[MOMENT_BLOCK]) {
    vf divisor = vf_set(scale), inverse = 1.0f / divisor;
    for (int64_t i = 0; i < MOMENT_BLOCK; i += MOMENT_GROUP) {
        vi found[4];
        for (int v = 0; v < 4; v++) {
            vf x = vf_load(numbers + i + v * LANES);
            found[v] = codes_of(tables, both, plain ? quotient_of(x, divisor, inverse) : x / divisor);
        }
        store_codes(codes + i, found);
    }
}

INLINE float largest_magnitude(const float numbers[MOMENT_BLOCK]) {
    vf largest[4] = {{0}};
    for (int64_t i = 0; i < MOMENT_BLOCK; i += MOMENT_GROUP)
        for (int v = 0; v < 4; v++)
            largest[v] = vf_max(largest[v], (vf)((vi)vf_load(numbers + i + v * LANES) & 0x7fffffff));
    return vf_largest(vf_max(vf_max(largest[0], largest[1]), vf_max(largest[2], largest[3])));
}

/* `numbers` has zeros from n on. */
INLINE void pack_block(const struct level_tables *tables, int64_t n, const float *numbers, uint8_t *codes,
                       float *scale) {
    uint8_t part[MOMENT_BLOCK], *all = n == MOMENT_BLOCK ? codes : part;
    float largest = *scale = largest_magnitude(numbers);
    bool plain = largest >= 0x1p-60f && largest <= 0x1p60f, both = tables->map->zero > 0;
    if (plain && both)
        pack_codes(tables, true, true, numbers, largest, all);
    else if (plain)
        pack_codes(tables, false, true, numbers, largest, all);
    else
        pack_codes(tables, both, false, numbers, largest, all);
    if (n < MOMENT_BLOCK) memcpy(codes, part, (size_t)n);
}

/* ---- updates ---- */

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

/* Values that a rule updates. */
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
    WITH_CONSTANT(moments, run->bf16_moments, {
        if (run->bf16_weight)
            update_loop((struct update_form){.rule = rule, .moments = moments, .weight = true}, n, step, run);
        else if (run->upper)
            update_loop((struct update_form){.rule = rule, .moments = moments, .halves = true}, n, step, run);
        else if (run->rounded)
            update_loop((struct update_form){.rule = rule, .moments = moments, .rounds = true}, n, step, run);
        else
            update_loop((struct update_form){.rule = rule, .moments = moments}, n, step, run);
    });
}

INLINE void update_run(enum update_rule rule, int64_t n, const struct update_step *step, const struct update_run *run) {
    if (rule == UPDATE_ADAMW) update_by(UPDATE_ADAMW, n, step, run);
    if (rule == UPDATE_LION) update_by(UPDATE_LION, n, step, run);
    if (rule == UPDATE_SGD) update_by(UPDATE_SGD, n, step, run);
    if (rule != UPDATE_MUON) return;
    WITH_CONSTANT(bf16, run->bf16_moments,
                  update_loop((struct update_form){.rule = UPDATE_MUON, .moments = bf16}, n, step, run));
}

/* ---- updates of moments in 8 bits ---- */

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
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16, mix_loop(bf16, n, a, b, y, x));
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
