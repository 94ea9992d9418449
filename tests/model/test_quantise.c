/* Quantized weights against bitsandbytes (tests/reference/quantised_cases.py). Codes are equal to the bit. The
 * scales of nf4 are compared by value, because bitsandbytes sums their mean in another order. Its CPU release also
 * finds the nearest of 256 numbers with a table that is wrong near the middle between two. */
#include <math.h>
#include <omp.h>
#include <stdio.h>

#include "base/mem.h"
#include "model/quantise.h"
#include "model/safetensors.h"
#include "support/fault_sweep.h"
#include "support/quantized_numbers.h"
#include "support/unit.h"

static const char *const cases[] = {"odd", "whole", "groups"};
enum { CASES = sizeof cases / sizeof *cases };

static struct safetensors *open_cases(void) {
    struct safetensors *set;
    if (safetensors_open(BALLAST_FIXTURES "/quantised/cases.safetensors", &set) != STATUS_OK)
        fail_msg("%s", status_message());
    return set;
}

static const struct safetensors_tensor *part_of(const struct safetensors *set, const char *name, const char *part) {
    char text[64];
    snprintf(text, sizeof text, "%s%s", name, part);
    return safetensors_find(set, text);
}

static void *bytes_of(const struct safetensors *set, const char *name, const char *part) {
    const struct safetensors_tensor *tensor = part_of(set, name, part);
    if (!tensor) fail_msg("no %s%s", name, part);
    void *bytes = mem_array(tensor->bytes, 1);
    assert_non_null(bytes);
    assert_int_equal(safetensors_read(set, tensor, 0, tensor->bytes, bytes), STATUS_OK);
    return bytes;
}

struct stored {
    const struct safetensors *set;
    const struct safetensors_tensor *tensor;
};

static enum status read_stored(const void *payload, int64_t first, int64_t count, float *out) {
    const struct stored *stored = payload;
    return safetensors_convert(stored->set, stored->tensor, (size_t)first, (size_t)count, DTYPE_F32, out);
}

static struct weight_code code_of(const struct safetensors_tensor *matrix, enum weight_format format) {
    return (struct weight_code){format, shape_make(DTYPE_F32, 2, matrix->dims[0], matrix->dims[1], 1), 0};
}

static struct weight_layout layout_of(const struct weight_code *code) { return weight_code_layout(code); }

static unsigned char *quantise(const struct safetensors *set, const char *name, enum weight_format format) {
    const struct stored stored = {set, part_of(set, name, "")};
    struct weight_code code = code_of(stored.tensor, format);
    unsigned char *bytes = mem_array((size_t)layout_of(&code).bytes, 1);
    assert_non_null(bytes);
    if (quantise_weight(&code, &(struct number_source){read_stored, &stored}, bytes) != STATUS_OK)
        fail_msg("%s: %s", name, status_message());
    return bytes;
}

/* That a section holds the bytes of the fixture's tensor. */
static void check_section(const struct safetensors *set, const char *name, const char *part,
                          const unsigned char *found) {
    void *expected = bytes_of(set, name, part);
    const unsigned char *wanted = expected;
    for (size_t i = 0; i < part_of(set, name, part)->bytes; i++)
        if (wanted[i] != found[i]) fail_msg("%s%s: byte %zu is %d, not %d", name, part, i, found[i], wanted[i]);
    mem_free(expected);
}

static void check_floats(const struct safetensors *set, const char *name, const char *part, const unsigned char *found,
                         double bound) {
    float *expected = bytes_of(set, name, part), value;
    for (size_t i = 0; i < part_of(set, name, part)->elements; i++) {
        memcpy(&value, found + 4 * i, sizeof value);
        if (!(fabs((double)value - (double)expected[i]) <= bound * fabs((double)expected[i])))
            fail_msg("%s%s: number %zu is %.9g, not %.9g", name, part, i, (double)value, (double)expected[i]);
    }
    mem_free(expected);
}

/* How many are one number of the map away; none may be further. */
static int count_neighbours(const struct safetensors *set, const char *name, const unsigned char *found) {
    unsigned char *expected = bytes_of(set, name, ".nf4.scales");
    int neighbours = 0;
    for (size_t i = 0; i < part_of(set, name, ".nf4.scales")->elements; i++) {
        int apart = abs(found[i] - expected[i]);
        if (apart > 1) fail_msg("%s: scale %zu is %d, not %d", name, i, found[i], expected[i]);
        neighbours += apart;
    }
    mem_free(expected);
    return neighbours;
}

static void nf4_has_the_codes_of_bitsandbytes(void **state) {
    (void)state;
    struct safetensors *set = open_cases();
    for (int i = 0; i < CASES; i++) {
        struct weight_code code = code_of(part_of(set, cases[i], ""), WEIGHT_NF4);
        struct weight_layout layout = layout_of(&code);
        unsigned char *found = quantise(set, cases[i], WEIGHT_NF4);
        check_section(set, cases[i], ".nf4", found);
        check_floats(set, cases[i], ".nf4.groups", found + layout.groups_at, 1e-6);
        check_floats(set, cases[i], ".nf4.offset", found + layout.offset_at, 1e-6);
        int neighbours = count_neighbours(set, cases[i], found + layout.scales_at);
        print_message("%s: %d of %d scales at the number next to\n", cases[i], neighbours, (int)layout.scales);
        assert_true(neighbours * 100 <= layout.scales);
        mem_free(found);
    }
    safetensors_close(set);
}

static void int8_has_the_bytes_of_bitsandbytes(void **state) {
    (void)state;
    struct safetensors *set = open_cases();
    for (int i = 0; i < CASES; i++) {
        struct weight_code code = code_of(part_of(set, cases[i], ""), WEIGHT_INT8);
        unsigned char *found = quantise(set, cases[i], WEIGHT_INT8);
        check_section(set, cases[i], ".int8", found);
        check_section(set, cases[i], ".int8.scales", found + layout_of(&code).scales_at);
        mem_free(found);
    }
    safetensors_close(set);
}

static void mxfp4_follows_the_specification(void **state) {
    (void)state;
    struct safetensors *set = open_cases();
    int seen = 0;
    for (int i = 0; i < CASES; i++) {
        struct weight_code code = code_of(part_of(set, cases[i], ""), WEIGHT_MXFP4);
        if (!weight_format_fits(WEIGHT_MXFP4, 0, code.values.dims[1])) continue;
        unsigned char *found = quantise(set, cases[i], WEIGHT_MXFP4);
        check_section(set, cases[i], ".mxfp4", found);
        check_section(set, cases[i], ".mxfp4.scales", found + layout_of(&code).scales_at);
        mem_free(found);
        seen++;
    }
    assert_int_equal(seen, CASES - 1);
    safetensors_close(set);
}

static void the_bytes_are_the_same_on_any_number_of_threads(void **state) {
    (void)state;
    struct safetensors *set = open_cases();
    int threads = omp_get_max_threads();
    for (enum weight_format format = WEIGHT_NF4; !weight_format_has_groups(format); format++) {
        struct weight_code code = code_of(part_of(set, "groups", ""), format);
        omp_set_num_threads(1);
        unsigned char *one = quantise(set, "groups", format);
        for (int count = 2; count <= 5; count++) {
            omp_set_num_threads(count);
            unsigned char *other = quantise(set, "groups", format);
            assert_memory_equal(one, other, (size_t)layout_of(&code).bytes);
            mem_free(other);
        }
        mem_free(one);
    }
    omp_set_num_threads(threads);
    safetensors_close(set);
}

/* Pieces of these bytes, the last one first where `backwards`. */
static void quantise_pieces(const struct weight_code *code, const struct stored *stored, int64_t max, bool backwards,
                            unsigned char *out) {
    struct quantiser *quantiser;
    int64_t all = layout_of(code).bytes, pieces = (all + max - 1) / max;
    assert_int_equal(quantiser_open(code, &(struct number_source){read_stored, stored}, &quantiser), STATUS_OK);
    const struct weight_source source = quantiser_source(quantiser);
    memset(out, 0xA5, (size_t)all);
    for (int64_t i = 0; i < pieces; i++) {
        int64_t at = (backwards ? pieces - 1 - i : i) * max, count = all - at < max ? all - at : max;
        assert_int_equal(source.read(source.payload, &(struct weight_piece){at, count, out + at}), STATUS_OK);
    }
    quantiser_close(quantiser);
}

static void pieces_are_those_of_the_whole(void **state) {
    (void)state;
    struct safetensors *set = open_cases();
    for (int i = 0; i < CASES; i++)
        for (enum weight_format format = WEIGHT_NF4; !weight_format_has_groups(format); format++) {
            const struct stored stored = {set, part_of(set, cases[i], "")};
            struct weight_code code = code_of(stored.tensor, format);
            if (!weight_format_fits(format, 0, code.values.dims[1])) continue;
            int64_t bytes = layout_of(&code).bytes;
            unsigned char *whole = quantise(set, cases[i], format), *other = mem_array((size_t)bytes, 1);
            assert_non_null(other);
            const int64_t sizes[] = {bytes / 3 + 1, bytes / 11 + 1};
            for (int p = 0; p < 4; p++) {
                quantise_pieces(&code, &stored, sizes[p / 2], p % 2, other);
                assert_memory_equal(whole, other, (size_t)bytes);
            }
            mem_free(whole);
            mem_free(other);
        }
    safetensors_close(set);
}

/* 1000 numbers, of which one is not finite where the payload says so. */
static enum status read_numbers(const void *payload, int64_t first, int64_t count, float *out) {
    int64_t wrong = *(const int64_t *)payload;
    for (int64_t i = 0; i < count; i++)
        out[i] = first + i == wrong ? NAN : (float)(first + i - 500);
    return STATUS_OK;
}

static void a_number_that_is_not_finite_is_refused(void **state) {
    (void)state;
    unsigned char bytes[8192];
    for (enum weight_format format = WEIGHT_NF4; !weight_format_has_groups(format); format++) {
        struct weight_code code = {format, shape_make(DTYPE_F32, 2, 10, 128, 1), 0};
        int64_t wrong = 777;
        assert_true((size_t)layout_of(&code).bytes <= sizeof bytes);
        assert_int_equal(quantise_weight(&code, &(struct number_source){read_numbers, &wrong}, bytes),
                         STATUS_BAD_INPUT);
        assert_non_null(strstr(status_message(), "not finite"));
        wrong = -1;
        assert_int_equal(quantise_weight(&code, &(struct number_source){read_numbers, &wrong}, bytes), STATUS_OK);
    }
}

static void each_number_is_near_its_own(void **state) {
    (void)state;
    int64_t none = -1;
    /* Of the largest number of a block or row: half of the widest gap, and what the scale is off by. */
    static const double bounds[] = {
        [WEIGHT_NF4] = 0.18, [WEIGHT_NF4_WIDE] = 0.16, [WEIGHT_INT8] = 0.51 / 127, [WEIGHT_MXFP4] = 0.26};
    unsigned char bytes[8192];
    for (enum weight_format format = WEIGHT_NF4; !weight_format_has_groups(format); format++) {
        struct weight_code code = {format, shape_make(DTYPE_F32, 2, 10, 128, 1), 0};
        struct weight_layout layout = layout_of(&code);
        assert_int_equal(quantise_weight(&code, &(struct number_source){read_numbers, &none}, bytes), STATUS_OK);
        for (int64_t i = 0; i < 1280; i++) {
            double number = (double)(i - 500), first = (double)(i / layout.block * layout.block - 500);
            double largest = fmax(fabs(first), fabs(first + (double)layout.block - 1));
            if (!(fabs((double)quantized_number(&layout, bytes, i) - number) <= bounds[format] * largest))
                fail_msg("%s: number %g became %g", weight_format_name(format), number,
                         (double)quantized_number(&layout, bytes, i));
        }
    }
}

static enum status quantise_again(void *payload) {
    unsigned char bytes[8192];
    struct weight_code code = {WEIGHT_NF4, shape_make(DTYPE_F32, 2, 10, 128, 1), 0};
    return quantise_weight(&code, &(struct number_source){read_numbers, payload}, bytes);
}

static void failures_of_memory_are_reported(void **state) {
    (void)state;
    int64_t none = -1;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, quantise_again, &none) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nf4_has_the_codes_of_bitsandbytes),
        cmocka_unit_test(int8_has_the_bytes_of_bitsandbytes),
        cmocka_unit_test(mxfp4_follows_the_specification),
        cmocka_unit_test(the_bytes_are_the_same_on_any_number_of_threads),
        cmocka_unit_test(pieces_are_those_of_the_whole),
        cmocka_unit_test(a_number_that_is_not_finite_is_refused),
        cmocka_unit_test(each_number_is_near_its_own),
        cmocka_unit_test(failures_of_memory_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
