#include "backend/kernel_parts.h"

#include "base/mem.h"

static void release(struct kernel *kernel) { mem_free(kernel); }

void *kernel_new(const struct node *node, size_t bytes, kernel_run *run) {
    struct kernel *kernel = mem_array(1, bytes);
    if (kernel) *kernel = (struct kernel){.run = run, .release = release, .node = node};
    return kernel;
}

enum status kernel_plain(const struct node *node, kernel_run *run, int64_t workspace_bytes, struct kernel **out) {
    struct kernel *kernel = kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->workspace_bytes = workspace_bytes;
    *out = kernel;
    return STATUS_OK;
}

int64_t kernel_elements(const struct kernel *kernel, const struct kernel_call *call) {
    return call->elements > 0 ? call->elements : shape_elements(&kernel->node->in[0]->shape);
}

void *operand_row(const struct tensor *tensor, void *data, int64_t row) {
    if (!data) return NULL;
    return (char *)data + row * tensor_row_stride(tensor) * dtype_bytes(tensor->shape.dtype);
}
