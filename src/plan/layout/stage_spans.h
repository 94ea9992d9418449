/* Spans: what the ranks of a pipeline have of a model, as runs of blocks.
 *
 * A pipeline of S stages has S spans, or V S of them where it is interleaved; span s belongs to stage s % S. Where the
 * spans begin is policy: it changes no sum. A parameter belongs to the stage of the block that first uses it, and so do
 * its gradients, states and norms. */
#ifndef BALLAST_PLAN_LAYOUT_STAGE_SPANS_H
#define BALLAST_PLAN_LAYOUT_STAGE_SPANS_H

#include "plan/layout/block_costs.h"
#include "plan/plan.h"

struct stage_spans {
    int stages;
    int32_t count;  /* a multiple of stages; 1 of one stage */
    int32_t *first; /* by span: its first block; one more at the end */
};

/* The spans of policy.spans ("stage_starts" in files); where that says none, one a stage, cut by FLOPs.
 * BAD_INPUT where the model has too few blocks, or spans are no legal ones of it. The caller frees, also after a
 * failure. */
enum status stage_spans_create(const struct graph *graph, const char *text, int stages, struct stage_spans *out);
void stage_spans_free(struct stage_spans *spans);
/* Spans by which so many waves take least, as text: cut by Alpa's program (plan/layout/stage_cut.h). Where spans are as
 * many as `stages`, each fits `device_bytes` with the waves that it has in flight; where no cut does, as if they were
 * not limited. BAD_INPUT for too few blocks. */
struct span_request {
    int32_t stages, count; /* count: spans, a multiple of the stages */
    int64_t waves, device_bytes;
};
enum status stage_spans_choose(const struct block_costs *costs, const struct span_request *request,
                               char text[POLICY_SPANS_BYTES]);

int32_t stage_spans_of_block(const struct stage_spans *spans, int block);
static inline int stage_of_block(const struct stage_spans *spans, int block) {
    return (int)(stage_spans_of_block(spans, block) % spans->stages);
}
enum { STAGE_SPANS_ALL = -1 };
/* The stage that executes a node, or STAGE_SPANS_ALL. */
int stage_of_node(const struct stage_spans *spans, const struct node *node);
/* The stage that has a tensor: of a gradient the one that adds to it, of a cache that of its block, else that of its
 * parameter. Parameters, gradients, states, sums of squares and caches. */
int stage_of_tensor(const struct stage_spans *spans, const struct tensor *tensor);

#endif
