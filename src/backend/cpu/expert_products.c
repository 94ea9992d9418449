#include "backend/cpu/expert_products.h"

#include "backend/cpu/parallel.h"

static void count_bytes(struct expert_products *products, int64_t bytes) {
    if (bytes > products->workspace_bytes) products->workspace_bytes = bytes;
}

static enum status make_ready(struct expert_products *products, int product) {
    for (int size = 0; size < products->pieces.sizes; size++) {
        struct matmul_spec spec = products->spec(product, products->context, products->pieces.rows[size]);
        TRY(matmul_create(&spec, &products->ready[product][size]));
        count_bytes(products, matmul_workspace_bytes(products->ready[product][size]));
    }
    return STATUS_OK;
}

enum status expert_products_create(struct expert_products *out, int64_t tile, int64_t max) {
    struct matmul_spec first = out->spec(0, out->context, tile);
    out->threads = parallel_threads();
    out->pieces = expert_pieces_of(tile, max, matmul_is_ready(&first));
    for (int product = 0; product < out->count; product++) {
        TRY(make_ready(out, product));
        if (!out->pieces.any) continue;
        for (int64_t rows = out->pieces.step; rows <= out->pieces.max; rows += out->pieces.step) {
            struct matmul_spec spec = out->spec(product, out->context, rows);
            count_bytes(out, matmul_spec_workspace_bytes(&spec, out->threads));
        }
    }
    return STATUS_OK;
}

void expert_products_release(struct expert_products *products) {
    for (int product = 0; product < products->count; product++)
        for (int size = 0; size < products->pieces.sizes; size++)
            matmul_free(products->ready[product][size]);
}

void expert_products_run(const struct expert_products *products, int product, int64_t rows, int size,
                         const struct matmul_operands *operands, void *workspace) {
    if (!products->pieces.any) return matmul_run(products->ready[product][size], operands, workspace);
    struct matmul_spec spec = products->spec(product, products->context, rows);
    matmul_run_spec(&spec, products->threads, operands, workspace);
}
