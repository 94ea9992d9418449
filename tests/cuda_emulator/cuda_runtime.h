/* CUDA's language for a C++ compiler. Device code runs on the CPU, one block after the other. The threads of a block
 * are fibers of one CPU thread, which switch at barriers and warp operations (emulator.cpp). The order of threads
 * and blocks changes from launch to launch, so code that depends on it gives different results from run to run. */
#pragma once

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include <algorithm>
#include <functional>

using std::max;
using std::min;

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
/* Blocks run one after the other. */
#define __shared__ static
#define DYNAMIC_SHARED(name) uint4 *name = emulator_shared
extern uint4 emulator_shared[];

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* All threads of the block, or all lanes of the warp, come here with their arguments; then `combine` is called once
 * with those of all (of a block: NULL for threads that have ended). */
typedef void emulator_combine(void **arguments, int count);
void emulator_meet(bool block, emulator_combine *combine, void *argument);
/* What a call comes to before it does anything: a planted fault (FAULT_DEVICE), or that of a device which has failed.
 */
cudaError_t emulator_call(void);
void emulator_launch(const cudaLaunchConfig_t *config, const std::function<void()> &thread);
[[noreturn]] void emulator_fail(const char *what);

template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A... arguments) {
    cudaError_t error = emulator_call();
    if (error != cudaSuccess) return error;
    emulator_launch(config, [=] { kernel(arguments...); });
    return cudaSuccess;
}

inline void emulator_nothing(void **, int) {}
inline void __syncthreads(void) { emulator_meet(true, emulator_nothing, NULL); }
inline void __syncwarp(void) { emulator_meet(false, emulator_nothing, NULL); }

inline int __syncthreads_or(int predicate) {
    struct vote {
        int own, result;
    } vote = {predicate, 0};
    emulator_meet(
        true,
        [](void **all, int count) {
            int result = 0;
            for (int i = 0; i < count; i++)
                result |= all[i] ? ((struct vote *)all[i])->own : 0;
            for (int i = 0; i < count; i++)
                if (all[i]) ((struct vote *)all[i])->result = result != 0;
        },
        &vote);
    return vote.result;
}

inline unsigned __ballot_sync(unsigned, int predicate) {
    struct vote {
        int own;
        unsigned result;
    } vote = {predicate, 0};
    emulator_meet(
        false,
        [](void **all, int count) {
            unsigned result = 0;
            for (int i = 0; i < count; i++)
                result |= (unsigned)(((struct vote *)all[i])->own != 0) << i;
            for (int i = 0; i < count; i++)
                ((struct vote *)all[i])->result = result;
        },
        &vote);
    return vote.result;
}

inline int __all_sync(unsigned lanes, int predicate) { return __ballot_sync(lanes, predicate) == lanes; }

template <typename T> T __shfl_xor_sync(unsigned, T value, int step) {
    struct move {
        T own, result;
        int step;
    } move = {value, value, step};
    emulator_meet(
        false,
        [](void **all, int count) {
            for (int i = 0; i < count; i++) {
                struct move *to = (struct move *)all[i];
                to->result = ((struct move *)all[i ^ to->step])->own;
            }
        },
        &move);
    return move.result;
}

inline int __ffs(int value) { return ffs(value); }
[[noreturn]] inline void __trap(void) { emulator_fail("__trap"); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return (float)(1 / sqrt((double)a)); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline float __double2float_rn(double a) { return (float)a; }
inline unsigned __float_as_uint(float a) {
    unsigned bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
