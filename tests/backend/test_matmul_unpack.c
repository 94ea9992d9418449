/* GEMMs with a quantized weight b have the bits of a GEMM with the dequantized weight, on any number of threads.
 * With few rows the latter may read b in place or use another algorithm, and so another order of summation; these
 * cases are compared within rounding. */
/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: avx512 DNNL_MAX_CPU_ISA=AVX512_CORE */
#include <math.h>
#include <omp.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/matmul.h"
#include "backend/cpu/matmul/parts.h"
#include "base/half.h"
#include "base/mem.h"
#include "model/quantise.h"
#include "support/quantized_numbers.h"
#include "support/unit.h"

struct size {
    int64_t m, n, k;
};
/* Odd sizes, whose rows begin within a pair of codes; whole blocks; more than a chunk of rows, columns and steps. */
static const struct size sizes[] = {
    {1, 1, 1},      {3, 5, 7},      {1, 300, 70},    {70, 131, 65},    {100, 40, 33},   {70, 96, 192},
    {65, 2080, 96}, {80, 64, 2080}, {1100, 96, 288}, {77, 1153, 1027}, {8, 1024, 1056}, {129, 320, 64},
};
enum { FEW_ROWS = 64 };

static float value_at(int64_t i) {
    uint32_t bits = (uint32_t)((uint64_t)i * 2654435761u);
    bits ^= bits >> 15;
    bits *= 2246822519u;
    return (float)(int32_t)(bits ^ bits >> 13) * 0x1p-31f;
}

static enum status read_values(const void *payload, int64_t first, int64_t count, float *out) {
    (void)payload;
    for (int64_t i = 0; i < count; i++)
        out[i] = value_at(first + i + 77) * (float)((first + i) / 100 % 7 + 1);
    return STATUS_OK;
}

static void put(enum dtype dtype, void *to, int64_t index, float value) {
    if (dtype == DTYPE_BF16)
        ((uint16_t *)to)[index] = bf16_from_float(value);
    else
        ((float *)to)[index] = value;
}

static float get(enum dtype dtype, const void *from, int64_t index) {
    return dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)from)[index]) : ((const float *)from)[index];
}

static void *multiply(const struct matmul_spec *spec, const void *a, const void *b, int threads, bool *packed) {
    struct matmul *matmul;
    omp_set_num_threads(threads);
    assert_int_equal(matmul_create(spec, &matmul), STATUS_OK);
    void *c = mem_array((size_t)(spec->m * spec->n), sizeof(float));
    void *workspace = mem_aligned(64, (size_t)((matmul_workspace_bytes(matmul) + 64) / 64 * 64));
    assert_non_null(c);
    assert_non_null(workspace);
    matmul_run(matmul, &(struct matmul_operands){.a = a, .b = b, .c = c}, workspace);
    *packed = !thin_matmul_fits(spec) && spec->m > FEW_ROWS;
    mem_free(workspace);
    matmul_free(matmul);
    return c;
}

struct subject {
    struct size size;
    bool along; /* steps are neighbours: b [n][k], else [k][n] */
    enum weight_format format;
    enum dtype dtype;
    int64_t block; /* of integers */
};

static struct matmul_spec spec_of(const struct subject *of) {
    const struct size *size = &of->size;
    return (struct matmul_spec){.m = size->m,
                                .n = size->n,
                                .k = size->k,
                                .a_row = size->k,
                                .a_k = 1,
                                .b_k = of->along ? 1 : size->n,
                                .b_column = of->along ? size->k : 1,
                                .c_row = size->n,
                                .dtype = of->dtype,
                                .out_dtype = DTYPE_F32};
}

/* c holds what rounding in another order makes of it. */
static void check_near(const struct subject *of, const void *a, const void *b, const float *c, const float *expected) {
    struct matmul_spec spec = spec_of(of);
    for (int64_t i = 0; i < spec.m * spec.n; i += 1 + spec.m * spec.n / 200) {
        double magnitude = 0;
        for (int64_t k = 0; k < spec.k; k++)
            magnitude += fabs((double)get(of->dtype, a, i / spec.n * spec.k + k) *
                              (double)get(of->dtype, b, k * spec.b_k + i % spec.n * spec.b_column));
        if (!(fabs((double)c[i] - (double)expected[i]) <= magnitude * (1e-6 + (double)spec.k * 0x1p-26)))
            fail_msg("%s: c[%lld] is %g, not %g", weight_format_name(of->format), (long long)i, (double)c[i],
                     (double)expected[i]);
    }
}

static void check_product(const struct subject *of, const void *a, const void *sections, const void *numbers) {
    struct matmul_spec spec = spec_of(of), quantized = spec;
    size_t bytes = (size_t)(spec.m * spec.n) * sizeof(float);
    bool same_order, packed;
    quantized.b_format = of->format;
    quantized.b_block = of->block;
    float *expected = multiply(&spec, a, numbers, 2, &same_order),
          *first = multiply(&quantized, a, sections, 2, &packed);
    if (same_order && memcmp(expected, first, bytes) != 0)
        fail_msg("%s in %s, %lld x %lld x %lld, %d: other bits than of the numbers", weight_format_name(of->format),
                 dtype_name(of->dtype), (long long)spec.m, (long long)spec.n, (long long)spec.k, of->along);
    check_near(of, a, numbers, first, expected);
    for (int threads = 1; threads <= 7; threads += 3) {
        float *other = multiply(&quantized, a, sections, threads, &packed);
        if (memcmp(first, other, bytes) != 0)
            fail_msg("%s, %lld x %lld x %lld: other bits on %d threads", weight_format_name(of->format),
                     (long long)spec.m, (long long)spec.n, (long long)spec.k, threads);
        mem_free(other);
    }
    mem_free(expected);
    mem_free(first);
}

static void make_sections(const struct weight_code *code, const struct weight_layout *layout, unsigned char *sections) {
    if (weight_format_has_groups(code->format)) return quantized_fill_integers(layout, sections);
    assert_int_equal(quantise_weight(code, &(struct number_source){.read = read_values}, sections), STATUS_OK);
}

/* Of integers: halves of a row's even length, or a row, or all. */
static int64_t block_of(enum weight_format format, int64_t columns, int way) {
    if (!weight_format_has_groups(format)) return 0;
    if (way == 3) return WEIGHT_BLOCK_WHOLE;
    return way == 2 || columns % 2 == 1 ? 0 : columns / 2;
}

static void check_subject(const struct subject *of) {
    int64_t rows = of->along ? of->size.n : of->size.k, columns = of->along ? of->size.k : of->size.n;
    if (!weight_format_fits(of->format, of->block, columns)) return;
    struct weight_code code = {of->format, shape_make(of->dtype, 2, rows, columns, 1), of->block};
    struct weight_layout layout = weight_code_layout(&code);
    unsigned char *sections = mem_array((size_t)layout.bytes, 1);
    void *a = mem_array((size_t)(of->size.m * of->size.k), sizeof(float));
    void *numbers = mem_array((size_t)(rows * columns), sizeof(float));
    assert_non_null(sections);
    assert_non_null(a);
    assert_non_null(numbers);
    make_sections(&code, &layout, sections);
    for (int64_t i = 0; i < of->size.m * of->size.k; i++)
        put(of->dtype, a, i, value_at(i));
    for (int64_t i = 0; i < rows * columns; i++)
        put(of->dtype, numbers, i, quantized_number(&layout, sections, i));
    check_product(of, a, sections, numbers);
    mem_free(sections);
    mem_free(numbers);
    mem_free(a);
}

static void products_of_codes_are_those_of_their_numbers(void **state) {
    (void)state;
    assert_int_equal(cpu_isa_check(), STATUS_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (enum weight_format format = WEIGHT_NF4; format < WEIGHT_FORMAT_COUNT; format++)
            for (int way = 0; way < 4; way++)
                check_subject(&(struct subject){sizes[i], way & 1, format, way & 2 ? DTYPE_BF16 : DTYPE_F32,
                                                block_of(format, way & 1 ? sizes[i].k : sizes[i].n, way)});
}

/* Runs of any beginning and length, in all three ways that numbers are written. */
static void runs_are_the_numbers_one_by_one(void **state) {
    (void)state;
    enum { ROWS = 5, COLUMNS = 96, ALL = ROWS * COLUMNS };
    /* Of mxfp4: numbers that are subnormal, usual, and infinite. */
    static const unsigned char exponents[] = {0, 1, 2, 3, 4, 60, 126, 127, 128, 190, 249, 250, 251, 252, 254};
    assert_int_equal(cpu_isa_check(), STATUS_OK);
    for (enum weight_format format = WEIGHT_NF4; format < WEIGHT_FORMAT_COUNT; format++) {
        unsigned char sections[2048];
        bool groups = weight_format_has_groups(format);
        struct weight_code code = {format, shape_make(DTYPE_F32, 2, ROWS, COLUMNS, 1), groups ? COLUMNS / 4 : 0};
        struct weight_layout layout = weight_code_layout(&code);
        assert_true((size_t)layout.bytes <= sizeof sections);
        make_sections(&code, &layout, sections);
        if (format == WEIGHT_MXFP4) memcpy(sections + layout.scales_at, exponents, sizeof exponents);
        struct quantized_weight weight = {format,
                                          layout.block,
                                          sections,
                                          sections + layout.scales_at,
                                          (const float *)(const void *)(sections + layout.groups_at),
                                          (const float *)(const void *)(sections + layout.offset_at),
                                          layout.zeros_at > 0 ? (const int8_t *)sections + layout.zeros_at : NULL};
        for (int64_t first = 0; first < ALL; first += 7)
            for (int64_t count = 1; first + count <= ALL; count += 11)
                for (int way = 0; way < 3; way++) {
                    uint32_t out[ALL];
                    enum dtype dtype = way ? DTYPE_BF16 : DTYPE_F32, to = way == 2 ? DTYPE_BF16 : DTYPE_F32;
                    cpu_simd()->unpack(&weight, first, count, dtype, to, out);
                    for (int64_t i = 0; i < count; i++) {
                        float wanted = quantized_number(&layout, sections, first + i);
                        if (way) wanted = bf16_to_float(bf16_from_float(wanted));
                        float found = get(to, out, i);
                        assert_memory_equal(&found, &wanted, sizeof wanted);
                    }
                }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_the_numbers_one_by_one),
        cmocka_unit_test(products_of_codes_are_those_of_their_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
