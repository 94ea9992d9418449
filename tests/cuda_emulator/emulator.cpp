#include "cuda_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <vector>

extern "C" {
#include "base/fault.h"
}
#include "emulated_faults.h"

enum {
    LANES = 32,
    THREADS_MAX = 1024,
    STACK_BYTES = 1 << 17,
    SHARED_BYTES = 227 << 10,
    CANARY_BYTES = 4096,
    POISON = 0xff
};

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
alignas(1024) uint4 emulator_shared[(SHARED_BYTES + CANARY_BYTES) / sizeof(uint4)];

/* Goes on where another fiber left off. ucontext asks the kernel at each switch, which costs far more than the switch,
 * so that it serves only where this is not written. */
#ifdef __x86_64__
struct fiber_context {
    void *stack_top;
};
extern "C" void fiber_switch(void **from, void *to);
__asm__(".globl fiber_switch\n"
        "fiber_switch:\n"
        "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
        "ret\n");
static void context_switch(fiber_context *from, fiber_context *to) { fiber_switch(&from->stack_top, to->stack_top); }
/* The address to return to, below the six registers; the stack is then as after a call. */
static void context_make(fiber_context *context, char *stack, size_t bytes, void (*start)(void)) {
    void **top = (void **)(stack + bytes - 64);
    top[-1] = NULL;
    top[-2] = (void *)start;
    context->stack_top = top - 8;
}
#else
struct fiber_context {
    ucontext_t context;
};
static void context_switch(fiber_context *from, fiber_context *to) { swapcontext(&from->context, &to->context); }
static void context_make(fiber_context *context, char *stack, size_t bytes, void (*start)(void)) {
    getcontext(&context->context);
    context->context.uc_stack.ss_sp = stack;
    context->context.uc_stack.ss_size = bytes;
    makecontext(&context->context, start, 0);
}
#endif

struct fiber {
    fiber_context context;
    char *stack;
    uint3 index;
    bool ended, waits, at_block;
    emulator_combine *combine;
    void *argument;
};

static std::vector<fiber> fibers;
static int running; /* index of the fiber */
static fiber_context scheduler;
static const std::function<void()> *body;
static unsigned launches;

void emulator_fail(const char *what) {
    fprintf(stderr, "emulated device: %s in thread %u of block %u\n", what, threadIdx.x, blockIdx.x);
    abort();
}

void emulator_meet(bool block, emulator_combine *combine, void *argument) {
    fiber *own = &fibers[(size_t)running];
    own->waits = true;
    own->at_block = block;
    own->combine = combine;
    own->argument = argument;
    context_switch(&own->context, &scheduler);
}

static void fiber_main(void) {
    (*body)();
    fibers[(size_t)running].ended = true;
    context_switch(&fibers[(size_t)running].context, &scheduler);
}

static void fiber_start(fiber *fiber, unsigned number) {
    if (!fiber->stack) fiber->stack = (char *)malloc(STACK_BYTES);
    fiber->index = {number % blockDim.x, number / blockDim.x, 0};
    fiber->ended = fiber->waits = false;
    context_make(&fiber->context, fiber->stack, STACK_BYTES, fiber_main);
}

static void fiber_resume(int number) {
    fiber *next = &fibers[(size_t)number];
    if (next->ended || next->waits) return;
    running = number;
    threadIdx = next->index;
    context_switch(&scheduler, &next->context);
}

/* Lets fibers [begin, end) go on if all that have not ended wait for each other. */
static bool release(int begin, int end, bool block) {
    static void *arguments[THREADS_MAX];
    emulator_combine *combine = NULL;
    int waiting = 0;
    for (int i = begin; i < end; i++) {
        const fiber *fiber = &fibers[(size_t)i];
        arguments[i - begin] = fiber->ended ? NULL : fiber->argument;
        if (fiber->ended) continue;
        if (!fiber->waits || fiber->at_block != block) return false;
        if (combine && combine != fiber->combine) emulator_fail("threads meet at different places");
        combine = fiber->combine;
        waiting++;
    }
    if (waiting == 0) return false;
    if (!block && waiting != end - begin) emulator_fail("lanes of a warp have ended");
    combine(arguments, end - begin);
    for (int i = begin; i < end; i++)
        fibers[(size_t)i].waits = false;
    return true;
}

/* Warps go at paces of their own, each launch others, and so drift apart: one goes on in every round, one in every
 * fourth. All do in round 0. */
static bool warps_release(int threads, unsigned round) {
    bool moved = false;
    for (int warp = 0; warp < threads; warp += LANES) {
        unsigned pace = 1 + ((unsigned)warp / LANES * 7 + launches * 5) % 8 / 2;
        if (round % pace == 0) moved = release(warp, min(warp + (int)LANES, threads), false) || moved;
    }
    return moved;
}

static void block_run(int threads) {
    for (int i = 0; i < threads; i++)
        fiber_start(&fibers[(size_t)i], (unsigned)i);
    for (unsigned round = 0;; round++) {
        int left = 0;
        for (int i = 0; i < threads; i++) { /* forwards, backwards, from the middle on */
            unsigned order = (launches + round) % 3;
            fiber_resume(order == 0 ? i : order == 1 ? threads - 1 - i : (i + threads / 2) % threads);
        }
        bool moved = release(0, threads, true) || warps_release(threads, round);
        if (!moved) moved = warps_release(threads, 0);
        for (int i = 0; i < threads; i++)
            left += !fibers[(size_t)i].ended;
        if (left == 0) return;
        if (!moved) emulator_fail("threads wait for each other for ever");
    }
}

static void shared_check(size_t bytes) {
    const unsigned char *at = (const unsigned char *)emulator_shared + bytes;
    for (size_t i = 0; i < CANARY_BYTES; i++)
        if (at[i] != POISON) emulator_fail("shared memory was overrun");
}

void emulator_launch(const cudaLaunchConfig_t *config, const std::function<void()> &thread) {
    int threads = (int)(config->blockDim.x * config->blockDim.y);
    unsigned blocks = config->gridDim.x * config->gridDim.y;
    if (threads % LANES || threads > THREADS_MAX || blocks == 0 || config->gridDim.y > 65535 ||
        config->dynamicSmemBytes > SHARED_BYTES)
        emulator_fail("a launch that no device takes");
    if (fibers.size() < (size_t)threads) fibers.resize((size_t)threads);
    blockDim = config->blockDim;
    gridDim = config->gridDim;
    body = &thread;
    for (unsigned i = 0; i < blocks; i++) {
        unsigned number = launches % 2 ? blocks - 1 - i : i;
        blockIdx = {number % gridDim.x, number / gridDim.x, 0};
        memset(emulator_shared, POISON, config->dynamicSmemBytes + CANARY_BYTES);
        block_run(threads);
        shared_check(config->dynamicSmemBytes);
    }
    launches++;
}

static cudaError_t device_error = cudaSuccess;

cudaError_t emulator_call(void) {
    if (device_error != cudaSuccess) return device_error;
    return fault_point(FAULT_DEVICE) ? cudaErrorNotSupported : cudaSuccess;
}

/* The runtime's functions that are used: the device's memory is the host's. */
extern "C" {
void emulated_device_fail(cudaError_t error) { device_error = error; }
bool emulated_device_refuses(void) { return emulator_call() != cudaSuccess; }
#define CALL(done)                                                                                                     \
    do {                                                                                                               \
        cudaError_t error = emulator_call();                                                                           \
        if (error != cudaSuccess) return error;                                                                        \
        done;                                                                                                          \
        return cudaSuccess;                                                                                            \
    } while (0)

cudaError_t cudaGetDeviceCount(int *count) { CALL(*count = 1); }
cudaError_t cudaGetDevice(int *device) { CALL(*device = 0); }
/* Shared memory is asked for by who takes what there is: little, so that what does not fit is seen too. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int) {
    if (attribute != cudaDevAttrMaxSharedMemoryPerBlockOptin) emulator_fail("an attribute that is not emulated");
    CALL(*value = 2 << 10);
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "emulated"; }
cudaError_t cudaStreamQuery(cudaStream_t) { CALL(); }
cudaError_t cudaFuncSetAttribute(const void *, enum cudaFuncAttribute, int bytes) {
    if (bytes > SHARED_BYTES) return cudaErrorInvalidValue;
    CALL();
}
cudaError_t cudaMalloc(void **out, size_t bytes) {
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *block) {
    free(block);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind) { CALL(memcpy(to, from, bytes)); }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind, cudaStream_t) {
    CALL(memcpy(to, from, bytes));
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) { CALL(memset(to, value, bytes)); }
cudaError_t cudaDeviceSynchronize(void) { CALL(); }
}
