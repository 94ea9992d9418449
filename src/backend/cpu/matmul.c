#include "backend/cpu/matmul.h"

#include "backend/cpu/matmul_onednn.h"
#include "backend/cpu/matmul_packed.h"
#include "base/mem.h"

struct matmul {
    struct onednn_matmul *onednn; /* NULL: packed */
    struct packed_matmul packed;
};

/* In fp32 oneDNN 2.6 reads b where it lies unless n is a power of two. Rows that are a multiple of 4 KiB apart then
 * fall into the same sets of the first cache, at half the speed of the packed product (measured with n = 3072). */
static bool rows_collide(const struct matmul_spec *spec) {
    bool power_of_two = (spec->n & (spec->n - 1)) == 0;
    return spec->dtype == DTYPE_F32 && spec->b_column == 1 && spec->n % 1024 == 0 && !power_of_two;
}

enum status matmul_create(const struct matmul_spec *spec, struct matmul **out) {
    struct matmul *matmul = mem_array(1, sizeof *matmul);
    if (!matmul) return STATUS_FAILED;
    enum status status = rows_collide(spec) ? STATUS_OK : onednn_matmul_create(spec, &matmul->onednn);
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

void matmul_run(const struct matmul *matmul, const void *a, const void *b, const void *bias, void *c, void *workspace) {
    if (matmul->onednn)
        onednn_matmul_run(matmul->onednn, a, b, bias, c, workspace);
    else
        packed_matmul_run(&matmul->packed, a, b, bias, c, workspace);
}

void matmul_free(struct matmul *matmul) {
    if (!matmul) return;
    onednn_matmul_free(matmul->onednn);
    mem_free(matmul);
}

const char *matmul_implementation(const struct matmul *matmul) {
    return matmul->onednn ? onednn_matmul_implementation(matmul->onednn) : packed_matmul_implementation();
}
