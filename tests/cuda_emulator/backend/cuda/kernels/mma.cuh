/* Takes the place of backend/cuda/kernels/mma.cuh: the same instructions, as the PTX ISA describes them. */
#pragma once

#include <cuda_bf16.h>

#include <vector>

#include "cuda_runtime.h"

struct emulated_matrices {
    const uint16_t *row;
    uint32_t *out;
};

/* Thread `lane` gets elements (lane / 4, 2 * (lane % 4) and the next) of each matrix, or of the matrix turned. */
template <bool TURNED> void emulated_load(void **all, int) {
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < 4; matrix++) {
            uint32_t packed = 0;
            for (int half = 0; half < 2; half++) {
                int row = lane / 4, column = lane % 4 * 2 + half;
                if (TURNED) std::swap(row, column);
                const struct emulated_matrices *from = (const struct emulated_matrices *)all[matrix * 8 + row];
                if ((uintptr_t)from->row % 16) emulator_fail("a misaligned row of a matrix");
                packed |= (uint32_t)from->row[column] << 16 * half;
            }
            ((const struct emulated_matrices *)all[lane])->out[matrix] = packed;
        }
}

inline void load_matrices(uint32_t out[4], const __nv_bfloat16 *row) {
    struct emulated_matrices own = {(const uint16_t *)row, out};
    emulator_meet(false, emulated_load<false>, &own);
}

inline void load_matrices_turned(uint32_t out[4], const __nv_bfloat16 *row) {
    struct emulated_matrices own = {(const uint16_t *)row, out};
    emulator_meet(false, emulated_load<true>, &own);
}

struct emulated_product {
    float *c0, *c1;
    uint32_t a[4], b[2];
};

inline float emulated_half(uint32_t packed, int half) {
    uint32_t bits = (half ? packed >> 16 : packed & 0xffff) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline void emulated_multiply(void **all, int) {
    static float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const struct emulated_product *own = (const struct emulated_product *)all[lane];
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++)
                a[lane / 4 + i % 2 * 8][lane % 4 * 2 + half + i / 2 * 8] = emulated_half(own->a[i], half);
        for (int i = 0; i < 2; i++)
            for (int half = 0; half < 2; half++)
                b[lane % 4 * 2 + half + i * 8][lane / 4] = emulated_half(own->b[i], half);
    }
    for (int lane = 0; lane < 32; lane++) {
        const struct emulated_product *own = (const struct emulated_product *)all[lane];
        for (int i = 0; i < 4; i++) {
            float *c = i < 2 ? &own->c0[i] : &own->c1[i - 2];
            int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            for (int k = 0; k < 16; k++)
                *c += a[row][k] * b[k][column];
        }
    }
}

inline void multiply_add(float c0[2], float c1[2], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    struct emulated_product own = {c0, c1, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulator_meet(false, emulated_multiply, &own);
}

/* Copies are made when they are waited for, and until then the place is spoiled. */
struct emulated_copy {
    void *to;
    const void *from;
    size_t bytes;
    bool inside;
};
struct emulated_copies {
    std::vector<std::vector<emulated_copy>> groups; /* the last is open */
};
inline emulated_copies &emulated_own(void) {
    static emulated_copies all[1024];
    emulated_copies &own = all[threadIdx.x];
    if (own.groups.empty()) own.groups.resize(1);
    return own;
}

inline void emulated_copy_later(void *to, const void *from, size_t bytes, bool inside) {
    if ((uintptr_t)to % bytes || (uintptr_t)from % bytes) emulator_fail("a misaligned copy");
    memset(to, 0xff, bytes);
    emulated_own().groups.back().push_back({to, from, bytes, inside});
}
inline void copy_later(void *to, const void *from, bool inside) { emulated_copy_later(to, from, 16, inside); }
inline void copy_word_later(void *to, const void *from, bool inside) { emulated_copy_later(to, from, 4, inside); }

inline void copies_end(void) { emulated_own().groups.resize(emulated_own().groups.size() + 1); }

template <int LEFT> void copies_wait(void) {
    emulated_copies &own = emulated_own();
    while (own.groups.size() > LEFT + 1) {
        for (const emulated_copy &copy : own.groups.front())
            if (copy.inside)
                memcpy(copy.to, copy.from, copy.bytes);
            else
                memset(copy.to, 0, copy.bytes);
        own.groups.erase(own.groups.begin());
    }
}

inline void store_whole(void *to, const void *value) {
    if ((uintptr_t)to % 16) emulator_fail("a misaligned store");
    memcpy(to, value, 16);
}

inline uint32_t pack_bf16(float first, float second) {
    uint32_t low = __bfloat16_as_ushort(__float2bfloat16_rn(first));
    return low | (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(second)) << 16;
}
