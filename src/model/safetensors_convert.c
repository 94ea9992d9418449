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

static void copy_2(const unsigned char *in, size_t count, unsigned char *out) { memcpy(out, in, 2 * count); }
static void copy_4(const unsigned char *in, size_t count, unsigned char *out) { memcpy(out, in, 4 * count); }
static void copy_8(const unsigned char *in, size_t count, unsigned char *out) { memcpy(out, in, 8 * count); }

static const struct conversion {
    enum safetensors_dtype from;
    enum dtype to;
    void (*run)(const unsigned char *in, size_t count, unsigned char *out);
} conversions[] = {
    {SAFETENSORS_F32, DTYPE_F32, copy_4},       {SAFETENSORS_F32, DTYPE_BF16, f32_to_bf16},
    {SAFETENSORS_BF16, DTYPE_F32, bf16_to_f32}, {SAFETENSORS_BF16, DTYPE_BF16, copy_2},
    {SAFETENSORS_F16, DTYPE_F32, f16_to_f32},   {SAFETENSORS_F16, DTYPE_BF16, f16_to_bf16},
    {SAFETENSORS_F64, DTYPE_F32, f64_to_f32},   {SAFETENSORS_F64, DTYPE_BF16, f64_to_bf16},
    {SAFETENSORS_F64, DTYPE_F64, copy_8},       {SAFETENSORS_I32, DTYPE_I32, copy_4},
};

static const struct conversion *find_conversion(enum safetensors_dtype from, enum dtype to) {
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++)
        if (conversions[i].from == from && conversions[i].to == to) return &conversions[i];
    return NULL;
}

bool safetensors_can_convert(enum safetensors_dtype from, enum dtype to) { return find_conversion(from, to) != NULL; }

static void forget_pages(const struct safetensors *set, const unsigned char *data, size_t bytes) {
    for (size_t i = 0; i < set->maps.count; i++)
        file_map_forget(&set->maps.items[i], data, bytes);
}

void safetensors_expect(const struct safetensors *set, const struct safetensors_tensor *tensor, size_t first,
                        size_t count) {
    size_t element_bytes = safetensors_dtype_bits(tensor->dtype) / 8;
    for (size_t i = 0; i < set->maps.count; i++)
        file_map_expect(&set->maps.items[i], tensor->data + first * element_bytes, count * element_bytes);
}

void safetensors_convert(const struct safetensors *set, const struct safetensors_tensor *tensor, size_t first,
                         size_t count, enum dtype to, void *out) {
    const struct conversion *conversion = find_conversion(tensor->dtype, to);
    BUG_IF(!conversion || first > tensor->elements || count > tensor->elements - first, "%s: impossible conversion",
           tensor->name);
    if (count == 0) return;
    size_t from_bytes = safetensors_dtype_bits(tensor->dtype) / 8;
    const unsigned char *in = tensor->data + first * from_bytes;
    conversion->run(in, count, out);
    forget_pages(set, in, count * from_bytes);
}

bool safetensors_equal(const struct safetensors *set, const struct safetensors_tensor *a,
                       const struct safetensors_tensor *b) {
    if (a->dtype != b->dtype || a->rank != b->rank || a->bytes != b->bytes) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    bool equal = a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0;
    forget_pages(set, a->data, a->bytes);
    forget_pages(set, b->data, b->bytes);
    return equal;
}
