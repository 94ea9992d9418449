/* Kernels, oneDNN included, allocate nothing when they run. The test counts every malloc of the process. */
/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <stdatomic.h>
#include <stdlib.h>

#include "support/op_instance.h"
#include "support/unit.h"

/* A sanitizer has its own malloc; LLVM's OpenMP runtime, which clang brings, allocates for each parallel region. */
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__) || !defined(__GLIBC__)
#define CANNOT_COUNT 1
#else
#define CANNOT_COUNT 0
#endif

static atomic_long allocations;

#if !CANNOT_COUNT
/* glibc lets a program define the malloc family over its own (its manual, "Replacing malloc"). */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes) {
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes) {
    allocations++;
    return __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    allocations++;
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    *out = aligned_alloc(alignment, bytes);
    return *out ? 0 : 12;
}
#endif

static void check(const struct op_case *op_case, enum dtype dtype) {
    struct op_instance instance;
    if (op_instance_create(op_case_build(op_case, dtype, &op_case->sizes), &instance) != STATUS_OK)
        fail_msg("%s: %s", op_case->name, status_message());
    op_instance_fill(&instance, 5);
    op_instance_run_all(&instance);
    long before = allocations;
    op_instance_run_all(&instance);
    long made = allocations - before;
    if (made != 0) fail_msg("%s in %s: %ld allocations in its second run", op_case->name, dtype_name(dtype), made);
    op_instance_free(&instance);
}

static void calls_allocate_nothing(void **state) {
    (void)state;
    if (CANNOT_COUNT) unit_skip("sanitizers and LLVM's OpenMP allocate too; needs a plain build by gcc");
    long before = allocations;
    void *volatile block = malloc(1);
    free(block);
    assert_int_equal(allocations - before, 1);
    for (int i = 0; i < op_case_count; i++) {
        check(&op_cases[i], DTYPE_F32);
        check(&op_cases[i], DTYPE_BF16);
    }
}

int main(void) {
    backend_cpu.set_threads(2);
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_allocate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
