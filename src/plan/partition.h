/* How model states are cut among ranks: parameters, gradients and optimizer states each by a width of its own (AMSP,
 * arXiv 2311.00257, section 3). A width w means: each group of w neighbouring ranks holds all of it together, one shard
 * each, and every such group has the same. 1: each rank has all of it.
 *
 * A triple is legal where each width divides the number of ranks and fills nodes first (it divides the ranks of a node,
 * or is a multiple of them), parameters <= gradients <= optimizer, and gradients are cut like the parameters or like
 * the optimizer's states. 8 ranks in each of 128 nodes have 121 of them. It is policy: it changes no bit. */
#ifndef BALLAST_PLAN_PARTITION_H
#define BALLAST_PLAN_PARTITION_H

#include <stdbool.h>

#include "base/status.h"
#include "collective/mesh.h"

enum { PARTITION_BYTES = 96 };

/* Widths; 0 counts as 1. */
struct partition {
    int parameters, gradients, optimizer;
};

static inline int partition_width(int width) { return width > 0 ? width : 1; }
/* Whether anything is cut. */
static inline bool partition_cuts(const struct partition *partition) {
    return partition_width(partition->optimizer) > 1;
}
static inline bool partition_equal(const struct partition *a, const struct partition *b) {
    return partition_width(a->parameters) == partition_width(b->parameters) &&
           partition_width(a->gradients) == partition_width(b->gradients) &&
           partition_width(a->optimizer) == partition_width(b->optimizer);
}

/* "p|g|os", each "in-node x across" ("8x1|8x1|8x4") or a bare width, which fills the node first ("8|8|32"); or a name:
 *     ddp    1|1|1       zero1   1|1|all       zero2   1|all|all       zero3   all|all|all
 *     mics:N N|N|N       hpz     node|all|all  hybrid:N N|N|all
 * BAD_INPUT "partition: …" for anything else, and for a triple that is not legal on the mesh, with the rule. */
enum status partition_parse(const char *text, const struct mesh *mesh, struct partition *out);
/* "8x1|8x1|8x4". Returns `text`. */
const char *partition_print(const struct partition *partition, const struct mesh *mesh, char text[PARTITION_BYTES]);
/* BAD_INPUT "plan: policy.partition: …" with the rule. */
enum status partition_check(const struct partition *partition, const struct mesh *mesh);

/* All legal triples of a mesh, from 1|1|1 to all|all|all: by the optimizer's width, then the parameters', then the
 * gradients'. The caller frees with mem_free. */
enum status partition_list(const struct mesh *mesh, struct partition **out, int *count);

#endif
