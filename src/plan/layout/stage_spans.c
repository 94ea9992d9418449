#include "plan/layout/stage_spans.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/layout/stage_cut.h"

/* ---- choosing ---- */

static enum status print_cut(const struct stage_cut *cut, char text[POLICY_SPANS_BYTES]) {
    size_t used = 0;
    text[0] = 0;
    for (int s = 1; s < cut->count; s++) {
        int written =
            snprintf(text + used, POLICY_SPANS_BYTES - used, "%s%d", used > 0 ? " " : "", cut->stages[s].first);
        if (written < 0 || used + (size_t)written >= POLICY_SPANS_BYTES)
            return status_set(STATUS_BAD_INPUT, "plan: policy.stage_starts: %d virtual stages are too many",
                              cut->count);
        used += (size_t)written;
    }
    return STATUS_OK;
}

/* Of all runs of blocks, [first][last]. */
static enum status cut_costs(const struct block_costs *costs, bool limited, struct stage_cost **out) {
    int32_t blocks = costs->blocks;
    struct stage_cost *runs = mem_array((size_t)blocks * (size_t)blocks, sizeof *runs);
    if (!runs) return STATUS_FAILED;
    for (int32_t first = 0; first < blocks; first++) {
        struct stage_cost sum = {.seconds = 0};
        for (int32_t last = first; last < blocks; last++) {
            sum.seconds += costs->seconds[last];
            sum.held_bytes += limited ? costs->held_bytes[last] : 0;
            sum.wave_bytes += limited ? costs->wave_bytes[last] : 0;
            runs[first * blocks + last] = sum;
        }
    }
    *out = runs;
    return STATUS_OK;
}

static enum status refuse_blocks(int32_t blocks, int32_t count) {
    return status_hint(status_set(STATUS_BAD_INPUT,
                                  "plan: policy.pipeline_parallel: %d stages need at least %d blocks (embedding and "
                                  "head included); the model "
                                  "has %d",
                                  count, count, blocks),
                       "use at most %d stages, virtual ones included", blocks);
}

static enum status choose(const struct block_costs *costs, const struct span_request *request, bool limited,
                          char text[POLICY_SPANS_BYTES]) {
    static const int one = 1;
    struct stage_cost *runs;
    struct stage_cut cut = {0};
    TRY(cut_costs(costs, limited, &runs));
    const struct stage_problem problem = {.layers = costs->blocks,
                                          .devices = request->count,
                                          .submesh_count = 1,
                                          .submesh_devices = &one,
                                          .waves = request->waves > 1 ? request->waves : 1,
                                          .costs = runs,
                                          .device_bytes = limited ? request->device_bytes : INT64_MAX};
    enum status status = stage_cut_find(&problem, &cut);
    if (status == STATUS_OK) status = print_cut(&cut, text);
    stage_cut_free(&cut);
    mem_free(runs);
    return status;
}

enum status stage_spans_choose(const struct block_costs *costs, const struct span_request *request,
                               char text[POLICY_SPANS_BYTES]) {
    bool limited = request->count == request->stages && request->device_bytes < INT64_MAX;
    if (request->count > costs->blocks) return refuse_blocks(costs->blocks, request->count);
    enum status status = choose(costs, request, limited, text);
    if (status != STATUS_NO_FIT || !limited) return status;
    status_clear();
    return choose(costs, request, false, text);
}

/* More waves than one, so that the longest span counts. */
enum { WAVES_BY_FLOPS = 8 };

static enum status cut_by_flops(const struct graph *graph, int stages, char text[POLICY_SPANS_BYTES]) {
    const struct policy plain = {.micro_batches_per_wave = 1};
    const struct span_request request = {stages, stages, WAVES_BY_FLOPS, INT64_MAX};
    struct block_costs costs;
    enum status status = block_costs_create(graph, &plain, &costs);
    if (status == STATUS_OK) status = stage_spans_choose(&costs, &request, text);
    block_costs_free(&costs);
    return status;
}

/* ---- text ---- */

static enum status refuse_text(const char *text, const char *rule) {
    return status_hint(status_set(STATUS_BAD_INPUT, "plan: policy.stage_starts: '%s' is not legal: %s", text, rule),
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
            return refuse_text(text, "blocks at which virtual stages begin, ascending, from 1 to the model's last");
        out->first[out->count++] = (int32_t)block;
        at = *end ? end + 1 : end;
    }
    out->first[out->count] = blocks;
    if (out->count % out->stages == 0) return STATUS_OK;
    return refuse_text(text, "each rank has the same number of virtual stages");
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
    if (!text[0]) TRY(cut_by_flops(graph, stages, chosen));
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
    bool own = tensor->kind == TENSOR_GRADIENT || tensor->kind == TENSOR_CACHE;
    const struct tensor *at = own ? tensor : parameter_of(tensor);
    return at && at->block >= 0 ? stage_of_block(spans, at->block) : 0;
}

int stage_of_node(const struct stage_spans *spans, const struct node *node) {
    if (node->phase <= PHASE_BACKWARD) return stage_of_block(spans, node->block);
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i] && parameter_of(node->in[i])) return stage_of_tensor(spans, parameter_of(node->in[i]));
    return STAGE_SPANS_ALL;
}
