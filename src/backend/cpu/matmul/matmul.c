#include "backend/cpu/matmul/matmul.h"

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/parts.h"
#include "backend/cpu/parallel.h"

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

/* ---- the choice ---- */

enum matmul_kind { MATMUL_THIN, MATMUL_BLOCKS, MATMUL_PACKED };

struct matmul {
    enum matmul_kind kind;
    union {
        struct thin_matmul thin;
        struct blocks_matmul blocks;
        struct packed_matmul packed;
    };
};

bool matmul_is_ready(const struct matmul_spec *spec) {
    return spec->dtype == DTYPE_F32 || packed_matmul_has_tiles(spec) || !cpu_has_bf16_dots();
}

/* One that is not oneDNN's. */
static void make(const struct matmul_spec *spec, int threads, struct matmul *matmul) {
    matmul->kind = thin_matmul_fits(spec) ? MATMUL_THIN : MATMUL_PACKED;
    if (matmul->kind == MATMUL_THIN)
        thin_matmul_init(spec, threads, &matmul->thin);
    else
        packed_matmul_init(spec, threads, &matmul->packed);
}

static enum status create(const struct matmul_spec *spec, struct matmul *matmul) {
    bool usable = false;
    if (!matmul_is_ready(spec) && !thin_matmul_fits(spec)) TRY(blocks_matmul_create(spec, &matmul->blocks, &usable));
    matmul->kind = MATMUL_BLOCKS;
    if (!usable) make(spec, parallel_threads(), matmul);
    return STATUS_OK;
}

enum status matmul_create(const struct matmul_spec *spec, struct matmul **out) {
    struct matmul *matmul = mem_array(1, sizeof *matmul);
    if (!matmul) return STATUS_FAILED;
    enum status status = create(spec, matmul);
    if (status != STATUS_OK) {
        mem_free(matmul);
        return status;
    }
    *out = matmul;
    return STATUS_OK;
}

int64_t matmul_workspace_bytes(const struct matmul *matmul) {
    if (!matmul) return 0;
    switch (matmul->kind) {
    case MATMUL_THIN: return thin_matmul_workspace_bytes(&matmul->thin);
    case MATMUL_BLOCKS: return blocks_matmul_workspace_bytes(&matmul->blocks);
    case MATMUL_PACKED: break;
    }
    return packed_matmul_workspace_bytes(&matmul->packed);
}

void matmul_run(const struct matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    switch (matmul->kind) {
    case MATMUL_THIN: thin_matmul_run(&matmul->thin, operands, workspace); return;
    case MATMUL_BLOCKS: blocks_matmul_run(&matmul->blocks, operands, workspace); return;
    case MATMUL_PACKED: packed_matmul_run(&matmul->packed, operands, workspace); return;
    }
}

int64_t matmul_spec_workspace_bytes(const struct matmul_spec *spec, int threads) {
    struct matmul matmul;
    make(spec, threads, &matmul);
    return matmul_workspace_bytes(&matmul);
}

void matmul_run_spec(const struct matmul_spec *spec, int threads, const struct matmul_operands *operands,
                     void *workspace) {
    struct matmul matmul;
    make(spec, threads, &matmul);
    matmul_run(&matmul, operands, workspace);
}

void matmul_free(struct matmul *matmul) {
    if (!matmul) return;
    if (matmul->kind == MATMUL_BLOCKS) blocks_matmul_release(&matmul->blocks);
    mem_free(matmul);
}

int64_t matmul_max_workspace_bytes(struct matmul *const *matmuls, int count) {
    int64_t max = 0;
    for (int i = 0; i < count; i++)
        if (matmul_workspace_bytes(matmuls[i]) > max) max = matmul_workspace_bytes(matmuls[i]);
    return max;
}

void matmul_free_all(struct matmul *const *matmuls, int count) {
    for (int i = 0; i < count; i++)
        matmul_free(matmuls[i]);
}
