/* CUDA kernels without the CUDA backend, for the emulator. */
#pragma once

#include "backend/backend.h"

kernel_maker *cuda_maker(const struct op *op); /* backend/cuda/kernel.h, which needs CUDA's headers */

/* FAILED, with a message that names the node, where the device or a library refuses. */
static inline enum status cuda_kernel_create(const struct node *node, struct kernel **out) {
    const struct backend kernels_alone = {.name = "cuda", .maker = cuda_maker};
    return backend_kernel_create(&kernels_alone, node, out);
}
