/* Shared by the files of the head's kernels. */
#pragma once

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/matmul.h"

/* d(loss)/d(logit) at a token's target: what is between the softmax and the gradient. In the dtype, at `out`. */
void head_write_target(float softcap, float scale, double logit, double lse, enum dtype dtype, void *out);

/* A head's first tokens whose logits lie where the gradient of its weight [V,C] will be (head_slices.c). */
struct head_slices;
/* Whether the node's weight has a gradient that holds nothing yet, at least half of the tokens find space there, and
 * the vocabulary has several slices. */
bool head_slices_apply(const struct node *node);
enum status head_slices_create(const struct node *node, struct head_slices **out);
/* NULL is fine. */
void head_slices_free(struct head_slices *slices);
/* The first so many of the node's. */
int64_t head_slices_tokens(const struct head_slices *slices);
/* Besides that of the GEMMs. */
int64_t head_slices_workspace_bytes(const struct head_slices *slices);
int64_t head_slices_products_bytes(const struct head_slices *slices);
/* Losses [tokens] and gradients: rows of dx, all of the weight's and the bias's so far. */
void head_slices_run(const struct head_slices *slices, const struct kernel_call *call, void *workspace, void *products,
                     double *losses);
