/* Shared by attention and its gradient. */
#pragma once

#include "backend/cpu/kernel.h"

struct attention_kernel {
    struct kernel kernel;
    int threads;
};

/* A head of a sequence. */
struct head_place {
    int64_t sequence, head;
};

/* A tile of a head; heads are counted through all sequences. */
struct head_tile {
    int64_t head, tile;
};

/* A kernel with `shared` floats of workspace for all threads, and `own` for each. */
enum status attention_kernel_create(const struct node *node, kernel_run *run, int64_t shared, int64_t own,
                                    struct kernel **out);

/* The vector kernels of attention and its gradient in the dtype of the node's first output. The choice decides the
 * bits, and depends only on that dtype and the processor. */
const struct attention_kernels *attention_kernels_of(const struct node *node);
/* The operands of a head that attention and its gradient both read: inputs q, q + 1 and q + 2 are q, k and v; input
 * `segments`, which may be left out, is the segments. */
struct attention_head attention_head_of(const struct node *node, const struct kernel_call *call, int q, int segments,
                                        struct head_place place);
/* First element of a head's features in the first position of the place's sequence. */
void *attention_head_data(const struct tensor *tensor, void *data, struct head_place place, int64_t head_dim);
/* The values of the place's queries in an array [sequences][heads][length]. */
float *attention_row_values(const struct node *node, void *values, int64_t length, struct head_place place);

/* The kernels where a rank has a part of the queries (attention_part.c). */
enum status attention_part_create(const struct node *node, struct kernel **out);
enum status attention_part_grad_create(const struct node *node, struct kernel **out);

static inline const struct attention_attributes *attention_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, attention_attributes);
}

static inline int attention_threads(const struct kernel *kernel) {
    return ((const struct attention_kernel *)kernel)->threads;
}

static inline int64_t aligned_floats(int64_t floats) { return workspace_align(floats * 4) / 4; }
