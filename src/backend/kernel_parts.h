/* What the kernels of all backends have in common. */
#ifndef BALLAST_BACKEND_KERNEL_PARTS_H
#define BALLAST_BACKEND_KERNEL_PARTS_H

#include "backend/backend.h"

/* A zeroed kernel of `bytes` (it begins with a struct kernel), released by freeing it; NULL when out of memory. */
void *kernel_new(const struct node *node, size_t bytes, kernel_run *run);
/* The same for kernels that are a struct kernel and no more. */
enum status kernel_plain(const struct node *node, kernel_run *run, int64_t workspace_bytes, struct kernel **out);

/* Elements of input 0 that a kernel of an operator `by_elements` works on. */
int64_t kernel_elements(const struct kernel *kernel, const struct kernel_call *call);

/* Row `row` of an operand, by its tensor's row stride; NULL for an operand that is left out. */
void *operand_row(const struct tensor *tensor, void *data, int64_t row);

/* Parts of a workspace begin at multiples of this. */
enum { WORKSPACE_ALIGN = 64 };
static inline int64_t workspace_align(int64_t bytes) {
    return (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
}
static inline void *workspace_at(const struct kernel_call *call, int64_t offset) {
    return (char *)call->workspace + offset;
}

#endif
