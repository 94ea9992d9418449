#include "backend/cpu/matmul_panels.h"

#include <string.h>

#include "backend/cpu/cpu_kernel.h"

enum { TASK_STEPS = ONEDNN_PANEL_STEPS, TASK_PANELS = 16 };

static int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
static int64_t rounded_up(int64_t value, int64_t multiple) { return divided_up(value, multiple) * multiple; }

enum status panels_matmul_init(const struct matmul_spec *spec, struct panels_matmul *out) {
    *out = (struct panels_matmul){.spec = *spec};
    return onednn_matmul_create(spec, ONEDNN_B_PANELS, &out->onednn);
}

static int64_t panel_count(const struct matmul_spec *spec) { return divided_up(spec->n, ONEDNN_PANEL_COLUMNS); }
static int64_t padded_depth(const struct matmul_spec *spec) { return rounded_up(spec->k, ONEDNN_PANEL_STEPS); }

static int64_t panels_bytes(const struct matmul_spec *spec) {
    return panel_count(spec) * ONEDNN_PANEL_COLUMNS * padded_depth(spec) * 4;
}

int64_t panels_matmul_workspace_bytes(const struct panels_matmul *matmul) {
    return panels_bytes(&matmul->spec) + onednn_matmul_workspace_bytes(matmul->onednn);
}

struct packing {
    const struct matmul_spec *spec;
    const float *b;
    float *to;
};

/* Blocks of TASK_STEPS steps of one panel, numbered along the rows of b, so that a thread reads rows in long pieces. */
static void pack_blocks(const void *context, int64_t begin, int64_t end) {
    const struct packing *packing = context;
    const struct matmul_spec *spec = packing->spec;
    for (int64_t i = begin; i < end; i++) {
        int64_t k = i / panel_count(spec) * TASK_STEPS, panel = i % panel_count(spec);
        int64_t column = panel * ONEDNN_PANEL_COLUMNS, left = spec->k - k;
        int64_t steps = left < TASK_STEPS ? left : TASK_STEPS;
        float *to = packing->to + (panel * padded_depth(spec) + k) * ONEDNN_PANEL_COLUMNS;
        cpu_simd()->gemm_pack(DTYPE_F32, ONEDNN_PANEL_COLUMNS, steps, spec->n - column,
                              packing->b + k * spec->b_k + column, spec->b_k, 1, to);
        memset(to + steps * ONEDNN_PANEL_COLUMNS, 0,
               (size_t)((TASK_STEPS - steps) * ONEDNN_PANEL_COLUMNS) * sizeof *to);
    }
}

void panels_matmul_run(const struct panels_matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    const struct matmul_spec *spec = &matmul->spec;
    parallel_for(padded_depth(spec) / TASK_STEPS * panel_count(spec), TASK_PANELS, pack_blocks,
                 &(struct packing){spec, operands->b, workspace});
    struct matmul_operands packed = *operands;
    packed.b = workspace;
    onednn_matmul_run(matmul->onednn, &packed, (char *)workspace + panels_bytes(spec));
}
