#include "backend/cpu/matmul.h"

#include "backend/cpu/matmul_packed.h"
#include "backend/cpu/matmul_panels.h"
#include "base/mem.h"

/* The first that there is: by oneDNN with b in panels, by oneDNN where b lies, packed. */
struct matmul {
    struct panels_matmul panels; /* panels.first NULL: not this way */
    struct onednn_matmul *onednn;
    struct packed_matmul packed;
};

static enum status create(const struct matmul_spec *spec, struct matmul *matmul) {
    packed_matmul_init(spec, &matmul->packed);
    if (panels_matmul_suits(spec)) TRY(panels_matmul_init(spec, &matmul->panels));
    return matmul->panels.first ? STATUS_OK : onednn_matmul_create(spec, ONEDNN_B_IN_PLACE, &matmul->onednn);
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
    if (matmul->panels.first) return panels_matmul_workspace_bytes(&matmul->panels);
    return matmul->onednn ? onednn_matmul_workspace_bytes(matmul->onednn)
                          : packed_matmul_workspace_bytes(&matmul->packed);
}

void matmul_run(const struct matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    if (matmul->panels.first)
        panels_matmul_run(&matmul->panels, operands, workspace);
    else if (matmul->onednn)
        onednn_matmul_run(matmul->onednn, operands, workspace);
    else
        packed_matmul_run(&matmul->packed, operands, workspace);
}

void matmul_free(struct matmul *matmul) {
    if (!matmul) return;
    panels_matmul_release(&matmul->panels);
    onednn_matmul_free(matmul->onednn);
    mem_free(matmul);
}

const char *matmul_implementation(const struct matmul *matmul) {
    const struct onednn_matmul *onednn = matmul->panels.first ? matmul->panels.first : matmul->onednn;
    return onednn ? onednn_matmul_implementation(onednn) : packed_matmul_implementation();
}
