/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* Products whose b lies by rows, as oneDNN gets them in panels and beyond, against sums in double. */
#include "support/unit.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/matmul.h"
#include "base/mem.h"

/* No whole number of panels. */
enum { M = 70, N = 131 };

static float value_at(int64_t i) { return (float)(i * 7919 % 64 - 31) / 32.0f; }

static float *values(int64_t count) {
    float *all = mem_array((size_t)count, sizeof *all);
    assert_non_null(all);
    for (int64_t i = 0; i < count; i++)
        all[i] = value_at(i);
    return all;
}

static struct matmul_spec layout(int64_t k, bool a_by_rows) {
    return (struct matmul_spec){
        .m = M,
        .n = N,
        .k = k,
        .a_row = a_by_rows ? k : 1,
        .a_k = a_by_rows ? 1 : M,
        .b_k = N + 1,
        .b_column = 1,
        .c_row = N,
        .addend_row = N,
        .dtype = DTYPE_F32,
        .out_dtype = DTYPE_F32,
        .bias = true,
    };
}

static double expected(const struct matmul_spec *spec, int64_t row, int64_t column) {
    double sum = (double)value_at(column) + (double)value_at(row * N + column);
    for (int64_t k = 0; k < spec->k; k++)
        sum += (double)value_at(row * spec->a_row + k * spec->a_k) * (double)value_at(k * spec->b_k + column);
    return sum;
}

static void check(const struct matmul_spec *spec, const float *c) {
    for (int64_t row = 0; row < M; row++)
        for (int64_t column = 0; column < N; column++) {
            double got = (double)c[row * N + column], want = expected(spec, row, column);
            if (fabs(got - want) > 2e-2)
                fail_msg("c[%lld][%lld] is %g, not %g", (long long)row, (long long)column, got, want);
        }
}

/* The addend lies apart from c, which holds NaN before. */
static void multiply(const struct matmul_spec *spec) {
    struct matmul *matmul;
    assert_int_equal(matmul_create(spec, &matmul), STATUS_OK);
    float *a = values(M * spec->k), *b = values(spec->k * (N + 1)), *bias = values(N), *addend = values(M * N),
          *c = values(M * N);
    size_t bytes = (size_t)matmul_workspace_bytes(matmul);
    char *workspace = mem_array(bytes + 128, 1);
    assert_non_null(workspace);
    memset(workspace, 0xff, bytes + 128);
    memset(c, 0xff, sizeof(float) * M * N);
    char *aligned = workspace + (64 - (uintptr_t)workspace % 64) % 64;
    matmul_run(matmul, &(struct matmul_operands){a, b, bias, addend, c}, aligned);
    for (char *at = aligned + bytes; at < workspace + bytes + 128; at++)
        assert_int_equal(*at, (char)0xff);
    check(spec, c);
    mem_free(workspace);
    mem_free(c);
    mem_free(addend);
    mem_free(bias);
    mem_free(b);
    mem_free(a);
    matmul_free(matmul);
}

static void all_sizes_are_right(void **state) {
    (void)state;
    assert_int_equal(cpu_isa_check(), STATUS_OK);
    static const int64_t depths[] = {1, 16, 1031, 4097};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        for (int by_rows = 0; by_rows < 2; by_rows++) {
            struct matmul_spec spec = layout(depths[i], by_rows);
            multiply(&spec);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sizes_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
