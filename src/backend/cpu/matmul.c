#include "backend/cpu/matmul.h"

#include "backend/cpu/matmul_onednn.h"
#include "backend/cpu/matmul_packed.h"
#include "base/mem.h"

struct matmul {
    struct onednn_matmul *onednn; /* NULL: packed */
    struct packed_matmul packed;
};

enum { FEW_ROWS = 64, DEPTH_MOST = 1024 };

/* In fp32 oneDNN 2.6 reads b where it lies when its rows do, at 0.67 to 0.86 of the packed product's speed when they
 * are many (k = 2048, 3072, 50257), and at 0.75 when they are a multiple of 4 KiB apart and so fall into the same sets
 * of the first cache (n = 3072; a power of two it copies). Few rows of a are left to it: packing b would be most of the
 * work. */
static bool better_packed(const struct matmul_spec *spec) {
    bool power_of_two = (spec->n & (spec->n - 1)) == 0;
    bool rows_collide = spec->n % 1024 == 0 && !power_of_two;
    return spec->dtype == DTYPE_F32 && spec->b_column == 1 && spec->m > FEW_ROWS &&
           (rows_collide || spec->k > DEPTH_MOST);
}

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
