/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* The packed GEMM over several chunks in each direction, in all layouts, against sums in double. */
#include "support/unit.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/parts.h"
#include "base/half.h"
#include "base/mem.h"

/* Just above a chunk, and no whole number of panels or vectors: sums wait for a second chunk of steps in fp32, and are
 * made in one chunk in bf16. */
enum { M = 1035, N_WAITING = 2389, K_WAITING = 1031, N_AT_ONCE = 1207, K_AT_ONCE = 1021, SAMPLES = 500 };

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
    int64_t n = dtype == DTYPE_F32 ? N_WAITING : N_AT_ONCE, k = dtype == DTYPE_F32 ? K_WAITING : K_AT_ONCE;
    return (struct matmul_spec){
        .m = M,
        .n = n,
        .k = k,
        .a_row = a_by_rows ? k : 1,
        .a_k = a_by_rows ? 1 : M,
        .b_k = b_by_rows ? n : 1,
        .b_column = b_by_rows ? 1 : k,
        .c_row = n,
        .addend_row = n,
        .dtype = dtype,
        .out_dtype = DTYPE_F32,
        .bias = true,
    };
}

static double expected(const struct matmul_spec *spec, int64_t row, int64_t column) {
    double sum = (double)value_at(column) + (double)value_at(row * spec->n + column);
    for (int64_t k = 0; k < spec->k; k++)
        sum += (double)value_at(row * spec->a_row + k * spec->a_k) *
               (double)value_at(k * spec->b_k + column * spec->b_column);
    return sum;
}

static float *multiply(const struct matmul_spec *spec, int threads) {
    omp_set_num_threads(threads);
    struct packed_matmul matmul;
    packed_matmul_init(spec, threads, &matmul);
    void *a = values(spec->dtype, M * spec->k), *b = values(spec->dtype, spec->k * spec->n);
    void *bias = values(spec->dtype, spec->n);
    float *c = values(DTYPE_F32, M * spec->n);
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
    int64_t n = spec->n;
    assert_memory_equal(c, alone, (size_t)(M * n) * sizeof *c);
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t at = i < 2 ? i * (M * n - 1) : i * 104729 % (M * n);
        double want = expected(spec, at / n, at % n);
        if (fabs((double)c[at] - want) > 1e-3)
            fail_msg("c[%lld][%lld] is %g, not %g", (long long)(at / n), (long long)(at % n), (double)c[at], want);
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

/* Values whose sums are rounded. */
static void *rough_values(enum dtype dtype, int64_t count) {
    void *all = mem_array((size_t)count, sizeof(float));
    assert_non_null(all);
    for (int64_t i = 0; i < count; i++) {
        float value = sinf((float)(i % 100003));
        if (dtype == DTYPE_BF16)
            ((uint16_t *)all)[i] = bf16_from_float(value);
        else
            ((float *)all)[i] = value;
    }
    return all;
}

/* Of these, chunks of few rows hold all columns, and so fewer steps than those of many rows. */
static int64_t rough_columns(enum dtype dtype) { return dtype == DTYPE_F32 ? 1000 : 700; }

/* by_rows: as in layout(). c has so many rows. */
static float *multiply_rough(enum dtype dtype, const void *a, const void *b, int64_t rows, int64_t k, bool a_by_rows,
                             bool b_by_rows) {
    struct matmul_spec spec = layout(dtype, a_by_rows, b_by_rows);
    struct packed_matmul matmul;
    spec.m = rows, spec.n = rough_columns(dtype), spec.k = k, spec.bias = false, spec.addend_row = 0;
    spec.a_row = a_by_rows ? k : 1, spec.b_k = b_by_rows ? spec.n : 1, spec.b_column = b_by_rows ? 1 : k;
    spec.c_row = spec.n;
    packed_matmul_init(&spec, 2, &matmul);
    float *c = mem_array((size_t)(rows * spec.n), sizeof *c);
    char *workspace = mem_array((size_t)packed_matmul_workspace_bytes(&matmul) + 64, 1);
    assert_true(c && workspace);
    packed_matmul_run(&matmul, &(struct matmul_operands){.a = a, .b = b, .c = c},
                      workspace + (64 - (uintptr_t)workspace % 64) % 64);
    mem_free(workspace);
    return c;
}

static void check_few_rows(enum dtype dtype) {
    static const int64_t rows[] = {17, 77, 300}, steps[] = {K_AT_ONCE, 2100};
    int64_t columns = rough_columns(dtype);
    void *a = rough_values(dtype, M * steps[1]), *b = rough_values(dtype, columns * steps[1]);
    for (int variant = 0; variant < 8; variant++) {
        int64_t k = steps[variant >> 2];
        float *many = multiply_rough(dtype, a, b, M, k, variant & 1, variant & 2);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            float *few = multiply_rough(dtype, a, b, rows[i], k, variant & 1, variant & 2);
            assert_memory_equal(few, many, (size_t)(rows[i] * columns) * sizeof *few);
            mem_free(few);
        }
        mem_free(many);
    }
    mem_free(a), mem_free(b);
}

/* Where there are few rows, a weight may be packed as a instead of b, and chunks are smaller. */
static void few_rows_have_the_bits_of_many(void **state) {
    (void)state;
    assert_int_equal(cpu_isa_check(), STATUS_OK);
    omp_set_num_threads(2);
    check_few_rows(DTYPE_BF16);
    check_few_rows(DTYPE_F32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_add_up),
        cmocka_unit_test(few_rows_have_the_bits_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
