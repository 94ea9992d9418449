#include "backend/cpu/matmul.h"

#include "backend/cpu/matmul_onednn.h"
#include "backend/cpu/matmul_packed.h"
#include "base/mem.h"

struct matmul {
    struct onednn_matmul *onednn; /* NULL: packed */
    struct packed_matmul packed;
};

/* Packing b costs as much as multiplying it by some 20 rows. In fp32 oneDNN reads it where it lies, and is slower than the
 * packed product at all sizes of training steps; it knows bf16 only on processors that multiply it. */
enum { FEW_ROWS = 64 };

static bool better_packed(const struct matmul_spec *spec) { return spec->dtype == DTYPE_F32 && spec->m > FEW_ROWS; }

enum status matmul_create(const struct matmul_spec *spec, struct matmul **out) {
    struct matmul *matmul = mem_array(1, sizeof *matmul);
    if (!matmul) return STATUS_FAILED;
    enum status status = better_packed(spec) ? STATUS_OK : onednn_matmul_create(spec, &matmul->onednn);
    if (status != STATUS_OK) {
        mem_free(matmul);
        return status;
    }
    packed_matmul_init(spec, &matmul->packed);
    *out = matmul;
    return STATUS_OK;
}

int64_t matmul_workspace_bytes(const struct matmul *matmul) {
    return matmul->onednn ? onednn_matmul_workspace_bytes(matmul->onednn)
                          : packed_matmul_workspace_bytes(&matmul->packed);
}

void matmul_run(const struct matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    if (matmul->onednn)
        onednn_matmul_run(matmul->onednn, operands, workspace);
    else
        packed_matmul_run(&matmul->packed, operands, workspace);
}

void matmul_free(struct matmul *matmul) {
    if (!matmul) return;
    onednn_matmul_free(matmul->onednn);
    mem_free(matmul);
}

const char *matmul_implementation(const struct matmul *matmul) {
    return matmul->onednn ? onednn_matmul_implementation(matmul->onednn) : packed_matmul_implementation();
}
