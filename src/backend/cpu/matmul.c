#include "backend/cpu/matmul.h"

#include "backend/cpu/matmul_blocks.h"
#include "backend/cpu/matmul_packed.h"
#include "base/mem.h"

struct matmul {
    bool by_blocks;
    struct blocks_matmul blocks; /* used if by_blocks */
    struct packed_matmul packed; /* else used */
};

enum status matmul_create(const struct matmul_spec *spec, struct matmul **out) {
    struct matmul *matmul = mem_array(1, sizeof *matmul);
    if (!matmul) return STATUS_FAILED;
    packed_matmul_init(spec, &matmul->packed);
    enum status status = blocks_matmul_create(spec, &matmul->blocks, &matmul->by_blocks);
    if (status != STATUS_OK) {
        mem_free(matmul);
        return status;
    }
    *out = matmul;
    return STATUS_OK;
}

int64_t matmul_workspace_bytes(const struct matmul *matmul) {
    return matmul->by_blocks ? blocks_matmul_workspace_bytes(&matmul->blocks)
                             : packed_matmul_workspace_bytes(&matmul->packed);
}

void matmul_run(const struct matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    if (matmul->by_blocks)
        blocks_matmul_run(&matmul->blocks, operands, workspace);
    else
        packed_matmul_run(&matmul->packed, operands, workspace);
}

void matmul_free(struct matmul *matmul) {
    if (!matmul) return;
    if (matmul->by_blocks) blocks_matmul_release(&matmul->blocks);
    mem_free(matmul);
}

const char *matmul_implementation(const struct matmul *matmul) {
    return matmul->by_blocks ? blocks_matmul_implementation(&matmul->blocks) : packed_matmul_implementation();
}
