#include "layout/conversion_nodes.h"

struct tensor *conversion_add_step(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                                   const struct layout_step *step, bool partial) {
    switch (step->action) {
    case LAYOUT_GATHER: return ops_gather(graph, name, x, part, step->from, partial);
    case LAYOUT_ALL_TO_ALL: return ops_exchange(graph, name, x, part, step->from, step->to);
    case LAYOUT_CUT: return ops_cut(graph, name, x, part, step->to);
    }
    BUG("a step of no kind");
}
