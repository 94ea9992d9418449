#include "base/random.h"

#include <float.h>
#include <math.h>

#include "base/base.h"

static inline void philox_round(struct philox_key key, uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3) {
    uint64_t p0 = (uint64_t)0xD2511F53u * *c0, p1 = (uint64_t)0xCD9E8D57u * *c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ *c1 ^ key.k0, n2 = (uint32_t)(p0 >> 32) ^ *c3 ^ key.k1;
    *c0 = n0;
    *c1 = (uint32_t)p1;
    *c2 = n2;
    *c3 = (uint32_t)p0;
}

void random_block(uint64_t seed, uint32_t stream, uint32_t high, uint64_t counter, uint32_t out[4]) {
    struct philox_key key = philox_key_of(seed);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = high, c3 = stream;
    for (int round = 0; round < PHILOX_ROUNDS; round++, key = philox_next_key(key))
        philox_round(key, &c0, &c1, &c2, &c3);
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t random_u64(uint64_t seed, uint32_t stream, uint32_t high, uint64_t counter) {
    uint32_t block[4];
    random_block(seed, stream, high, counter, block);
    return (uint64_t)block[1] << 32 | block[0];
}

double random_uniform(uint64_t seed, uint32_t stream, uint32_t high, uint64_t counter) {
    return (double)(random_u64(seed, stream, high, counter) >> 11) * 0x1p-53;
}

double random_normal(uint64_t seed, uint32_t stream, uint32_t high, uint64_t counter) {
    uint32_t block[4];
    random_block(seed, stream, high, counter, block);
    double u = ((double)((uint64_t)block[1] << 21 ^ block[0] >> 11) + 1.0) * 0x1p-53; /* in (0, 1] */
    double v = (double)((uint64_t)block[3] << 21 ^ block[2] >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t random_permute(uint64_t seed, uint32_t round, uint64_t index, uint64_t count) {
    uint32_t half = 1;
    while (half < 32 && (1ull << (2 * half)) < count)
        half++;
    uint64_t mask = (1ull << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint32_t step = 0; step < 6; step++) {
            uint64_t mixed = random_u64(seed, RANDOM_SHUFFLE, round, right << 3 | step);
            uint64_t next = left ^ (mixed & mask);
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}

/* Many normals at once in vectors, with the values of random_normal.
 *
 * libm's log and cos take three quarters of a draw. Here both are series over a whole block, whose result is within
 * TOLERANCE of libm's. It is kept if all numbers within that distance round to the same float. Otherwise random_normal
 * draws it again: once in 80,000 draws. */

enum { BLOCK = 256 }; /* draws: a block's data between the loops below stays in the first-level cache */

/* Relative. The series are cut below 2^-50, and some 30 roundings add at most 2^-48; libm's own errors are below 2^-52
 * each. */
#define TOLERANCE 0x1p-44
/* Nearer to its zeros the cosine's relative error grows; random_normal takes over there. */
#define COSINE_MIN 0x1p-16

/* Exact: the bits become the mantissa of 2^52 + number. */
static inline double double_from_u32(uint32_t number) {
    uint64_t bits = 0x4330000000000000u | number;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value - 0x1p52;
}

static inline double double_from_bits53(uint32_t high, uint32_t low) {
    return double_from_u32(high) * 0x1p21 + double_from_u32(low >> 11);
}

/* Bits of random_block for each draw of a block. */
struct bits {
    _Alignas(64) uint32_t c0[BLOCK], c1[BLOCK], c2[BLOCK], c3[BLOCK];
};

WIDE_VECTORS static void draw_bits(uint64_t seed, uint32_t stream, uint32_t high, uint64_t first, struct bits *out) {
    for (uint32_t i = 0; i < BLOCK; i++) {
        out->c0[i] = (uint32_t)(first + i);
        out->c1[i] = (uint32_t)((first + i) >> 32);
        out->c2[i] = high;
        out->c3[i] = stream;
    }
    struct philox_key key = philox_key_of(seed);
    for (int round = 0; round < PHILOX_ROUNDS; round++, key = philox_next_key(key)) {
#pragma omp simd
        for (uint32_t i = 0; i < BLOCK; i++)
            philox_round(key, &out->c0[i], &out->c1[i], &out->c2[i], &out->c3[i]);
    }
}

/* u in (0, 1]: u = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 artanh((m - 1) / (m + 1)). */
static inline double log_series(double u) {
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    /* Adds the offset from sqrt(1/2)'s mantissa to the next power of two, so that e is the exponent of the nearest
     * one. */
    uint64_t lifted = bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
    double e = double_from_u32((uint32_t)(lifted >> 52)) - 1023;
    uint64_t mantissa = (lifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu;
    double m;
    memcpy(&m, &mantissa, sizeof m);
    double z = (m - 1) / (m + 1), s = z * z; /* s < 0.0295: the next term is below 2^-55 */
    double sum = 1.0 / 19;
    sum = sum * s + 1.0 / 17;
    sum = sum * s + 1.0 / 15;
    sum = sum * s + 1.0 / 13;
    sum = sum * s + 1.0 / 11;
    sum = sum * s + 1.0 / 9;
    sum = sum * s + 1.0 / 7;
    sum = sum * s + 1.0 / 5;
    sum = sum * s + 1.0 / 3;
    return e * 0x1.62e42fefa39efp-1 + 2 * (z + z * s * sum);
}

/* cos(2 pi v) for v in [0, 1): minus or plus sin(2 pi v - h pi) with h = 1/2 or 3/2, at most pi/2 from 0. */
static inline double cosine_series(double v) {
    double x = 6.283185307179586 * v, h = v < 0.5 ? 0.5 : 1.5;
    double r = x - h * 0x1.921fb544p+1 - h * 0x1.0b4611a626331p-33; /* pi in two parts: the first product is exact */
    double t = -r * r, sum = 1.0 / 121645100408832000.0;            /* 1/19!; -t < 2.47: the next term is below 2^-52 */
    sum = sum * t + 1.0 / 355687428096000.0;
    sum = sum * t + 1.0 / 1307674368000.0;
    sum = sum * t + 1.0 / 6227020800.0;
    sum = sum * t + 1.0 / 39916800.0;
    sum = sum * t + 1.0 / 362880.0;
    sum = sum * t + 1.0 / 5040.0;
    sum = sum * t + 1.0 / 120.0;
    sum = sum * t + 1.0 / 6.0;
    double sine = r + r * t * sum;
    return v < 0.5 ? -sine : sine;
}

/* Returns how many of them are not certain. */
WIDE_VECTORS static uint32_t transform(const struct bits *from, double scale, float *restrict out,
                                       uint32_t *restrict uncertain) {
    uint32_t count = 0;
#pragma omp simd reduction(+ : count)
    for (uint32_t i = 0; i < BLOCK; i++) {
        double u = (double_from_bits53(from->c1[i], from->c0[i]) + 1.0) * 0x1p-53; /* in (0, 1] */
        double cosine = cosine_series(double_from_bits53(from->c3[i], from->c2[i]) * 0x1p-53);
        double value = scale * (sqrt(-2.0 * log_series(u)) * cosine);
        float low = (float)(value * (1 - TOLERANCE)), high = (float)(value * (1 + TOLERANCE));
        out[i] = low;
        uncertain[i] = !(low == high) | !(fabs(cosine) >= COSINE_MIN) | !(fabs(value) >= FLT_MIN);
        count += uncertain[i];
    }
    return count;
}

void random_normals(uint64_t seed, uint32_t stream, uint32_t high, uint64_t first, size_t count, double scale,
                    float *out) {
    struct bits bits;
    _Alignas(64) float values[BLOCK];
    _Alignas(64) uint32_t uncertain[BLOCK];
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t here = count - done < BLOCK ? count - done : BLOCK;
        draw_bits(seed, stream, high, first + done, &bits);
        bool all_certain = transform(&bits, scale, values, uncertain) == 0;
        for (size_t i = 0; i < here && !all_certain; i++)
            if (uncertain[i]) values[i] = (float)(scale * random_normal(seed, stream, high, first + done + i));
        memcpy(out + done, values, here * sizeof *values);
    }
}
