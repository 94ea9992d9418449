/* Filling a large quantized weight (whole, a shard's run, a rank's part) needs memory for pieces of it, and never
 * for all of it. */
#include <malloc.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/mem.h"
#include "ir/weight_format.h"
#include "model/quantise.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* has memory of its own */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

/* Quantized in 4 bits the weight takes more than twice the limit, of which pieces, windows and scales take 3 to 3.5 MiB
 * with two threads. */
enum { SIDE = 4096, LIMIT_BYTES = 4 << 20 };

static enum status draw(const void *payload, int64_t first, int64_t count, float *out) {
    (void)payload;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)((uint32_t)(first + i) * 2654435761u >> 8) * 0x1p-24f - 0.5f;
    return STATUS_OK;
}

/* In bytes. */
static int64_t data_bytes(void) {
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    char line[256];
    long long kibibytes = 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "VmData:", 7) == 0) sscanf(line + 7, "%lld", &kibibytes);
    fclose(file);
    return kibibytes * 1024;
}

/* What the process may allocate from now on; below 0: anything. */
static void allow(int64_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)(data_bytes() + bytes);
#ifndef SANITIZED
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
#endif
}

/* A store that has what is written in memory that was there before. */
struct written {
    unsigned char *bytes;
    int64_t next; /* byte of the tensor */
    int64_t first;
};

static enum status write_store(void *payload, const void *key, int64_t offset, int64_t bytes, const void *from) {
    struct written *written = payload;
    (void)key;
    assert_true(bytes <= BYTE_STORE_PIECE);
    assert_int_equal(offset, written->next);
    memcpy(written->bytes + (offset - written->first), from, (size_t)bytes);
    written->next += bytes;
    return STATUS_OK;
}

typedef enum status fill_target(const struct weight_target *target, const void *payload);

static enum status fill_by_quantising(const struct weight_target *target, const void *payload) {
    return quantized_weight_quantise(target, &(struct number_source){draw, payload});
}

static enum status fill_from_files(const struct weight_target *target, const void *payload) {
    return quantized_weight_read(target, payload);
}

/* Bytes [first, first + elements) of a tensor to a store within the limit: those of all of it in memory. */
static void check_run(const struct tensor *tensor, int64_t first, int64_t elements, fill_target *fill,
                      const void *payload) {
    unsigned char *all = mem_array((size_t)shape_bytes(&tensor->shape), 1), *buffer = mem_array((size_t)elements, 1);
    assert_non_null(all);
    assert_non_null(buffer);
    const struct weight_target whole = weight_whole(tensor, DTYPE_U8, all);
    if (fill(&whole, payload) != STATUS_OK) fail_msg("%s", status_message());
    struct written written = {.bytes = buffer, .first = first, .next = first};
    const struct byte_store store = {.write = write_store, .payload = &written};
    const struct weight_target target = {.tensor = tensor,
                                         .first = first,
                                         .elements = elements,
                                         .dtype = DTYPE_U8,
                                         .store = &store,
                                         .stored_as = tensor};
    allow(LIMIT_BYTES);
    enum status status = fill(&target, payload);
    allow(-1);
    if (status != STATUS_OK) fail_msg("%s: %s", weight_format_name(tensor->code.format), status_message());
    assert_int_equal(written.next, first + elements);
    assert_memory_equal(all + first, buffer, (size_t)elements);
    mem_free(all);
    mem_free(buffer);
}

static void check_whole(enum weight_format format, fill_target *fill, const void *payload) {
    const struct weight_code code = {format, shape_make(DTYPE_F32, 2, SIDE, SIDE, 1), 0};
    int64_t bytes = weight_code_layout(&code).bytes, half = weight_code_layout(&code).codes_bytes / 2;
    struct tensor tensor = {.name = "w.weight", .shape = shape_make(DTYPE_U8, 1, bytes, 1, 1), .code = code};
    check_run(&tensor, 0, bytes, fill, payload);
    check_run(&tensor, half, bytes - half, fill, payload);
}

/* The second of two parts along a dimension. */
static void check_part(enum weight_format format, int dimension, fill_target *fill, const void *payload) {
    const struct shape values = shape_make(DTYPE_F32, 2, SIDE, SIDE, 1);
    struct weight_code code = {weight_part_format(format), values, 0};
    code.values.dims[dimension] = SIDE / 2;
    const struct tensor_part part = {
        .whole = values, .whole_format = format, .count = 1, .cuts = {{dimension, {0}, 1, 2}}};
    struct tensor tensor = {.name = "w.weight", .part = &part, .code = code};
    tensor.shape = shape_make(DTYPE_U8, 1, weight_code_layout(&code).bytes, 1, 1);
    check_run(&tensor, 0, tensor.shape.dims[0], fill, payload);
}

static void quantising_holds_pieces(void **state) {
    (void)state;
    check_whole(WEIGHT_NF4, fill_by_quantising, NULL);
    check_whole(WEIGHT_INT8, fill_by_quantising, NULL);
    check_part(WEIGHT_NF4, 0, fill_by_quantising, NULL);
    check_part(WEIGHT_NF4, 1, fill_by_quantising, NULL);
    check_part(WEIGHT_INT8, 1, fill_by_quantising, NULL);
    check_part(WEIGHT_MXFP4, 0, fill_by_quantising, NULL);
}

/* Bytes that mean nothing, with scales, as compressed-tensors has mxfp4. */
static void write_mxfp4(const char *path) {
    int64_t codes = (int64_t)SIDE * SIDE / 2, scales = (int64_t)SIDE * SIDE / 32, bytes = codes + scales;
    char header[512];
    snprintf(header, sizeof header,
             "{\"w.weight_packed\":{\"dtype\":\"U8\",\"shape\":[%d,%d],\"data_offsets\":[0,%lld]},"
             "\"w.weight_scale\":{\"dtype\":\"U8\",\"shape\":[%d,%d],\"data_offsets\":[%lld,%lld]}}",
             SIDE, SIDE / 2, (long long)codes, SIDE, SIDE / 32, (long long)codes, (long long)bytes);
    weight_file_write(path, header, (size_t)bytes);
}

static void reading_holds_pieces(void **state) {
    const char *path = temp_path(*state, "model.safetensors");
    struct safetensors *set;
    write_mxfp4(path);
    if (safetensors_open(path, &set) != STATUS_OK) fail_msg("%s", status_message());
    check_whole(WEIGHT_MXFP4, fill_from_files, set);
    check_part(WEIGHT_MXFP4, 0, fill_from_files, set);
    check_part(WEIGHT_MXFP4, 1, fill_from_files, set);
    safetensors_close(set);
}

int main(void) {
    omp_set_num_threads(2);
    mallopt(M_MMAP_THRESHOLD, 1 << 16); /* what was freed is no space for what comes */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantising_holds_pieces),
        cmocka_unit_test_setup_teardown(reading_holds_pieces, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
