#include "backend/cpu/matmul/matmul.h"

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/parts.h"
#include "backend/cpu/parallel.h"

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
