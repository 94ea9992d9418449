/* Parts of quantized weights have the numbers, codes and scales of the whole. No part divides a block. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ir/graph.h"
#include "ir/weight_format.h"
#include "model/quantise.h"
#include "support/quantized_numbers.h"
#include "support/unit.h"

struct subject {
    enum weight_format format;
    int64_t block, rows, columns;
    int dimension;
    int64_t parts;
    struct tensor_segments segments;
    bool fits;
};

/* Rows and columns; segments of rows; numbers that are nowhere; blocks across rows; blocks that would be cut. */
static const struct subject subjects[] = {
    {WEIGHT_NF4, 0, 96, 192, 0, 2, {0}, true},
    {WEIGHT_NF4, 0, 96, 256, 1, 4, {0}, true},
    {WEIGHT_NF4, 0, 96, 192, 1, 2, {0}, false},
    {WEIGHT_NF4, 0, 64, 48, 0, 4, {0}, true},
    {WEIGHT_NF4, 0, 64, 48, 0, 8, {0}, true},
    {WEIGHT_NF4, 0, 36, 48, 0, 4, {0}, false},
    {WEIGHT_NF4, 0, 1100, 64, 0, 3, {0}, true},
    {WEIGHT_NF4, 0, 96, 64, 0, 2, {3, {64, 16, 16}}, true},
    {WEIGHT_NF4, 0, 96, 40, 0, 2, {3, {64, 16, 16}}, true},
    {WEIGHT_NF4, 0, 96, 32, 0, 2, {3, {64, 18, 14}}, false},
    {WEIGHT_NF4_WIDE, 0, 80, 128, 1, 2, {0}, true},
    {WEIGHT_INT8, 0, 37, 53, 0, 3, {0}, true},
    {WEIGHT_INT8, 0, 37, 54, 1, 2, {0}, true},
    {WEIGHT_MXFP4, 0, 24, 96, 1, 3, {0}, true},
    {WEIGHT_MXFP4, 0, 24, 96, 1, 2, {0}, false},
    {WEIGHT_W4A16, 32, 24, 96, 1, 3, {0}, true},
    {WEIGHT_W4A16, 0, 25, 53, 0, 2, {0}, true},
    {WEIGHT_W4A16_ASYM, 0, 25, 54, 1, 2, {0}, true},
    {WEIGHT_W4A16_ASYM, 16, 30, 80, 0, 4, {0}, true},
    {WEIGHT_W8A16, WEIGHT_BLOCK_WHOLE, 12, 53, 0, 3, {0}, true},
    {WEIGHT_W8A16_ASYM, 35, 12, 70, 1, 2, {0}, true},
    {WEIGHT_W8A16_ASYM, 14, 12, 70, 1, 2, {0}, false},
};

static enum status read_values(const void *payload, int64_t first, int64_t count, float *out) {
    (void)payload;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)((first + i) * 7919 % 1009 - 504) * (float)((first + i) / 50 % 11 + 1);
    return STATUS_OK;
}

static unsigned char *make_whole(const struct weight_code *code) {
    struct weight_layout layout = weight_code_layout(code);
    unsigned char *bytes = mem_array((size_t)layout.bytes, 1);
    assert_non_null(bytes);
    if (weight_format_has_groups(code->format))
        quantized_fill_integers(&layout, bytes);
    else
        assert_int_equal(quantise_weight(code, &(struct number_source){.read = read_values}, bytes), STATUS_OK);
    return bytes;
}

/* The whole weight in memory. */
static enum status read_whole(void *payload, const struct weight_piece *piece) {
    memcpy(piece->out, (const unsigned char *)payload + piece->first, (size_t)piece->bytes);
    return STATUS_OK;
}

/* In pieces of so many bytes, the first one first or last. */
static unsigned char *take(const struct tensor *part, const unsigned char *whole, int64_t max, bool backwards) {
    int64_t all = shape_bytes(&part->shape), pieces = (all + max - 1) / max;
    unsigned char *bytes = mem_array((size_t)all, 1);
    struct weight_part_reader *reader;
    assert_non_null(bytes);
    memset(bytes, 0xA5, (size_t)all);
    const struct weight_source source = {read_whole, (void *)(uintptr_t)whole};
    assert_int_equal(weight_part_open(part, source, &reader), STATUS_OK);
    const struct weight_source own = weight_part_source(reader);
    for (int64_t i = 0; i < pieces; i++) {
        int64_t at = (backwards ? pieces - 1 - i : i) * max, count = all - at < max ? all - at : max;
        assert_int_equal(own.read(own.payload, &(struct weight_piece){at, count, bytes + at}), STATUS_OK);
    }
    weight_part_close(reader);
    return bytes;
}

static void check_pieces(const struct subject *of, const struct tensor *part, const unsigned char *whole,
                         const unsigned char *wanted) {
    static const int64_t sizes[] = {1, 7, 1000, 4096};
    for (int i = 0; i < 8; i++) {
        unsigned char *bytes = take(part, whole, sizes[i / 2], i % 2);
        if (memcmp(bytes, wanted, (size_t)shape_bytes(&part->shape)) != 0)
            fail_msg("%s: pieces of %lld bytes are not those of all", weight_format_name(of->format),
                     (long long)sizes[i / 2]);
        mem_free(bytes);
    }
}

static void check_numbers(const struct subject *of, const struct tensor *part, const unsigned char *whole, char *seen) {
    const struct weight_code whole_code = weight_part_whole(part);
    const struct weight_layout layout = weight_code_layout(&part->code), all = weight_code_layout(&whole_code);
    assert_int_equal(layout.bytes, shape_bytes(&part->shape));
    unsigned char *bytes = take(part, whole, layout.bytes, false);
    check_pieces(of, part, whole, bytes);
    struct tensor numbers = *part;
    numbers.shape = part->code.values;
    for (int64_t i = 0, run; i < layout.rows * layout.columns; i++) {
        int64_t from = tensor_part_find(&numbers, i, &run);
        float found = quantized_number(&layout, bytes, i), wanted = 0;
        if (from != TENSOR_NOWHERE) wanted = quantized_number(&all, whole, from), seen[from]++;
        if (from == TENSOR_NOWHERE ? found != 0 : memcmp(&found, &wanted, sizeof found) != 0)
            fail_msg("%s, part %lld of %lld: number %lld is %g, not %g", weight_format_name(of->format),
                     (long long)part->part->cuts[0].part, (long long)of->parts, (long long)i, (double)found,
                     (double)wanted);
    }
    mem_free(bytes);
}

static void check(const struct subject *of) {
    const struct weight_code whole = {of->format, shape_make(DTYPE_F32, 2, of->rows, of->columns, 1), of->block};
    unsigned char *bytes = make_whole(&whole);
    char *seen = mem_array((size_t)(of->rows * of->columns), 1);
    assert_non_null(seen);
    memset(seen, 0, (size_t)(of->rows * of->columns));
    bool fits = true;
    for (int64_t p = 0; p < of->parts; p++) {
        struct weight_code code = {weight_part_format(of->format), whole.values, of->block};
        int64_t *size = &code.values.dims[of->dimension];
        *size = (*size + of->parts - 1) / of->parts;
        struct tensor_part part = {.whole = whole.values,
                                   .whole_format = of->format,
                                   .count = 1,
                                   .cuts = {{of->dimension, of->segments, p, of->parts}}};
        struct tensor tensor = {.name = "w.weight", .part = &part, .code = code};
        if (!weight_format_fits(code.format, code.block, code.values.dims[1]) || !weight_part_fits(&tensor)) {
            fits = false;
            continue;
        }
        tensor.shape = shape_make(DTYPE_U8, 1, weight_code_layout(&code).bytes, 1, 1);
        check_numbers(of, &tensor, bytes, seen);
    }
    if (fits != of->fits)
        fail_msg("%s, %lld x %lld, %lld parts: %s", weight_format_name(of->format), (long long)of->rows,
                 (long long)of->columns, (long long)of->parts, fits ? "fits" : "does not fit");
    for (int64_t i = 0; fits && i < of->rows * of->columns; i++)
        assert_int_equal(seen[i], 1);
    mem_free(seen);
    mem_free(bytes);
}

static void parts_have_the_numbers_of_the_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        check(&subjects[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_have_the_numbers_of_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
