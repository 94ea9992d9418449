#include "search/step_chain.h"

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Which executions read an activation, beside the forward of the block that made it. */
struct use {
    bool backward, later_block;
};

static void find_uses(const struct graph *graph, struct use *uses) {
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && node->phase <= PHASE_BACKWARD; i++) {
            const struct tensor *in = node->in[i] ? tensor_storage(node->in[i]) : NULL;
            if (!in || in->kind != TENSOR_ACTIVATION) continue;
            uses[in->id].backward |= node->phase == PHASE_BACKWARD;
            uses[in->id].later_block |= node->phase == PHASE_FORWARD && node->block != in->block;
        }
    }
}

/* Each output's bytes count once, however many views there are. */
static void add_outputs(const struct node *node, struct use *uses, struct chain_stage *stage) {
    for (int i = 0; i < node->op->outputs; i++) {
        struct tensor *out = node->out[i] ? tensor_storage(node->out[i]) : NULL;
        if (!out || out->kind != TENSOR_ACTIVATION) continue;
        struct use *use = &uses[out->id];
        int64_t bytes = shape_bytes(&out->shape);
        if (use->later_block) stage->output += bytes;
        if (use->later_block || use->backward) stage->saved += bytes;
        *use = (struct use){0};
    }
}

static void add_nodes(const struct graph *graph, const struct costs *costs, struct use *uses, struct chain *chain) {
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (node->phase > PHASE_BACKWARD) continue;
        struct chain_stage *stage = &chain->stages[node->block];
        bool backward = node->phase == PHASE_BACKWARD;
        *(backward ? &stage->backward_time : &stage->forward_time) += costs->kernels[n].seconds + costs->rates.issue_s;
        if (!backward) add_outputs(node, uses, stage);
    }
}

/* Bytes beyond the chain's values and saved sets. The head's forward and backward are one group. */
static void add_temporaries(const struct schedule_cost *keep, struct chain *chain) {
    for (int i = 0; i < chain->count; i++) {
        struct chain_stage *stage = &chain->stages[i];
        int32_t forward = keep->forward[i], backward = keep->backward[i];
        if (forward < 0 || backward < 0) continue;
        const struct group_bytes *f = &keep->groups.items[forward], *b = &keep->groups.items[backward];
        if (forward != backward) stage->forward_temporary = larger(f->peak - f->before - stage->saved, 0);
        int64_t made = forward == backward ? stage->saved : 0;
        stage->backward_temporary = larger(b->peak - b->before - made - chain_value(chain, i), 0);
    }
}

enum status step_chain_create(const struct graph *graph, const struct costs *costs, const struct schedule_cost *keep,
                              struct chain *out) {
    TRY(chain_create(graph_count_blocks(graph), out));
    struct use *uses = mem_array(graph->tensors.count + 1, sizeof *uses);
    enum status status;
    TRY_GOTO(status, uses ? STATUS_OK : STATUS_FAILED, done);
    find_uses(graph, uses);
    add_nodes(graph, costs, uses, out);
    add_temporaries(keep, out);
    status = chain_check(out);
done:
    mem_free(uses);
    if (status != STATUS_OK) chain_free(out);
    return status;
}
