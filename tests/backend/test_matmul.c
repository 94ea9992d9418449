/* GEMMs in all layouts, at sizes where the algorithm changes (blocks, panels, chunks of steps), against sums in
 * double. The bits are the same on 1 to 16 threads. */
/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: avx512 DNNL_MAX_CPU_ISA=AVX512_CORE */
#include "support/unit.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/matmul.h"
#include "base/half.h"
#include "base/mem.h"

enum { SAMPLES = 300 };
static const int thread_counts[] = {1, 2, 3, 4, 7, 8, 16};

struct size {
    int64_t m, n, k;
};

/* The last eight: as oneDNN divided the sums among threads; a head; LoRA's; more than a chunk of rows and columns;
 * short sides whose other operand is read where it is, and more than a chunk of steps. */
static const struct size sizes[] = {
    {1, 1, 1},    {3, 5, 7},        {1, 300, 70},     {64, 64, 33},   {70, 131, 1},   {70, 131, 4097},
    {100, 40, 8}, {33, 17, 5000},   {300, 515, 40},   {5, 200, 3000}, {768, 8, 2048}, {40, 50257, 17},
    {8, 768, 70}, {1100, 33, 1030}, {17, 2100, 1025}, {7, 272, 2080}, {300, 7, 2080}, {19, 144, 300},
};

enum { A_ROWS, A_GAPS, A_COLUMNS, A_LAYOUTS };
enum { B_ROWS, B_GAPS, B_COLUMNS, B_LAYOUTS };

static struct matmul_spec spec_of(const struct size *size, int a, int b, enum dtype dtype, enum dtype out_dtype) {
    return (struct matmul_spec){
        .m = size->m,
        .n = size->n,
        .k = size->k,
        .a_row = a == A_COLUMNS ? 1 : size->k + (a == A_GAPS ? 3 : 0),
        .a_k = a == A_COLUMNS ? size->m + 1 : 1,
        .b_k = b == B_COLUMNS ? 1 : size->n + (b == B_GAPS ? 1 : 0),
        .b_column = b == B_COLUMNS ? size->k : 1,
        .c_row = size->n + 2,
        .addend_row = size->n + 2,
        .dtype = dtype,
        .out_dtype = out_dtype,
        .bias = true,
    };
}

/* Of many exponents and all bits, so that sums in another order are other sums. */
static float value_at(enum dtype dtype, int64_t i) {
    uint32_t bits = (uint32_t)((uint64_t)i * 2654435761u);
    bits ^= bits >> 15;
    bits *= 2246822519u;
    float value = (float)(int32_t)(bits ^ bits >> 13) * 0x1p-31f;
    return dtype == DTYPE_BF16 ? bf16_to_float(bf16_from_float(value)) : value;
}

static void *values(enum dtype dtype, int64_t count) {
    void *all = mem_array((size_t)count, sizeof(float));
    assert_non_null(all);
    for (int64_t i = 0; i < count; i++) {
        if (dtype == DTYPE_BF16)
            ((uint16_t *)all)[i] = bf16_from_float(value_at(dtype, i));
        else
            ((float *)all)[i] = value_at(dtype, i);
    }
    return all;
}

struct operands {
    void *a, *b, *bias, *addend;
};

static struct operands create_operands(const struct matmul_spec *spec) {
    return (struct operands){values(spec->dtype, (spec->m + 1) * (spec->k + 4)),
                             values(spec->dtype, (spec->n + 1) * (spec->k + 1)), values(spec->dtype, spec->n),
                             values(spec->out_dtype, spec->m * spec->addend_row)};
}

static void free_operands(struct operands *operands) {
    mem_free(operands->a);
    mem_free(operands->b);
    mem_free(operands->bias);
    mem_free(operands->addend);
}

/* c, which holds NaN before, and nothing else is written. */
static void *multiply(const struct matmul_spec *spec, const struct operands *with, int threads) {
    omp_set_num_threads(threads);
    struct matmul *matmul;
    assert_int_equal(matmul_create(spec, &matmul), STATUS_OK);
    size_t c_bytes = (size_t)(spec->m * spec->c_row * dtype_bytes(spec->out_dtype));
    size_t bytes = (size_t)matmul_workspace_bytes(matmul);
    char *c = mem_array(c_bytes, 1), *workspace = mem_array(bytes + 128, 1);
    assert_non_null(c);
    assert_non_null(workspace);
    memset(c, 0xff, c_bytes);
    memset(workspace, 0xff, bytes + 128);
    char *aligned = workspace + (64 - (uintptr_t)workspace % 64) % 64;
    matmul_run(matmul, &(struct matmul_operands){with->a, with->b, with->bias, with->addend, c}, aligned);
    for (char *at = aligned + bytes; at < workspace + bytes + 128; at++)
        assert_int_equal(*at, (char)0xff);
    matmul_free(matmul);
    mem_free(workspace);
    return c;
}

static double read_at(const void *data, enum dtype dtype, int64_t index) {
    return dtype == DTYPE_BF16 ? (double)bf16_to_float(((const uint16_t *)data)[index])
                               : (double)((const float *)data)[index];
}

static void check_values(const struct matmul_spec *spec, const void *c) {
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t at = i * 104729 % (spec->m * spec->n), row = at / spec->n, column = at % spec->n;
        double bias = (double)value_at(spec->dtype, column), want = bias, magnitude = fabs(bias);
        want += (double)value_at(spec->out_dtype, row * spec->addend_row + column);
        for (int64_t k = 0; k < spec->k; k++) {
            double term = (double)value_at(spec->dtype, row * spec->a_row + k * spec->a_k) *
                          (double)value_at(spec->dtype, k * spec->b_k + column * spec->b_column);
            want += term;
            magnitude += fabs(term);
        }
        double got = read_at(c, spec->out_dtype, row * spec->c_row + column);
        double bound =
            magnitude * (1e-6 + (double)spec->k * 0x1p-26) + fabs(want) * (spec->out_dtype == DTYPE_BF16 ? 0x1p-8 : 0);
        if (!(fabs(got - want) <= bound))
            fail_msg("%lld x %lld x %lld: c[%lld][%lld] is %g, not %g", (long long)spec->m, (long long)spec->n,
                     (long long)spec->k, (long long)row, (long long)column, got, want);
    }
}

static void check_spec(const struct matmul_spec *spec) {
    struct operands operands = create_operands(spec);
    void *first = multiply(spec, &operands, 1);
    check_values(spec, first);
    for (size_t i = 1; i < sizeof thread_counts / sizeof *thread_counts; i++) {
        void *other = multiply(spec, &operands, thread_counts[i]);
        if (memcmp(first, other, (size_t)(spec->m * spec->c_row * dtype_bytes(spec->out_dtype))) != 0)
            fail_msg("%lld x %lld x %lld in %s (a by %lld, %lld; b by %lld, %lld): other bits on %d threads",
                     (long long)spec->m, (long long)spec->n, (long long)spec->k, dtype_name(spec->dtype),
                     (long long)spec->a_row, (long long)spec->a_k, (long long)spec->b_k, (long long)spec->b_column,
                     thread_counts[i]);
        mem_free(other);
    }
    mem_free(first);
    free_operands(&operands);
}

static const struct {
    enum dtype dtype, out_dtype;
} dtypes[] = {{DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F32}};

static void all_layouts_are_right_on_any_number_of_threads(void **state) {
    (void)state;
    assert_int_equal(cpu_isa_check(), STATUS_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int layout = 0; layout < A_LAYOUTS * B_LAYOUTS; layout++)
            for (int d = 0; d < 3; d++) {
                struct matmul_spec spec =
                    spec_of(&sizes[i], layout / B_LAYOUTS, layout % B_LAYOUTS, dtypes[d].dtype, dtypes[d].out_dtype);
                check_spec(&spec);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_layouts_are_right_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
