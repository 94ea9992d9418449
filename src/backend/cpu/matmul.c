#include "backend/cpu/matmul.h"

#include "backend/cpu/matmul_packed.h"
#include "backend/cpu/matmul_panels.h"
#include "base/mem.h"

struct matmul {
    struct panels_matmul panels;  /* panels.onednn NULL: not this way */
    struct onednn_matmul *onednn; /* NULL: not this way either */
    struct packed_matmul packed;
};

/* Fewer rows of a do not make up for packing all of b first; panels of more steps outgrow the last cache. */
enum { FEW_ROWS = 64, PANEL_DEPTH_MOST = 4096 };

/* oneDNN 2.6 by itself reads b where it lies when that is by rows, unless these are a power of two apart. GPT-2's and
 * Llama's products of 1024 tokens then run at 0.6 to 0.95 of the speed that they have from panels, packing included,
 * slowest where rows are a multiple of 4 KiB apart and so fall into the same sets of the first cache. Columns it packs
 * as it goes, as well as panels would. */
static bool reads_rows(const struct matmul_spec *spec) {
    return spec->dtype == DTYPE_F32 && spec->b_column == 1 && spec->m > FEW_ROWS && spec->n >= ONEDNN_PANEL_COLUMNS;
}

/* Where k is large (the head's gradient, 50257), the packed product is 1.6 times as fast as oneDNN on rows. Panels by
 * parts of k are not for oneDNN: it takes no a with gaps between its rows. */
static enum status create(const struct matmul_spec *spec, struct matmul *matmul) {
    packed_matmul_init(spec, &matmul->packed);
    if (reads_rows(spec) && spec->k > PANEL_DEPTH_MOST) return STATUS_OK;
    if (reads_rows(spec)) TRY(panels_matmul_init(spec, &matmul->panels));
    return matmul->panels.onednn ? STATUS_OK : onednn_matmul_create(spec, ONEDNN_B_IN_PLACE, &matmul->onednn);
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
    if (matmul->panels.onednn) return panels_matmul_workspace_bytes(&matmul->panels);
    return matmul->onednn ? onednn_matmul_workspace_bytes(matmul->onednn)
                          : packed_matmul_workspace_bytes(&matmul->packed);
}

void matmul_run(const struct matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    if (matmul->panels.onednn)
        panels_matmul_run(&matmul->panels, operands, workspace);
    else if (matmul->onednn)
        onednn_matmul_run(matmul->onednn, operands, workspace);
    else
        packed_matmul_run(&matmul->packed, operands, workspace);
}

void matmul_free(struct matmul *matmul) {
    if (!matmul) return;
    onednn_matmul_free(matmul->panels.onednn);
    onednn_matmul_free(matmul->onednn);
    mem_free(matmul);
}

const char *matmul_implementation(const struct matmul *matmul) {
    const struct onednn_matmul *onednn = matmul->panels.onednn ? matmul->panels.onednn : matmul->onednn;
    return onednn ? onednn_matmul_implementation(onednn) : packed_matmul_implementation();
}
