#include "backend/cpu/matmul_panels.h"

#include <string.h>

#include "backend/cpu/cpu_kernel.h"

/* Fewer rows of a than FEW_ROWS do not make up for packing. A part of b (12 MiB where n is 768) is packed at the speed
 * of memory and read back from the last cache. */
enum { FEW_ROWS = 64, DEPTH_MOST = 4096 };
enum { TASK_STEPS = ONEDNN_PANEL_STEPS, TASK_PANELS = 16 };

static int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
static int64_t rounded_up(int64_t value, int64_t multiple) { return divided_up(value, multiple) * multiple; }

/* oneDNN 2.6 by itself reads such a b where it lies, unless its rows are a power of two apart. GPT-2's and Llama's
 * products of 1024 tokens then run at 0.5 to 0.95 of the speed that they have from panels, packing included: at the
 * least where rows are a multiple of 4 KiB apart and so fall into the same sets of the first cache, and where k is
 * large. Columns it packs as it goes. */
bool panels_matmul_suits(const struct matmul_spec *spec) {
    return spec->dtype == DTYPE_F32 && spec->b_column == 1 && spec->m > FEW_ROWS && spec->n >= ONEDNN_PANEL_COLUMNS;
}

static int64_t part_depth(const struct panels_matmul *matmul, int64_t k) {
    int64_t left = matmul->spec.k - k;
    return left < matmul->depth ? left : matmul->depth;
}

static enum status create_part(const struct panels_matmul *matmul, int64_t k, struct onednn_matmul **out) {
    if (k >= matmul->spec.k) return STATUS_OK;
    struct matmul_spec part = matmul->spec;
    part.k = part_depth(matmul, k);
    if (k > 0) {
        part.bias = false;
        part.addend_row = part.c_row;
    }
    return onednn_matmul_create(&part, ONEDNN_B_PANELS, out);
}

enum status panels_matmul_init(const struct matmul_spec *spec, struct panels_matmul *out) {
    int64_t parts = divided_up(spec->k, DEPTH_MOST);
    *out = (struct panels_matmul){.spec = *spec, .depth = rounded_up(divided_up(spec->k, parts), ONEDNN_PANEL_STEPS)};
    parts = divided_up(spec->k, out->depth);
    enum status status = create_part(out, 0, &out->first);
    if (status == STATUS_OK && parts > 2) status = create_part(out, out->depth, &out->middle);
    if (status == STATUS_OK && parts > 1) status = create_part(out, (parts - 1) * out->depth, &out->last);
    bool whole = out->first && (parts <= 2 || out->middle) && (parts <= 1 || out->last);
    if (status != STATUS_OK || !whole) panels_matmul_release(out);
    return status;
}

static int64_t panels_bytes(const struct panels_matmul *matmul) {
    return rounded_up(matmul->spec.n, ONEDNN_PANEL_COLUMNS) * matmul->depth * 4;
}

int64_t panels_matmul_workspace_bytes(const struct panels_matmul *matmul) {
    const struct onednn_matmul *const parts[] = {matmul->first, matmul->middle, matmul->last};
    int64_t most = 0;
    for (int i = 0; i < 3; i++) {
        int64_t bytes = parts[i] ? onednn_matmul_workspace_bytes(parts[i]) : 0;
        if (bytes > most) most = bytes;
    }
    return panels_bytes(matmul) + most;
}

/* `depth` steps of b, from `from` on. */
struct packing {
    const struct panels_matmul *matmul;
    const float *from;
    int64_t depth, padded; /* padded: with the zeros at the end of a panel */
    float *to;
};

static int64_t panel_count(const struct packing *packing) {
    return divided_up(packing->matmul->spec.n, ONEDNN_PANEL_COLUMNS);
}

/* Blocks of TASK_STEPS steps in one panel, numbered along the rows of b, so that these are read in long pieces. */
static void pack_blocks(const void *context, int64_t begin, int64_t end) {
    const struct packing *packing = context;
    const struct matmul_spec *spec = &packing->matmul->spec;
    for (int64_t i = begin; i < end; i++) {
        int64_t k = i / panel_count(packing) * TASK_STEPS, panel = i % panel_count(packing);
        int64_t column = panel * ONEDNN_PANEL_COLUMNS, left = packing->depth - k;
        int64_t steps = left < TASK_STEPS ? left : TASK_STEPS;
        float *to = packing->to + (panel * packing->padded + k) * ONEDNN_PANEL_COLUMNS;
        cpu_simd()->gemm_pack(DTYPE_F32, ONEDNN_PANEL_COLUMNS, steps, spec->n - column,
                              packing->from + k * spec->b_k + column, spec->b_k, 1, to);
        memset(to + steps * ONEDNN_PANEL_COLUMNS, 0,
               (size_t)((TASK_STEPS - steps) * ONEDNN_PANEL_COLUMNS) * sizeof *to);
    }
}

static void pack(const struct packing *packing) {
    parallel_for(packing->padded / TASK_STEPS * panel_count(packing), TASK_PANELS, pack_blocks, packing);
}

static void run_part(const struct panels_matmul *matmul, int64_t k, const struct matmul_operands *operands,
                     void *workspace) {
    int64_t depth = part_depth(matmul, k);
    bool is_last = k > 0 && k + depth == matmul->spec.k;
    pack(&(struct packing){
        .matmul = matmul,
        .from = (const float *)operands->b + k * matmul->spec.b_k,
        .depth = depth,
        .padded = rounded_up(depth, ONEDNN_PANEL_STEPS),
        .to = workspace,
    });
    struct matmul_operands part = {.a = (const float *)operands->a + k * matmul->spec.a_k,
                                   .b = workspace,
                                   .bias = k == 0 ? operands->bias : NULL,
                                   .addend = k == 0 ? operands->addend : operands->c,
                                   .c = operands->c};
    onednn_matmul_run(k == 0 ? matmul->first : is_last ? matmul->last : matmul->middle, &part,
                      (char *)workspace + panels_bytes(matmul));
}

void panels_matmul_run(const struct panels_matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    for (int64_t k = 0; k < matmul->spec.k; k += matmul->depth)
        run_part(matmul, k, operands, workspace);
}

void panels_matmul_release(struct panels_matmul *matmul) {
    onednn_matmul_free(matmul->first);
    onednn_matmul_free(matmul->middle);
    onednn_matmul_free(matmul->last);
    *matmul = (struct panels_matmul){0};
}
