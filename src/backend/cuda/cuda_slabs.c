#include "backend/cuda/cuda_slabs.h"

struct cuda_slabs {
    struct matmul_spec spec;
    int64_t columns;            /* of a slab; n: there is but one */
    struct cuda_matmul *matmul; /* of a slab */
    struct cuda_matmul *last;   /* of the last one where it is narrower; NULL: it is not */
    int64_t unpacked_at;        /* in the workspace, after the GEMMs' */
};

static bool is_quantized(const struct matmul_spec *spec) { return spec->b_format != WEIGHT_PLAIN; }

/* b's rows are the weight's, or its columns are. */
static bool is_along(const struct matmul_spec *spec) { return spec->b_k == 1; }

static struct cuda_matmul_spec slab_spec(const struct cuda_matmul_spec *spec, int64_t columns) {
    struct cuda_matmul_spec slab = *spec;
    if (!is_quantized(&spec->product)) return slab;
    slab.product.b_format = WEIGHT_PLAIN;
    slab.product.n = columns;
    if (!is_along(&spec->product)) slab.product.b_k = columns;
    slab.b_alignment = CUDA_ALIGN;
    return slab;
}

static enum status create_products(const struct cuda_matmul_spec *spec, struct cuda_slabs *slabs) {
    int64_t rest = spec->product.n % slabs->columns;
    struct cuda_matmul_spec whole = slab_spec(spec, slabs->columns), last = slab_spec(spec, rest);
    TRY(cuda_matmul_create(&whole, &slabs->matmul));
    return rest > 0 ? cuda_matmul_create(&last, &slabs->last) : STATUS_OK;
}

static int64_t products_bytes(const struct cuda_slabs *slabs) {
    int64_t bytes = cuda_matmul_workspace_bytes(slabs->matmul);
    int64_t last = slabs->last ? cuda_matmul_workspace_bytes(slabs->last) : 0;
    return workspace_align(last > bytes ? last : bytes);
}

enum status cuda_slabs_create(const struct cuda_matmul_spec *spec, struct cuda_slabs **out) {
    struct cuda_slabs *slabs = mem_array(1, sizeof *slabs);
    if (!slabs) return STATUS_FAILED;
    slabs->spec = spec->product;
    slabs->columns = is_quantized(&spec->product) ? cuda_slab_columns(&spec->product) : spec->product.n;
    enum status status = create_products(spec, slabs);
    if (status != STATUS_OK) {
        cuda_slabs_free(slabs);
        return status;
    }
    slabs->unpacked_at = products_bytes(slabs);
    *out = slabs;
    return STATUS_OK;
}

int64_t cuda_slabs_workspace_bytes(const struct cuda_slabs *slabs) {
    return slabs->unpacked_at + (is_quantized(&slabs->spec) ? cuda_slab_bytes(&slabs->spec) : 0);
}

static void unpack(const struct cuda_slabs *slabs, const void *b, int64_t column, int64_t columns, void *to,
                   cudaStream_t stream) {
    const struct matmul_spec *spec = &slabs->spec;
    struct weight_layout layout = is_along(spec) ? weight_layout_of(spec->b_format, spec->b_block, spec->n, spec->k)
                                                 : weight_layout_of(spec->b_format, spec->b_block, spec->k, spec->n);
    struct cuda_weight_tile tile = is_along(spec) ? (struct cuda_weight_tile){column, columns, 0, spec->k}
                                                  : (struct cuda_weight_tile){0, spec->k, column, columns};
    cuda_unpack_weight(stream, &layout, b, &tile, spec->dtype, to);
}

static const void *behind(const void *first, enum dtype dtype, int64_t elements) {
    return first ? (const char *)first + elements * dtype_bytes(dtype) : NULL;
}

void cuda_slabs_run(struct cuda_slabs *slabs, const struct matmul_operands *operands, void *workspace,
                    cudaStream_t stream) {
    const struct matmul_spec *spec = &slabs->spec;
    void *unpacked = (char *)workspace + slabs->unpacked_at;
    for (int64_t column = 0; column < spec->n; column += slabs->columns) {
        int64_t left = spec->n - column, columns = left < slabs->columns ? left : slabs->columns;
        struct matmul_operands own = *operands;
        if (is_quantized(spec)) {
            unpack(slabs, operands->b, column, columns, unpacked, stream);
            own.b = unpacked;
        }
        own.bias = behind(operands->bias, spec->dtype, column);
        own.addend = behind(operands->addend, spec->out_dtype, column);
        own.c = (char *)operands->c + column * dtype_bytes(spec->out_dtype);
        cuda_matmul_run(columns < slabs->columns ? slabs->last : slabs->matmul, &own, workspace, stream);
    }
}

void cuda_slabs_free(struct cuda_slabs *slabs) {
    if (!slabs) return;
    cuda_matmul_free(slabs->matmul);
    cuda_matmul_free(slabs->last);
    mem_free(slabs);
}
