#include <string.h>

#include "base/half.h"
#include "model/safetensors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian and used in place");

/* Values pass through a block of fp32 that stays in the first-level cache. */
enum { BLOCK_ELEMENTS = 1024 };

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

static bool same_dtype(enum safetensors_dtype from, enum dtype to) {
    return (from == SAFETENSORS_F32 && to == DTYPE_F32) || (from == SAFETENSORS_BF16 && to == DTYPE_BF16) ||
           (from == SAFETENSORS_F64 && to == DTYPE_F64) || (from == SAFETENSORS_I32 && to == DTYPE_I32);
}

bool safetensors_can_convert(enum safetensors_dtype from, enum dtype to) {
    bool real =
        from == SAFETENSORS_F32 || from == SAFETENSORS_BF16 || from == SAFETENSORS_F16 || from == SAFETENSORS_F64;
    return same_dtype(from, to) || (real && (to == DTYPE_F32 || to == DTYPE_BF16));
}

/* Loads through memcpy, since nothing aligns the data in a file. */
static void read_block(enum safetensors_dtype from, const unsigned char *in, size_t count, float *out) {
    if (from == SAFETENSORS_F32) {
        memcpy(out, in, count * sizeof *out);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        double wide;
        uint16_t half;
        if (from == SAFETENSORS_F64) {
            memcpy(&wide, in + 8 * i, sizeof wide);
            out[i] = (float)wide;
        } else {
            memcpy(&half, in + 2 * i, sizeof half);
            out[i] = from == SAFETENSORS_BF16 ? bf16_to_float(half) : f16_to_float(half);
        }
    }
}

static void write_block(const float *in, size_t count, enum dtype to, unsigned char *out) {
    if (to == DTYPE_F32) {
        memcpy(out, in, count * sizeof *in);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t half = bf16_from_float(in[i]);
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

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
    BUG_IF(!safetensors_can_convert(tensor->dtype, to) || first > tensor->elements || count > tensor->elements - first,
           "%s: impossible conversion", tensor->name);
    if (count == 0) return;
    size_t from_bytes = safetensors_dtype_bits(tensor->dtype) / 8, to_bytes = (size_t)dtype_bytes(to);
    const unsigned char *in = tensor->data + first * from_bytes;
    if (same_dtype(tensor->dtype, to)) {
        memcpy(out, in, count * to_bytes);
    } else {
        float block[BLOCK_ELEMENTS];
        for (size_t done = 0; done < count; done += BLOCK_ELEMENTS) {
            size_t now = count - done < BLOCK_ELEMENTS ? count - done : BLOCK_ELEMENTS;
            read_block(tensor->dtype, in + done * from_bytes, now, block);
            write_block(block, now, to, (unsigned char *)out + done * to_bytes);
        }
    }
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
