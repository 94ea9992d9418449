/* Converts elements of a tensor to another dtype. */
#include <string.h>

#include "base/half.h"
#include "base/wide_vectors.h"
#include "model/safetensors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian and used in place");

static const struct {
    const char *name;
    size_t bits;
} dtypes[] = {[SAFETENSORS_UNKNOWN] = {"", 0},
#define DTYPE_ROW(name, bits) [SAFETENSORS_##name] = {#name, bits},
              SAFETENSORS_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

enum safetensors_dtype safetensors_dtype_find(const char *name) {
    for (size_t i = 1; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0) return (enum safetensors_dtype)i;
    return SAFETENSORS_UNKNOWN;
}

size_t safetensors_dtype_bits(enum safetensors_dtype dtype) { return dtypes[dtype].bits; }

/* One loop for each pair of dtypes. Loads and stores go through memcpy, since nothing aligns the data in a file;
 * without `omp simd` -O2 would leave the loops scalar. */
#define CONVERSION(name, from_type, to_type, converted)                                                                \
    WIDE_VECTORS static void name(const unsigned char *restrict in, size_t count, unsigned char *restrict out) {       \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) {                                                       \
            from_type value;                                                                                           \
            memcpy(&value, in + i * sizeof value, sizeof value);                                                       \
            to_type result = converted;                                                                                \
            memcpy(out + i * sizeof result, &result, sizeof result);                                                   \
        }                                                                                                              \
    }
CONVERSION(f32_to_bf16, float, uint16_t, bf16_from_float(value))
CONVERSION(bf16_to_f32, uint16_t, float, bf16_to_float(value))
CONVERSION(f16_to_f32, uint16_t, float, f16_to_float(value))
CONVERSION(f16_to_bf16, uint16_t, uint16_t, bf16_from_float(f16_to_float(value)))
CONVERSION(f64_to_f32, double, float, (float)value)
CONVERSION(f64_to_bf16, double, uint16_t, bf16_from_float((float)value))
#undef CONVERSION

static const struct conversion {
    enum safetensors_dtype from;
    enum dtype to;
    void (*run)(const unsigned char *in, size_t count, unsigned char *out); /* NULL: the same bytes */
} conversions[] = {
    {SAFETENSORS_F32, DTYPE_F32, NULL},         {SAFETENSORS_F32, DTYPE_BF16, f32_to_bf16},
    {SAFETENSORS_BF16, DTYPE_F32, bf16_to_f32}, {SAFETENSORS_BF16, DTYPE_BF16, NULL},
    {SAFETENSORS_F16, DTYPE_F32, f16_to_f32},   {SAFETENSORS_F16, DTYPE_BF16, f16_to_bf16},
    {SAFETENSORS_F64, DTYPE_F32, f64_to_f32},   {SAFETENSORS_F64, DTYPE_BF16, f64_to_bf16},
    {SAFETENSORS_F64, DTYPE_F64, NULL},         {SAFETENSORS_I32, DTYPE_I32, NULL},
    {SAFETENSORS_U8, DTYPE_U8, NULL},           {SAFETENSORS_U16, DTYPE_U16, NULL},
};

static const struct conversion *find_conversion(enum safetensors_dtype from, enum dtype to) {
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++)
        if (conversions[i].from == from && conversions[i].to == to) return &conversions[i];
    return NULL;
}

bool safetensors_can_convert(enum safetensors_dtype from, enum dtype to) { return find_conversion(from, to) != NULL; }

enum status safetensors_read(const struct safetensors *set, const struct safetensors_tensor *tensor, size_t offset,
                             size_t bytes, void *out) {
    BUG_IF(offset > tensor->bytes || bytes > tensor->bytes - offset, "%s: beyond its end", tensor->name);
    return file_input_read(&set->inputs.items[tensor->input], tensor->offset + offset, bytes, out);
}

void safetensors_expect(const struct safetensors *set, const struct safetensors_tensor *tensor, size_t first,
                        size_t count) {
    size_t element_bytes = safetensors_dtype_bits(tensor->dtype) / 8;
    file_input_expect(&set->inputs.items[tensor->input], tensor->offset + first * element_bytes, count * element_bytes);
}

enum status safetensors_convert(const struct safetensors *set, const struct safetensors_tensor *tensor, size_t first,
                                size_t count, enum dtype to, void *out) {
    const struct conversion *conversion = find_conversion(tensor->dtype, to);
    BUG_IF(!conversion || first > tensor->elements || count > tensor->elements - first, "%s: impossible conversion",
           tensor->name);
    /* Stays in the second level's cache between reading and converting. */
    unsigned char buffer[128 << 10];
    size_t from_bytes = safetensors_dtype_bits(tensor->dtype) / 8, to_bytes = (size_t)dtype_bytes(to);
    if (!conversion->run) return safetensors_read(set, tensor, first * from_bytes, count * from_bytes, out);
    for (size_t done = 0, here; done < count; done += here) {
        here = count - done < sizeof buffer / from_bytes ? count - done : sizeof buffer / from_bytes;
        TRY(safetensors_read(set, tensor, (first + done) * from_bytes, here * from_bytes, buffer));
        conversion->run(buffer, here, (unsigned char *)out + done * to_bytes);
    }
    return STATUS_OK;
}

static enum status compare_bytes(const struct safetensors *set, const struct safetensors_tensor *a,
                                 const struct safetensors_tensor *b, unsigned char *buffer, size_t half, bool *equal) {
    for (size_t at = 0, here; *equal && at < a->bytes; at += here) {
        here = a->bytes - at < half ? a->bytes - at : half;
        TRY(safetensors_read(set, a, at, here, buffer));
        TRY(safetensors_read(set, b, at, here, buffer + half));
        *equal = memcmp(buffer, buffer + half, here) == 0;
    }
    return STATUS_OK;
}

enum status safetensors_equal(const struct safetensors *set, const struct safetensors_tensor *a,
                              const struct safetensors_tensor *b, bool *equal) {
    enum { HALF_BYTES = 1 << 18 };
    bool same = a->dtype == b->dtype && a->rank == b->rank && a->bytes == b->bytes;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i];
    unsigned char *buffer = mem_array(2 * HALF_BYTES, 1);
    enum status status = buffer ? compare_bytes(set, a, b, buffer, HALF_BYTES, &same) : STATUS_FAILED;
    mem_free(buffer);
    if (status == STATUS_OK) *equal = same;
    return status;
}
