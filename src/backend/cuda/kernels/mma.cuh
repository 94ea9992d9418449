/* Instructions that CUDA C++ does not offer (PTX ISA). A warp issues the tensor cores' instruction for bf16,
 * mma.m16n8k16, together: thread `lane` has group = lane / 4 and two columns from 2 * (lane % 4) on. */
#pragma once

#include <cuda_bf16.h>
#include <stdint.h>
#include <string.h>

/* Loads four 8x8 matrices of bf16 from shared memory. Lanes 8i to 8i+7 give the addresses of the rows of matrix i, each
 * 16 bytes at a multiple of 16. A thread gets in out[i] its two columns of row `group` of matrix i. */
__device__ inline void load_matrices(uint32_t out[4], const __nv_bfloat16 *row) {
    uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

/* The same of the transposed matrices: two neighbours down column `group`. */
__device__ inline void load_matrices_turned(uint32_t out[4], const __nv_bfloat16 *row) {
    uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

/* c [16][8] += a [16][16] b [16][8]. a: rows group and group + 8 in columns 0-7, then in 8-15; b: column `group`, its
 * rows 0-7, then 8-15, two down; c: two columns of row `group` (c0), then of group + 8 (c1). */
__device__ inline void multiply_add(float c0[2], float c1[2], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c0[0]), "+f"(c0[1]), "+f"(c1[0]), "+f"(c1[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Begins an asynchronous copy of 16 bytes to shared memory, both at multiples of 16; `inside` false: writes zeros and
 * reads nothing. */
__device__ inline void copy_later(void *to, const void *from, bool inside) {
    uint32_t address = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}

/* The same for 4 bytes at multiples of 4. */
__device__ inline void copy_word_later(void *to, const void *from, bool inside) {
    uint32_t address = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
}

/* The thread's copies since the last call become a group, which may be empty. */
__device__ inline void copies_end(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Returns when all of the thread's groups but the last LEFT have arrived; other threads see that after a barrier. */
template <int LEFT> __device__ inline void copies_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* 16 bytes to the device's memory by one access, at a multiple of 16. */
__device__ inline void store_whole(void *to, const void *value) {
    uint32_t words[4];
    memcpy(words, value, sizeof words);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

/* Two values rounded to bf16, the first in the low half. */
__device__ inline uint32_t pack_bf16(float first, float second) {
    uint32_t low = __bfloat16_as_ushort(__float2bfloat16_rn(first));
    return low | (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(second)) << 16;
}
