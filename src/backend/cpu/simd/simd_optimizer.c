/* Updates of parameters, and sums of squares. */
#include "backend/cpu/simd/chance.h"
#include "backend/moment_map.h"

/* Constants of a loop. */
struct update_form {
    enum update_rule rule;
    bool moments, weight; /* in bf16, rounded by chance */
    bool rounds;
};

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
    struct update_values values = {.weight = muon ? (vf){0} : load(run->weight, i, left, form.weight)};
    values.moments[0] = load(run->moments[0], i, left, form.moments);
    if (second) values.moments[1] = load(run->moments[1], i, left, form.moments);
    if (form.rule == UPDATE_ADAMW) adamw_update(step, g, &values);
    if (form.rule == UPDATE_LION) lion_update(step, g, &values);
    if (form.rule == UPDATE_SGD) sgd_update(step, g, &values);
    if (muon) muon_update(step, g, &values);
    store_by_chance(run->moments[0], i, left, form.moments, values.moments[0], bits.state & 0xffffu);
    if (second) store_by_chance(run->moments[1], i, left, form.moments, values.moments[1], bits.state >> 16);
    if (muon) {
        store(run->direction, i, left, false, values.weight);
        return;
    }
    store_by_chance(run->weight, i, left, form.weight, values.weight, bits.weight & 0xffffu);
    if (form.rounds) store(run->rounded, i, left, true, values.weight);
}

/* Four vectors at a time, since a block of random numbers is for four elements. */
INLINE void update_loop(struct update_form form, int64_t n, const struct update_step *step,
                        const struct update_run *run) {
    for (int64_t i = 0; i < n; i += 4 * LANES) {
        vu state[4] = {{0}}, weight[4] = {{0}};
        if (form.moments) chance_draw(step->seed, RANDOM_ROUND_STATE, step->count, step->number, run->first + i, state);
        if (form.weight)
            chance_draw(step->seed, RANDOM_ROUND_WEIGHT, step->count, step->number, run->first + i, weight);
        for (int v = 0; v < 4 && i + v * LANES < n; v++)
            update_vector(form, i + v * LANES, n - i - v * LANES, step, run, (struct update_bits){state[v], weight[v]});
    }
}

INLINE void update_by(enum update_rule rule, int64_t n, const struct update_step *step, const struct update_run *run) {
    if (run->bf16_weight && run->bf16_moments)
        update_loop((struct update_form){.rule = rule, .moments = true, .weight = true}, n, step, run);
    else if (run->bf16_weight)
        update_loop((struct update_form){.rule = rule, .weight = true}, n, step, run);
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

enum { BLOCK = UPDATE_SCALE_BLOCK };
typedef uint8_t vb __attribute__((vector_size(LANES)));

/* A map's levels, each number of theirs in a table of its own, by level; level 0 has zeros alone. The powers of two
 * from 2^-31 to 1 begin in the levels `begins`: none has the beginnings of two levels. */
enum { LEVEL_ENTRIES = 16, POWER_ENTRIES = 32 };
struct level_tables {
    const struct moment_map *map;
    float above[LEVEL_ENTRIES], slope[LEVEL_ENTRIES], offset[LEVEL_ENTRIES];
    float next[LEVEL_ENTRIES];  /* `above` of the level after it */
    float codes[LEVEL_ENTRIES]; /* bits: the first, and the last << 16 */
    int32_t begins[POWER_ENTRIES];
};

INLINE void fill_tables(const struct moment_map *map, struct level_tables *out) {
    *out = (struct level_tables){.map = map};
    for (int i = 0; i < LEVEL_ENTRIES; i++)
        out->next[i] = i + 1 < MOMENT_LEVELS ? map->levels[i + 1].above : __builtin_inff();
    for (int i = 1; i < MOMENT_LEVELS; i++) {
        int32_t codes = map->levels[i].code | map->levels[i].last << 16;
        memcpy(&out->codes[i], &codes, sizeof codes);
        out->above[i] = map->levels[i].above;
        out->slope[i] = map->levels[i].slope;
        out->offset[i] = map->levels[i].offset;
    }
    float power = 0x1p-31f;
    for (int i = 0; i < POWER_ENTRIES; i++, power *= 2)
        for (int level = 1; level < MOMENT_LEVELS; level++)
            out->begins[i] += power > map->levels[level].above;
}

/* table[index] of numbers by code, and of a table by level. */
#if SIMD_LANES == 16
INLINE vf vf_gather(const float *table, vi index) { return (vf)_mm512_i32gather_ps((__m512i)index, table, 4); }
INLINE vi vi_of_bytes(const uint8_t *from) { return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from)); }
INLINE vf vf_by_level(const float table[LEVEL_ENTRIES], vi level) {
    return (vf)_mm512_permutexvar_ps((__m512i)level, (__m512)vf_load(table));
}
#elif SIMD_LANES == 8
INLINE vf vf_gather(const float *table, vi index) { return (vf)_mm256_i32gather_ps(table, (__m256i)index, 4); }
INLINE vi vi_of_bytes(const uint8_t *from) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from)); }
/* Levels 1 to 8 fill a vector. */
INLINE vf vf_by_level(const float table[LEVEL_ENTRIES], vi level) {
    vf found = (vf)_mm256_permutevar8x32_ps((__m256)vf_load(table + 1), (__m256i)(level - 1));
    return (vf)((vi)found & (level > 0));
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
INLINE vf vf_by_level(const float table[LEVEL_ENTRIES], vi level) { return vf_gather(table, level); }
#endif

/* The level of a magnitude up to 1, which is no NaN. */
#if SIMD_LANES == 16
INLINE vi level_of(const struct level_tables *tables, vf magnitude) {
    const __m512i *begins = (const __m512i *)tables->begins;
    __m512i power = _mm512_max_epi32(_mm512_sub_epi32(_mm512_srli_epi32((__m512i)magnitude, 23), _mm512_set1_epi32(96)),
                                     _mm512_setzero_si512());
    vi level = (vi)_mm512_permutex2var_epi32(_mm512_loadu_si512(begins), power, _mm512_loadu_si512(begins + 1));
    return level - (magnitude > vf_by_level(tables->next, level));
}
#else
INLINE vi level_of(const struct level_tables *tables, vf magnitude) {
    vi level = {0};
    for (int i = 1; i < MOMENT_LEVELS; i++)
        level -= magnitude > vf_set(tables->above[i]);
    return level;
}
#endif

#if SIMD_LANES == 16
INLINE vi vi_min(vi a, vi b) { return (vi)_mm512_min_epi32((__m512i)a, (__m512i)b); }
#else
INLINE vi vi_min(vi a, vi b) { return (vi)vf_select(a < b, (vf)a, (vf)b); }
#endif

/* The codes of the nearest numbers; 0's of NaN. `both`: the map has numbers of both signs, of which the negative ones
 * are one fewer. */
INLINE vi codes_of(const struct level_tables *tables, bool both, vf x) {
    vi zero = vi_set(tables->map->zero), sign = (vi)x >> 31;
    vf magnitude = vf_max((vf)((vi)x & 0x7fffffff), vf_set(0));
    vi level = level_of(tables, magnitude), codes = (vi)vf_by_level(tables->codes, level);
    vf place = vf_fma(magnitude, vf_by_level(tables->slope, level), vf_by_level(tables->offset, level));
    vi code = (codes & 0xffff) + __builtin_convertvector(vf_max(place, vf_set(0)), vi);
    code = vi_min(code, codes >> 16);
    if (!both) return code & ~sign;
    return zero + ((vi_min(code, zero + 1 + sign) ^ sign) - sign);
}

/* x / y where y is a normal number and 1 / y is `inverse`, rounded once: a quotient that is wrong by 2 in its last
 * place is corrected by what it leaves of x, twice (Markstein, IBM J. Res. Dev. 34, 1990). Quotients below 2^-40, which
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
    for (; i < BLOCK; i++)
        numbers[i] = i < n ? of_code[codes[i]] * scale : 0;
}

/* `plain`: the scale is far from the least and the largest numbers. */
INLINE void pack_codes(const struct level_tables *tables, bool both, bool plain, int64_t n, const float *numbers,
                       float scale, uint8_t *codes) {
    vf divisor = vf_set(scale), inverse = 1.0f / divisor;
    for (int64_t i = 0; i < n; i += LANES) {
        vf x = vf_load(numbers + i), quotient = plain ? quotient_of(x, divisor, inverse) : x / divisor;
        vb found = __builtin_convertvector(codes_of(tables, both, quotient), vb);
        if (n - i >= LANES)
            memcpy(codes + i, &found, sizeof found);
        else
            memcpy(codes + i, &found, (size_t)(n - i));
    }
}

/* `numbers` has zeros from n on. */
INLINE void pack_block(const struct level_tables *tables, int64_t n, const float *numbers, uint8_t *codes,
                       float *scale) {
    vf largest = {0};
    for (int64_t i = 0; i < BLOCK; i += LANES) {
        vf x = vf_load(numbers + i);
        largest = vf_max(largest, vf_select(x < vf_set(0), -x, x));
    }
    *scale = vf_largest(largest);
    bool plain = *scale >= 0x1p-60f && *scale <= 0x1p60f, both = tables->map->zero > 0;
    if (plain && both)
        pack_codes(tables, true, true, n, numbers, *scale, codes);
    else if (plain)
        pack_codes(tables, false, true, n, numbers, *scale, codes);
    else
        pack_codes(tables, both, false, n, numbers, *scale, codes);
}

INLINE void update_block(enum update_rule rule, int64_t n, const struct level_tables *tables,
                         const struct update_step *step, const struct update_run *run) {
    float numbers[UPDATE_MOMENTS_MAX][BLOCK];
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
    for (int64_t i = 0; i < n; i += BLOCK) {
        const struct update_run block = update_run_from(run, i);
        update_block(rule, n - i < BLOCK ? n - i : BLOCK, tables, step, &block);
    }
}

/* ---- Muon: the weight, and sums of a matrix and products ---- */

INLINE void follow_loop(struct update_form form, bool bf16, int64_t n, const struct update_step *step,
                        const struct update_run *run, const void *direction) {
    for (int64_t i = 0; i < n; i += 4 * LANES) {
        vu bits[4] = {{0}};
        if (form.weight) chance_draw(step->seed, RANDOM_ROUND_WEIGHT, step->count, step->number, run->first + i, bits);
        for (int v = 0; v < 4 && i + v * LANES < n; v++) {
            int64_t at = i + v * LANES, left = n - at;
            vf weight = load(run->weight, at, left, form.weight);
            weight = vf_fma(load(direction, at, left, bf16), vf_set(-step->step), weight * step->decay);
            store_by_chance(run->weight, at, left, form.weight, weight, bits[v] & 0xffffu);
            if (form.rounds) store(run->rounded, at, left, true, weight);
        }
    }
}

void SIMD_NAME(simd_follow)(enum dtype dtype, int64_t n, const struct update_step *step, const struct update_run *run,
                            const void *direction) {
    if (dtype == DTYPE_BF16 && run->bf16_weight)
        follow_loop((struct update_form){.weight = true}, true, n, step, run, direction);
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
