#include "base/random.h"

#include <math.h>

#include "base/philox.h"

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
