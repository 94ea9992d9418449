#include "backend/cpu/matmul_unpack.h"

#include "backend/cpu/cpu_isa.h"

static struct quantized_weight weight_of(const struct matmul_spec *spec, const void *b) {
    int64_t columns = spec->b_k == 1 ? spec->b_column : spec->b_k, rows = spec->n * spec->k / columns;
    struct weight_layout layout = weight_layout_of(spec->b_format, spec->b_block, rows, columns);
    const unsigned char *bytes = b;
    return (struct quantized_weight){
        .format = spec->b_format,
        .block = layout.block,
        .codes = bytes,
        .scales = bytes + layout.scales_at,
        .groups = (const float *)(const void *)(bytes + layout.groups_at),
        .offset = (const float *)(const void *)(bytes + layout.offset_at),
        .zeros = layout.zeros_at > 0 ? (const int8_t *)(bytes + layout.zeros_at) : NULL,
    };
}

void matmul_unpack(const struct matmul_spec *spec, const void *b, const struct matmul_tile *tile, enum dtype to,
                   void *out) {
    const struct quantized_weight weight = weight_of(spec, b);
    bool along = spec->b_k == 1; /* steps are neighbours */
    int64_t lines = along ? tile->columns : tile->steps, count = along ? tile->steps : tile->columns;
    int64_t first = tile->k * spec->b_k + tile->column * spec->b_column;
    int64_t stride = along ? spec->b_column : spec->b_k;
    for (int64_t line = 0; line < lines; line++)
        cpu_simd()->unpack(&weight, first + line * stride, count, spec->dtype, to,
                           (char *)out + line * count * dtype_bytes(to));
}
