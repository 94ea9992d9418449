/* A round of Philox4x32 (random.h), in line so that loops over it are vectorised. Private to src/base. */
#ifndef BALLAST_BASE_PHILOX_H
#define BALLAST_BASE_PHILOX_H

#include <stdint.h>

enum { PHILOX_ROUNDS = 10 };

struct philox_key {
    uint32_t k0, k1;
};

static inline struct philox_key philox_key_of(uint64_t seed) {
    return (struct philox_key){(uint32_t)seed, (uint32_t)(seed >> 32)};
}

static inline void philox_round(struct philox_key key, uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3) {
    uint64_t p0 = (uint64_t)0xD2511F53u * *c0, p1 = (uint64_t)0xCD9E8D57u * *c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ *c1 ^ key.k0, n2 = (uint32_t)(p0 >> 32) ^ *c3 ^ key.k1;
    *c0 = n0;
    *c1 = (uint32_t)p1;
    *c2 = n2;
    *c3 = (uint32_t)p0;
}

static inline struct philox_key philox_next_key(struct philox_key key) {
    return (struct philox_key){key.k0 + 0x9E3779B9u, key.k1 + 0xBB67AE85u};
}

#endif
