/* A safetensors file: reading, refusals and their messages, conversion, and writing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/half.h"
#include "base/random.h"
#include "model/safetensors.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

static struct safetensors *open_text(const char *header, size_t data_bytes, unsigned char **data) {
    size_t bytes;
    *data = weight_file_bytes(header, data_bytes, &bytes);
    struct safetensors *set;
    if (safetensors_open_memory("memory", *data, bytes, &set) != STATUS_OK) fail_msg("%s", status_message());
    return set;
}

static void a_file_is_read(void **state) {
    (void)state;
    unsigned char *data;
    struct safetensors *set = open_text("{\"__metadata__\":{\"format\":\"pt\"},"
                                        "\"z\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
                                        "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                                        "\"none\":{\"dtype\":\"F64\",\"shape\":[3,0],\"data_offsets\":[28,28]},"
                                        "\"one\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[28,29]},"
                                        "\"new\":{\"dtype\":\"F3_X\",\"shape\":[7],\"data_offsets\":[29,31]}}  ",
                                        31, &data);
    static const char *const names[] = {"a", "new", "none", "one", "z"};
    assert_int_equal(set->tensors.count, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(set->tensors.items[i].name, names[i]);
    const struct safetensors_tensor *z = safetensors_find(set, "z");
    assert_int_equal(z->dtype, SAFETENSORS_F32);
    assert_int_equal(z->rank, 2);
    assert_int_equal(z->dims[1], 3);
    assert_int_equal(z->elements, 6);
    assert_int_equal(z->bytes, 24);
    unsigned char first;
    assert_int_equal(safetensors_read(set, z, 0, 1, &first), STATUS_OK);
    assert_int_equal(first, 4);
    assert_int_equal(safetensors_find(set, "none")->elements, 0);
    assert_int_equal(safetensors_find(set, "one")->elements, 1);
    assert_int_equal(safetensors_find(set, "new")->dtype, SAFETENSORS_UNKNOWN);
    assert_string_equal(safetensors_find(set, "new")->dtype_name, "F3_X");
    assert_false(safetensors_can_convert(SAFETENSORS_UNKNOWN, DTYPE_F32));
    assert_null(safetensors_find(set, "b"));
    char dims[SHAPE_TEXT];
    assert_string_equal(safetensors_print_dims(z, dims), "[2, 3]");
    safetensors_close(set);
    free(data);
}

#define F32(shape, begin, end) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static const struct bad {
    const char *header;
    size_t data_bytes;
    const char *message; /* must be in the message, after the file's name */
} bad[] = {
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {"{", 0, "not valid JSON"},
    {"{}{}", 0, "not valid JSON"},
    {"{\"a\":" F32("[1]", 0, 4) ",\"a\":" F32("[1]", 0, 4) "}", 4, "duplicate"},
    {"{\"a\\u0000b\":" F32("[1]", 0, 4) "}", 4, "not valid JSON"},
    {"{\"a\":3}", 4, "a: must be an object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a: dtype: missing"},
    {"{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a: dtype: missing or not a string"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "a: shape: missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}", 4, "a: shape: missing or not an array"},
    {"{\"a\":" F32("[-1]", 0, 4) "}", 4, "a: shape: dimension 0"},
    {"{\"a\":" F32("[1.0]", 0, 4) "}", 4, "a: shape: dimension 0"},
    {"{\"a\":" F32("[99999999999999999999]", 0, 4) "}", 4, "dimension 0 is not a size"},
    {"{\"a\":" F32("[4294967296,4294967296,4]", 0, 4) "}", 4, "a: shape: more elements"},
    {"{\"a\":" F32("[4611686018427387904]", 0, 4) "}", 4, "a: shape: more bits"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "a: data_offsets: must be two"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8, "a: data_offsets: must be two"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[\"0\",4]}}", 4, "a: data_offsets: must be two"},
    {"{\"a\":" F32("[1]", -4, 0) "}", 4, "a: data_offsets: must be two"},
    {"{\"a\":" F32("[1]", 4, 0) "}", 4, "a: data_offsets: must be two"},
    {"{\"a\":" F32("[2]", 0, 8) "}", 7, "a: data_offsets: ends at byte 8 of the data, but the file holds 7"},
    {"{\"a\":" F32("[2]", 0, 9223372036854775807) "}", 8, "a: data_offsets: ends at byte 9223372036854775807"},
    {"{\"a\":" F32("[3]", 0, 8) "}", 8, "a: data_offsets: 8 bytes, but F32 [3] takes 12"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "a: data_offsets: 1 bytes, but F4 [3]"},
    {"{\"a\":" F32("[2]", 0, 8) ",\"b\":" F32("[1]", 4, 8) "}", 8, "b: data_offsets: overlaps the data of a"},
    {"{\"a\":" F32("[2]", 0, 8) ",\"b\":" F32("[2]", 0, 8) "}", 8, "b: data_offsets: overlaps the data of a"},
    {"{\"a\":" F32("[1]", 0, 4) ",\"b\":" F32("[1]", 8, 12) "}", 12, "b: data_offsets: leaves a hole of 4 bytes"},
    {"{\"a\":" F32("[1]", 4, 8) "}", 8, "a: data_offsets: leaves a hole of 4 bytes"},
    {"{\"a\":" F32("[1]", 0, 4) "}", 6, "the last 2 bytes belong to no tensor"},
    {"{}", 1, "the last 1 bytes belong to no tensor"},
    {"{\"__metadata__\":3}", 0, "__metadata__: must be an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: a: must be a string"},
};

static void assert_refused(const char *path, const char *message) {
    struct safetensors *set;
    enum status status = safetensors_open(path, &set);
    if (status != STATUS_BAD_INPUT) fail_msg("%s: status %d", message, (int)status);
    if (strncmp(status_message(), path, strlen(path)) != 0) fail_msg("does not name the file: %s", status_message());
    if (!strstr(status_message(), message)) fail_msg("\"%s\" is not in: %s", message, status_message());
}

static void bad_headers_are_refused(void **state) {
    const char *path = temp_path(*state, "bad.safetensors");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weight_file_write(path, bad[i].header, bad[i].data_bytes);
        assert_refused(path, bad[i].message);
    }
}

static void bad_lengths_are_refused(void **state) {
    const char *path = temp_path(*state, "bad.safetensors");
    temp_write(path, "", 0);
    assert_refused(path, "0 bytes are too few");
    temp_write(path, "\2\0\0\0\0\0\0", 7);
    assert_refused(path, "7 bytes are too few");
    temp_write(path, "\3\0\0\0\0\0\0\0{}", 10);
    assert_refused(path, "header length: 3 bytes, but the file holds only 2");
    temp_write(path, "\377\377\377\377\377\377\377\377{}", 10);
    assert_refused(path, "more than the limit");
    assert_refused(temp_path(*state, "missing.safetensors"), "cannot open");
    assert_refused(temp_path(*state, "."), "not a regular file");
}

/* Every truncation and every single changed byte of a valid file is either refused or read without harm. */
static void damaged_files_do_no_harm(void **state) {
    (void)state;
    size_t bytes;
    unsigned char *file = weight_file_bytes("{\"a\":" F32("[2]", 0, 8) ",\"b\":{\"dtype\":\"F16\",\"shape\":[3,1],"
                                                                       "\"data_offsets\":[8,14]}}",
                                            14, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        struct safetensors *set;
        unsigned char *part = malloc(cut + 1); /* its own block, so that reading past the end is seen */
        memcpy(part, file, cut);
        assert_int_equal(safetensors_open_memory("cut", part, cut, &set), STATUS_BAD_INPUT);
        free(part);
    }
    uint64_t seed = 99;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t trial = 0; trial < 3000; trial++) {
        uint64_t draw = random_u64(seed, RANDOM_TEST, 0, trial);
        unsigned char *at = file + draw % bytes, kept = *at;
        *at ^= (unsigned char)(1 + (draw >> 32) % 255);
        struct safetensors *set;
        if (safetensors_open_memory("changed", file, bytes, &set) == STATUS_OK) {
            for (size_t i = 0; i < set->tensors.count; i++) {
                const struct safetensors_tensor *tensor = &set->tensors.items[i];
                assert_true(tensor->offset <= bytes && tensor->bytes <= bytes - tensor->offset);
            }
            safetensors_close(set);
        }
        *at = kept;
    }
    free(file);
}

static void deep_nesting_is_refused(void **state) {
    const char *path = temp_path(*state, "deep.safetensors");
    enum { DEPTH = 100000 };
    char *header = malloc(DEPTH + 16);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEPTH);
    header[5 + DEPTH] = '\0';
    weight_file_write(path, header, 0);
    assert_refused(path, "not valid JSON");
    free(header);
}

/* Subnormals, infinities and NaNs too: loops in vectors give what the conversion of one value does. */
static void every_half_is_converted_as_one_is(void **state) {
    (void)state;
    enum { COUNT = 1 << 16 };
    static float found[COUNT];
    static uint16_t halves[COUNT];
    unsigned char *data;
    struct safetensors *set =
        open_text("{\"f16\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}", COUNT * 2, &data);
    const struct safetensors_tensor *tensor = safetensors_find(set, "f16");
    for (uint32_t i = 0; i < COUNT; i++)
        memcpy(data + tensor->offset + 2 * i, &(uint16_t){(uint16_t)i}, 2);
    assert_int_equal(safetensors_convert(set, tensor, 0, COUNT, DTYPE_F32, found), STATUS_OK);
    assert_int_equal(safetensors_convert(set, tensor, 0, COUNT, DTYPE_BF16, halves), STATUS_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(float_bits(found[i]), float_bits(f16_to_float((uint16_t)i)));
        assert_int_equal(halves[i], bf16_from_float(f16_to_float((uint16_t)i)));
    }
    safetensors_close(set);
    free(data);
}

static void conversions_are_exact(void **state) {
    (void)state;
    unsigned char *data;
    /* 1 byte first, so that nothing is aligned; and more elements than a block of the conversion. */
    enum { COUNT = 2500 };
    char header[512];
    snprintf(header, sizeof header,
             "{\"pad\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
             "\"f32\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[1,%d]},"
             "\"bf16\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[%d,%d]},"
             "\"f16\":{\"dtype\":\"F16\",\"shape\":[%d],\"data_offsets\":[%d,%d]},"
             "\"f64\":{\"dtype\":\"F64\",\"shape\":[%d],\"data_offsets\":[%d,%d]}}",
             COUNT, 1 + 4 * COUNT, COUNT, 1 + 4 * COUNT, 1 + 6 * COUNT, COUNT, 1 + 6 * COUNT, 1 + 8 * COUNT, COUNT,
             1 + 8 * COUNT, 1 + 16 * COUNT);
    struct safetensors *set = open_text(header, 1 + 16 * COUNT, &data);
    unsigned char *body = data + safetensors_find(set, "f32")->offset;
    float *wanted = malloc(COUNT * sizeof *wanted), *found = malloc(COUNT * sizeof *found);
    uint16_t *halves = malloc(COUNT * sizeof *halves);
    for (int i = 0; i < COUNT; i++) {
        /* multiples of 1/8 below 256: exact in F16 and F32, rounded in BF16 */
        wanted[i] = (float)(i % 2047 - 1023) / 8;
        double wide = wanted[i];
        uint16_t bf16 = bf16_from_float(wanted[i]);
        uint32_t magnitude = float_bits(fabsf(wanted[i]));
        uint16_t f16 = wanted[i] == 0 ? 0 : (uint16_t)(((magnitude >> 23) - 112) << 10 | (magnitude >> 13 & 0x3ff));
        if (wanted[i] < 0) f16 |= 0x8000;
        memcpy(body + 4 * i, &wanted[i], 4);
        memcpy(body + 4 * COUNT + 2 * i, &bf16, 2);
        memcpy(body + 6 * COUNT + 2 * i, &f16, 2);
        memcpy(body + 8 * COUNT + 8 * i, &wide, 8);
    }
    static const char *const exact[] = {"f32", "f16", "f64"};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(safetensors_convert(set, safetensors_find(set, exact[k]), 0, COUNT, DTYPE_F32, found),
                         STATUS_OK);
        assert_memory_equal(found, wanted, COUNT * sizeof *found);
        assert_int_equal(safetensors_convert(set, safetensors_find(set, exact[k]), 7, COUNT - 7, DTYPE_BF16, halves),
                         STATUS_OK);
        for (int i = 7; i < COUNT; i++)
            assert_int_equal(halves[i - 7], bf16_from_float(wanted[i]));
    }
    assert_int_equal(safetensors_convert(set, safetensors_find(set, "bf16"), 0, COUNT, DTYPE_F32, found), STATUS_OK);
    for (int i = 0; i < COUNT; i++)
        assert_true(found[i] == bf16_to_float(bf16_from_float(wanted[i])));
    assert_int_equal(safetensors_convert(set, safetensors_find(set, "bf16"), COUNT, 0, DTYPE_F32, NULL), STATUS_OK);
    assert_false(safetensors_can_convert(SAFETENSORS_I64, DTYPE_F32));
    assert_false(safetensors_can_convert(SAFETENSORS_F32, DTYPE_I32));
    assert_true(safetensors_can_convert(SAFETENSORS_I32, DTYPE_I32));
    safetensors_close(set);
    free(wanted);
    free(found);
    free(halves);
    free(data);
}

static const float values[6] = {1, -2, 3.5f, -0.0f, 5e-20f, 6};
static const uint16_t halves[3] = {0x3f80, 0xc000, 0x1234};
static const double wide = 1.0 / 3;
static const int32_t whole[2] = {-7, 8};

static enum status write_some(const char *path) {
    struct safetensors_item items[] = {
        {.name = "b", .shape = shape_make(DTYPE_BF16, 1, 3, 1, 1), .data = halves},
        {.name = "z \"quoted\"", .shape = shape_make(DTYPE_F32, 2, 2, 3, 1), .data = values},
        {.name = "d", .shape = shape_make(DTYPE_F64, 0, 1, 1, 1), .data = &wide},
        {.name = "c", .shape = shape_make(DTYPE_I32, 1, 2, 1, 1), .data = whole},
    };
    return safetensors_write(path, items, 4, NULL);
}

static void expect_bytes(const struct safetensors *set, const char *name, const void *expected, size_t bytes) {
    const struct safetensors_tensor *tensor = safetensors_find(set, name);
    assert_int_equal(tensor->bytes, bytes);
    void *found = malloc(bytes);
    assert_int_equal(safetensors_read(set, tensor, 0, bytes, found), STATUS_OK);
    assert_memory_equal(found, expected, bytes);
    free(found);
}

/* A file that somebody cuts short after it was opened is named: it is not mapped. */
static void one_that_is_cut_short_is_named(void **state) {
    enum { COUNT = 3000000 }; /* several pieces */
    const char *path = temp_path(*state, "cut.safetensors");
    float *numbers = calloc(COUNT, sizeof *numbers);
    struct shape shape = shape_make(DTYPE_F32, 1, COUNT, 0, 0);
    const struct safetensors_item item = {.name = "a", .shape = shape, .data = numbers};
    assert_int_equal(safetensors_write(path, &item, 1, NULL), STATUS_OK);
    for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        struct safetensors *set;
        assert_int_equal(safetensors_write(path, &item, 1, NULL), STATUS_OK);
        assert_int_equal(safetensors_open(path, &set), STATUS_OK);
        const struct safetensors_tensor *tensor = safetensors_find(set, "a");
        assert_int_equal(truncate(path, 4 * COUNT / 2), 0);
        struct safetensors_load load = {
            .set = set, .tensor = tensor, .elements = tensor->elements, .dtype = dtype, .out = numbers};
        assert_int_equal(safetensors_load(&load, 1), STATUS_FAILED);
        assert_non_null(strstr(status_message(), path));
        assert_non_null(strstr(status_message(), "was cut short"));
        bool equal;
        assert_int_equal(safetensors_equal(set, tensor, tensor, &equal), STATUS_FAILED);
        safetensors_close(set);
    }
    free(numbers);
}

static void what_is_written_is_read(void **state) {
    const char *path = temp_path(*state, "out.safetensors");
    struct safetensors *set;
    assert_int_equal(write_some(path), STATUS_OK);
    if (safetensors_open(path, &set) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(set->tensors.count, 4);
    expect_bytes(set, "b", halves, sizeof halves);
    expect_bytes(set, "c", whole, sizeof whole);
    expect_bytes(set, "d", &wide, sizeof wide);
    assert_int_equal(safetensors_find(set, "d")->rank, 0);
    const struct safetensors_tensor *z = safetensors_find(set, "z \"quoted\"");
    expect_bytes(set, z->name, values, sizeof values);
    assert_int_equal(z->dims[0], 2);
    /* Each tensor is aligned to its elements. */
    for (size_t i = 0; i < 4; i++) {
        const struct safetensors_tensor *tensor = &set->tensors.items[i];
        assert_int_equal(tensor->offset % (safetensors_dtype_bits(tensor->dtype) / 8), 0);
    }
    safetensors_close(set);

    assert_int_equal(safetensors_write(path, NULL, 0, NULL), STATUS_OK);
    assert_int_equal(safetensors_open(path, &set), STATUS_OK);
    assert_int_equal(set->tensors.count, 0);
    safetensors_close(set);
}

/* Both ways: from an address, and out of a store, which has more than a piece. */
static enum status read_bytes(void *payload, const void *key, int64_t offset, int64_t bytes, void *to) {
    (void)key;
    memcpy(to, (const char *)payload + offset, (size_t)bytes);
    return STATUS_OK;
}

static void what_is_written_is_hashed(void **state) {
    enum { COUNT = (BYTE_STORE_PIECE + 1000) / 4 };
    static float data[COUNT];
    for (int i = 0; i < COUNT; i++)
        data[i] = (float)i;
    struct byte_store store = {.read = read_bytes, .payload = data};
    uint64_t hashes[3] = {0};
    struct shape shape = shape_make(DTYPE_F32, 1, COUNT, 1, 1);
    struct safetensors_item items[] = {
        {.name = "memory", .shape = shape, .data = data, .hash = &hashes[0]},
        {.name = "store", .shape = shape, .store = &store, .hash = &hashes[1]},
        {.name = "none", .shape = shape_make(DTYPE_F32, 1, 0, 1, 1), .data = data, .hash = &hashes[2]},
    };
    assert_int_equal(safetensors_write(temp_path(*state, "hashed.safetensors"), items, 3, NULL), STATUS_OK);
    assert_true(hashes[0] == XXH3_64bits(data, sizeof data) && hashes[1] == hashes[0]);
    assert_true(hashes[2] == XXH3_64bits(data, 0));
}

static void what_is_not_finite_is_not_written(void **state) {
    enum { COUNT = (1 << 18) + 5 };
    static float data[COUNT];
    const char *path = temp_path(*state, "infinite.safetensors");
    struct byte_store store = {.read = read_bytes, .payload = data};
    struct shape shape = shape_make(DTYPE_F32, 1, COUNT, 1, 1);
    struct safetensors_item items[] = {{.name = "memory", .shape = shape, .data = data},
                                       {.name = "store", .shape = shape, .store = &store}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(safetensors_write(path, &items[i], 1, NULL), STATUS_OK);
        data[COUNT - 2] = i ? NAN : -INFINITY;
        assert_int_equal(safetensors_write(path, &items[i], 1, NULL), STATUS_FAILED);
        assert_string_equal(status_message(),
                            i ? "store: value 262147 is not finite" : "memory: value 262147 is not finite");
        assert_int_not_equal(access(path, F_OK), 0);
        data[COUNT - 2] = 0;
    }
}

static enum status write_and_read(void *folder) {
    const char *path = temp_path(folder, "faults.safetensors");
    struct safetensors *set;
    enum status status = write_some(path);
    if (status != STATUS_OK) {
        if (access(path, F_OK) == 0) fail_msg("a partial file is left");
        return status;
    }
    status = safetensors_open(path, &set);
    if (status == STATUS_OK) safetensors_close(set);
    unlink(path);
    return status;
}

static void every_fault_is_reported(void **state) {
    assert_true(fault_sweep(FAULT_ALLOCATE, false, write_and_read, *state) > 5);
    /* Sticky, since jansson's lexer drops a byte where its buffer cannot grow and goes on. */
    json_faults(1);
    assert_true(fault_sweep(FAULT_ALLOCATE, true, write_and_read, *state) > 20);
    json_faults(0);
    assert_true(fault_sweep(FAULT_OPEN, false, write_and_read, *state) == 2);
    assert_true(fault_sweep(FAULT_WRITE, true, write_and_read, *state) >= 1);
    assert_true(fault_sweep(FAULT_SYNC, false, write_and_read, *state) == 1);
    assert_true(fault_sweep(FAULT_SUBMIT, false, write_and_read, *state) == 1);
    /* What kind of file it is, the header's length, the header. */
    assert_int_equal(fault_sweep(FAULT_READ, false, write_and_read, *state), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(bad_lengths_are_refused),
        cmocka_unit_test(damaged_files_do_no_harm),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(every_half_is_converted_as_one_is),
        cmocka_unit_test(conversions_are_exact),
        cmocka_unit_test(one_that_is_cut_short_is_named),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_is_written_is_hashed),
        cmocka_unit_test(what_is_not_finite_is_not_written),
        cmocka_unit_test(every_fault_is_reported),
    };
    return cmocka_run_group_tests_name("safetensors", tests, temp_folder_make, temp_folder_drop);
}
