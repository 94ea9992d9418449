/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
 *
 * A draw is a pure function of (seed, stream, counter): nothing to save on checkpoints, the same on every thread and
 * rank. */
#pragma once

#include "base/base.h"

/* A round of Philox4x32 (random.h), in line so that loops over it are vectorised. Private to src/base. */

enum { PHILOX_ROUNDS = 10 };

struct philox_key {
    uint32_t k0, k1;
};

static inline struct philox_key philox_key_of(uint64_t seed) {
    return (struct philox_key){(uint32_t)seed, (uint32_t)(seed >> 32)};
}

static inline struct philox_key philox_next_key(struct philox_key key) {
    return (struct philox_key){key.k0 + 0x9E3779B9u, key.k1 + 0xBB67AE85u};
}

/* One stream for each use, so that two uses of one seed never see the same numbers. */
enum random_stream {
    RANDOM_INIT = 1,
    RANDOM_SHUFFLE,
    RANDOM_SAMPLE,
    RANDOM_TEST,
    RANDOM_ROUND_STATE, /* stochastic rounding of optimizer states and of weights (backend/kernel_parts.h) */
    RANDOM_ROUND_WEIGHT
};

/* 128 random bits for (seed, stream, high, counter). */
void random_block(uint64_t seed, uint32_t stream, uint32_t high, uint64_t counter, uint32_t out[4]);
uint64_t random_u64(uint64_t seed, uint32_t stream, uint32_t high, uint64_t counter);
/* Uniform in [0, 1), 53 bits. */
double random_uniform(uint64_t seed, uint32_t stream, uint32_t high, uint64_t counter);
/* Standard normal (Box-Muller). */
double random_normal(uint64_t seed, uint32_t stream, uint32_t high, uint64_t counter);
/* Draws first .. first + count - 1, as (float)(scale * random_normal(...)) to the bit, but several times faster. */
void random_normals(uint64_t seed, uint32_t stream, uint32_t high, uint64_t first, size_t count, double scale,
                    float *out);
/* `index` < `count`. Position of element `index` in a random permutation of [0, count): a Feistel network over the next
 * power of four with cycle walking, so that any element is found without holding the permutation. `round` picks the
 * permutation (the epoch). */
uint64_t random_permute(uint64_t seed, uint32_t round, uint64_t index, uint64_t count);
