#include "layout/stage_spans.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/stage_cut.h"

/* ---- choosing ---- */

static enum status print_cut(const struct stage_cut *cut, char text[POLICY_SPANS_BYTES]) {
    size_t used = 0;
    text[0] = 0;
    for (int s = 1; s < cut->count; s++) {
        int written =
            snprintf(text + used, POLICY_SPANS_BYTES - used, "%s%d", used > 0 ? " " : "", cut->stages[s].first);
        if (written < 0 || used + (size_t)written >= POLICY_SPANS_BYTES)
            return status_set(STATUS_BAD_INPUT, "plan: policy.spans: %d spans are too many", cut->count);
        used += (size_t)written;
    }
    return STATUS_OK;
}

/* Costs of all runs of blocks, [first][last]. */
static enum status cut_costs(const double *seconds, int32_t blocks, struct stage_cost **out) {
    struct stage_cost *costs = mem_array((size_t)blocks * (size_t)blocks, sizeof *costs);
    if (!costs) return STATUS_FAILED;
    for (int32_t first = 0; first < blocks; first++) {
        double sum = 0;
        for (int32_t last = first; last < blocks; last++) {
            sum += seconds[last];
            costs[first * blocks + last] = (struct stage_cost){.seconds = sum};
        }
    }
    *out = costs;
    return STATUS_OK;
}

/* More micro-batches than one, so that the longest span counts. */
enum { MICRO_BATCHES = 8 };

static enum status refuse_blocks(int32_t blocks, int32_t count) {
    return status_hint(status_set(STATUS_BAD_INPUT,
                                  "plan: policy.stages: %d spans need as many blocks, embedding and head among them; "
                                  "the model has %d",
                                  count, blocks),
                       "the most stages are %d", blocks);
}

enum status stage_spans_choose(const double *seconds, int32_t blocks, int32_t count, char text[POLICY_SPANS_BYTES]) {
    static const int one = 1;
    struct stage_cost *costs;
    struct stage_cut cut = {0};
    if (count > blocks) return refuse_blocks(blocks, count);
    TRY(cut_costs(seconds, blocks, &costs));
    const struct stage_problem problem = {.layers = blocks,
                                          .devices = count,
                                          .submesh_count = 1,
                                          .submesh_devices = &one,
                                          .micro_batches = MICRO_BATCHES,
                                          .costs = costs,
                                          .device_bytes = INT64_MAX};
    enum status status = stage_cut_find(&problem, &cut);
    if (status == STATUS_OK) status = print_cut(&cut, text);
    stage_cut_free(&cut);
    mem_free(costs);
    return status;
}

/* FLOPs, and a little for each block so that none of them is free. */
enum status stage_spans_balance(const struct graph *graph, int32_t count, char text[POLICY_SPANS_BYTES]) {
    int32_t blocks = graph_count_blocks(graph);
    double *flops = mem_array((size_t)blocks + 1, sizeof *flops);
    if (!flops) return STATUS_FAILED;
    for (int32_t b = 0; b < blocks; b++)
        flops[b] = 1;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        struct op_cost cost;
        if (node->phase > PHASE_BACKWARD) continue;
        op_cost(node, &cost);
        flops[node->block] += cost.flops;
    }
    enum status status = stage_spans_choose(flops, blocks, count, text);
    mem_free(flops);
    return status;
}

/* ---- text ---- */

static enum status refuse_text(const char *text, const char *rule) {
    return status_hint(status_set(STATUS_BAD_INPUT, "plan: policy.spans: '%s' is not legal: %s", text, rule),
                       "a legal value is ''");
}

static enum status parse(const char *text, int32_t blocks, struct stage_spans *out) {
    const char *at = text;
    out->count = 1;
    while (*at) {
        char *end;
        long block = strtol(at, &end, 10);
        if (end == at || (*end && *end != ' ')) return refuse_text(text, "blocks, with a space between");
        if (block <= out->first[out->count - 1] || block >= blocks)
            return refuse_text(text, "blocks at which spans begin, ascending, from 1 to the model's last");
        out->first[out->count++] = (int32_t)block;
        at = *end ? end + 1 : end;
    }
    out->first[out->count] = blocks;
    if (out->count % out->stages == 0) return STATUS_OK;
    return refuse_text(text, "each stage has as many spans as the others");
}

enum status stage_spans_create(const struct graph *graph, const char *text, int stages, struct stage_spans *out) {
    int32_t blocks = graph_count_blocks(graph);
    char chosen[POLICY_SPANS_BYTES] = "";
    *out = (struct stage_spans){.stages = stages, .count = 1};
    out->first = mem_array((size_t)blocks + 2, sizeof *out->first);
    if (!out->first) return STATUS_FAILED;
    if (stages == 1) {
        out->first[1] = blocks;
        return STATUS_OK;
    }
    if (stages > blocks) return refuse_blocks(blocks, stages);
    if (!text[0]) TRY(stage_spans_balance(graph, stages, chosen));
    return parse(text[0] ? text : chosen, blocks, out);
}

void stage_spans_free(struct stage_spans *spans) {
    mem_free(spans->first);
    *spans = (struct stage_spans){0};
}

/* ---- whose ---- */

int32_t stage_spans_of_block(const struct stage_spans *spans, int block) {
    int32_t span = 0;
    while (span + 1 < spans->count && spans->first[span + 1] <= block)
        span++;
    return span;
}

static const struct tensor *parameter_of(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER ? tensor : tensor->parameter;
}

int stage_of_tensor(const struct stage_spans *spans, const struct tensor *tensor) {
    const struct tensor *at = tensor->kind == TENSOR_GRADIENT ? tensor : parameter_of(tensor);
    return at && at->block >= 0 ? stage_of_block(spans, at->block) : 0;
}

int stage_of_node(const struct stage_spans *spans, const struct node *node) {
    if (node->phase <= PHASE_BACKWARD) return stage_of_block(spans, node->block);
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i] && parameter_of(node->in[i])) return stage_of_tensor(spans, parameter_of(node->in[i]));
    return STAGE_SPANS_ALL;
}
