#include "backend/cpu/matmul.h"

#include "backend/cpu/matmul_packed.h"
#include "backend/cpu/matmul_panels.h"
#include "base/mem.h"

struct matmul {
    struct panels_matmul panels;  /* used unless panels.onednn is NULL */
    struct onednn_matmul *onednn; /* else used unless NULL; else `packed` */
    struct packed_matmul packed;
};

/* Packing all of b costs more than it saves with fewer rows of a; deeper panels do not fit into the last cache. */
enum { FEW_ROWS = 64, PANEL_DEPTH_MOST = 4096 };

/* oneDNN 2.6 does not pack a b that lies by rows, unless its row stride is a power of two. GPT-2's and Llama's products
 * of 1024 tokens then reach 0.6 to 0.95 of the speed of panels, packing included. They are slowest where the stride is
 * a multiple of 4 KiB, so that all rows fall into the same sets of the first cache. A b that lies by columns oneDNN
 * packs itself, no slower than panels would be. */
static bool reads_rows(const struct matmul_spec *spec) {
    return spec->dtype == DTYPE_F32 && spec->b_column == 1 && spec->m > FEW_ROWS && spec->n >= ONEDNN_PANEL_COLUMNS;
}

/* With a large k (the head's gradient: 50257) the packed product is 1.6 times as fast as oneDNN on rows. oneDNN cannot
 * work on parts of k, since it takes no a with gaps between its rows. */
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
