/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* The packed product over several chunks in each direction, in all layouts, against sums in double. */
#include "support/unit.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/matmul_packed.h"
#include "base/half.h"
#include "base/mem.h"

/* Just above a chunk, and no whole number of panels or vectors. */
enum { M = 1035, N = 1187, K = 1031, SAMPLES = 500 };

static float value_at(int64_t i) { return (float)(i * 7919 % 64 - 31) / 32.0f; } /* exact in bf16 */

static void *values(enum dtype dtype, int64_t count) {
    void *all = mem_array((size_t)count, sizeof(float));
    assert_non_null(all);
    for (int64_t i = 0; i < count; i++) {
        if (dtype == DTYPE_BF16)
            ((uint16_t *)all)[i] = bf16_from_float(value_at(i));
        else
            ((float *)all)[i] = value_at(i);
    }
    return all;
}

static struct matmul_spec layout(enum dtype dtype, bool a_by_rows, bool b_by_rows) {
    return (struct matmul_spec){
        .m = M,
        .n = N,
        .k = K,
        .a_row = a_by_rows ? K : 1,
        .a_k = a_by_rows ? 1 : M,
        .b_k = b_by_rows ? N : 1,
        .b_column = b_by_rows ? 1 : K,
        .c_row = N,
        .addend_row = N,
        .dtype = dtype,
        .out_dtype = DTYPE_F32,
        .bias = true,
    };
}

static double expected(const struct matmul_spec *spec, int64_t row, int64_t column) {
    double sum = (double)value_at(column) + (double)value_at(row * N + column);
    for (int64_t k = 0; k < K; k++)
        sum += (double)value_at(row * spec->a_row + k * spec->a_k) *
               (double)value_at(k * spec->b_k + column * spec->b_column);
    return sum;
}

static float *multiply(const struct matmul_spec *spec, int threads) {
    omp_set_num_threads(threads);
    struct packed_matmul matmul;
    packed_matmul_init(spec, &matmul);
    void *a = values(spec->dtype, M * K), *b = values(spec->dtype, K * N), *bias = values(spec->dtype, N);
    float *c = values(DTYPE_F32, M * N);
    size_t bytes = (size_t)packed_matmul_workspace_bytes(&matmul);
    char *workspace = mem_array(bytes + 64, 1);
    assert_non_null(workspace);
    memset(workspace, 0xff, bytes + 64);
    char *aligned = workspace + (64 - (uintptr_t)workspace % 64) % 64;
    packed_matmul_run(&matmul, &(struct matmul_operands){a, b, bias, c, c}, aligned);
    for (char *at = aligned + bytes; at < workspace + bytes + 64; at++)
        assert_int_equal(*at, (char)0xff);
    mem_free(workspace);
    mem_free(bias);
    mem_free(b);
    mem_free(a);
    return c;
}

static void check_layout(const struct matmul_spec *spec) {
    float *c = multiply(spec, 2), *alone = multiply(spec, 1);
    assert_memory_equal(c, alone, (size_t)(M * N) * sizeof *c);
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t at = i < 2 ? i * (M * N - 1) : i * 104729 % (M * N);
        double want = expected(spec, at / N, at % N);
        if (fabs((double)c[at] - want) > 1e-3)
            fail_msg("c[%lld][%lld] is %g, not %g", (long long)(at / N), (long long)(at % N), (double)c[at], want);
    }
    mem_free(alone);
    mem_free(c);
}

static void chunks_add_up(void **state) {
    (void)state;
    assert_int_equal(cpu_isa_check(), STATUS_OK);
    for (int variant = 0; variant < 8; variant++) {
        struct matmul_spec spec = layout(variant & 4 ? DTYPE_BF16 : DTYPE_F32, variant & 1, variant & 2);
        check_layout(&spec);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
