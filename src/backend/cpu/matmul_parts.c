#include "backend/cpu/matmul_parts.h"

#include <stddef.h>

#include "backend/cpu/cpu_isa.h"

enum { LINE_BYTES = 64 };

void matmul_fetch(const struct matmul_spec *spec, const struct matmul_operands *operands,
                  const struct matmul_part *part) {
    int64_t bytes = part->columns * dtype_bytes(spec->out_dtype);
    for (int64_t row = part->row; row < part->row + part->rows; row++) {
        const char *c = element_at(operands->c, spec->out_dtype, row * spec->c_row + part->column);
        for (int64_t i = 0; i < bytes; i += LINE_BYTES)
            __builtin_prefetch(c + i, 1, 2);
    }
}

static const void *element_or_null(const void *data, enum dtype dtype, int64_t index) {
    return data ? element_at(data, dtype, index) : NULL;
}

struct gemm_result matmul_result(const struct matmul_spec *spec, const struct matmul_operands *operands,
                                 const struct matmul_part *part) {
    return (struct gemm_result){
        .rows = part->rows,
        .columns = part->columns,
        .bias_dtype = spec->dtype,
        .dtype = spec->out_dtype,
        .bias = element_or_null(operands->bias, spec->dtype, part->column),
        .addend = element_or_null(operands->addend, spec->out_dtype, part->row * spec->addend_row + part->column),
        .addend_row = spec->addend_row,
        .c = (void *)element_at(operands->c, spec->out_dtype, part->row * spec->c_row + part->column),
        .c_row = spec->c_row,
    };
}

void matmul_finish(const struct matmul_spec *spec, const struct matmul_operands *operands,
                   const struct matmul_part *part, const float *sums, int64_t sums_row) {
    struct gemm_result result = matmul_result(spec, operands, part);
    cpu_simd()->gemm_finish(&result, sums, sums_row);
}
