#include "search/step_chain.h"

#include "ir/symbolic_profile.h"

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void add_values(const struct symbolic_profile *profile, struct chain *chain) {
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        struct chain_block *chain_block = &chain->blocks[value->tensor->block];
        if (value->leaves_block) chain_block->output += value->bytes;
        if (value->leaves_block || value->saved) chain_block->saved += value->bytes;
    }
}

static void add_times(const struct graph *graph, const struct costs *costs, struct chain *chain) {
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (node->phase > PHASE_BACKWARD) continue;
        struct chain_block *chain_block = &chain->blocks[node->block];
        bool backward = node->phase == PHASE_BACKWARD;
        *(backward ? &chain_block->backward_time : &chain_block->forward_time) +=
            costs->kernels[n].seconds + costs->rates.issue_s;
    }
}

/* Bytes beyond the chain's values and saved sets. The head's forward and backward are one group. */
static void add_temporaries(const struct schedule_cost *keep, struct chain *chain) {
    for (int i = 0; i < chain->count; i++) {
        struct chain_block *chain_block = &chain->blocks[i];
        int32_t forward = keep->forward[i], backward = keep->backward[i];
        if (forward < 0 || backward < 0) continue;
        const struct group_bytes *f = &keep->groups.items[forward], *b = &keep->groups.items[backward];
        if (forward != backward) chain_block->forward_temporary = larger(f->peak - f->before - chain_block->saved, 0);
        int64_t made = forward == backward ? chain_block->saved : 0;
        chain_block->backward_temporary = larger(b->peak - b->before - made - chain_value(chain, i), 0);
    }
}

enum status step_chain_create(const struct graph *graph, const struct costs *costs, const struct schedule_cost *keep,
                              struct chain *out) {
    struct symbolic_profile profile;
    TRY(chain_create(graph_count_blocks(graph), out));
    enum status status = symbolic_profile_create(graph, &profile);
    if (status == STATUS_OK) {
        add_values(&profile, out);
        add_times(graph, costs, out);
        add_temporaries(keep, out);
        status = chain_check(out);
    }
    symbolic_profile_free(&profile);
    if (status != STATUS_OK) chain_free(out);
    return status;
}
