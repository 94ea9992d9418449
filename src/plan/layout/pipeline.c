#include "plan/layout/pipeline.h"

#include <math.h>

#define STAGE_ENTRIES_MAX ((size_t)1 << 26) /* of the table of F */

int32_t pipeline_chunks(int64_t stages, int64_t chunks, int64_t waves) {
    return stages > 1 && waves % stages == 0 ? (int32_t)chunks : 1;
}

int64_t pipeline_step_count(const struct pipeline_shape *pipeline) {
    return 2 * (int64_t)pipeline->chunks * pipeline->waves;
}

/* The nth forward, or backward, of a stage: a chunk takes as many waves as there are stages, then the next
 * chunk does; backward from the last chunk to the first. */
static struct pipeline_step nth(const struct pipeline_shape *pipeline, int64_t n, bool backward) {
    int64_t stages = pipeline->chunks > 1 ? pipeline->stages : 1, group = stages * pipeline->chunks;
    int32_t chunk = (int32_t)(n % group / stages);
    return (struct pipeline_step){.chunk = backward ? pipeline->chunks - 1 - chunk : chunk,
                                  .wave = (int32_t)(n / group * stages + n % stages),
                                  .backward = backward};
}

/* Forwards before the first backward. */
static int64_t warm_up(const struct pipeline_shape *pipeline, int32_t stage) {
    int64_t max = (int64_t)pipeline->chunks * pipeline->waves, after = pipeline->stages - 1 - stage;
    int64_t wanted = pipeline->chunks > 1 ? 2 * after + (int64_t)(pipeline->chunks - 1) * pipeline->stages : after;
    return wanted < max ? wanted : max;
}

void pipeline_order(const struct pipeline_shape *pipeline, int32_t stage, struct pipeline_step *out) {
    int64_t all = (int64_t)pipeline->chunks * pipeline->waves, ahead = warm_up(pipeline, stage), at = 0;
    for (int64_t n = 0; n < ahead; n++)
        out[at++] = nth(pipeline, n, false);
    for (int64_t n = 0; n < all; n++) {
        if (ahead + n < all) out[at++] = nth(pipeline, ahead + n, false);
        out[at++] = nth(pipeline, n, true);
    }
}

int64_t pipeline_held(const struct pipeline_shape *pipeline, int32_t stage) {
    int64_t all = (int64_t)pipeline->chunks * pipeline->waves, ahead = warm_up(pipeline, stage) + 1;
    return ahead < all ? ahead : all;
}

/* A parameter that several stages use is on each of them. */
static enum status add_states(const struct graph *graph, const struct partition *partition, struct block_costs *costs) {
    bool *counted = mem_array(graph->tensors.count * (size_t)costs->blocks + 1, sizeof *counted);
    if (!counted) return STATUS_FAILED;
    for (size_t t = 0; t < graph->tensors.count; t++) {
        const struct tensor *tensor = graph->tensors.items[t];
        bool gradient = tensor->kind == TENSOR_GRADIENT, state = tensor->kind == TENSOR_STATE;
        int width = partition_width(gradient ? partition->gradients : partition->optimizer);
        int block = gradient ? tensor->block : state ? tensor->parameter->block : -1;
        if (block >= 0 && block < costs->blocks) costs->held_bytes[block] += shape_bytes(&tensor->shape) / width;
    }
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && node->phase <= PHASE_BACKWARD; i++) {
            const struct tensor *tensor = node->in[i] ? tensor_storage(node->in[i]) : NULL;
            if (!tensor || tensor->kind != TENSOR_PARAMETER) continue;
            bool *known = &counted[(size_t)tensor->id * (size_t)costs->blocks + (size_t)node->block];
            if (!*known)
                costs->held_bytes[node->block] += shape_bytes(&tensor->shape) / partition_width(partition->parameters);
            *known = true;
        }
    }
    mem_free(counted);
    return STATUS_OK;
}

/* Activations that forward makes and backward reads. */
static enum status add_activations(const struct graph *graph, int64_t micro_batches, struct block_costs *costs) {
    bool *counted = mem_array(graph->tensors.count + 1, sizeof *counted);
    if (!counted) return STATUS_FAILED;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && node->phase == PHASE_BACKWARD; i++) {
            const struct tensor *tensor = node->in[i] ? tensor_storage(node->in[i]) : NULL;
            const struct node *maker = tensor && tensor->kind == TENSOR_ACTIVATION ? tensor->producer : NULL;
            if (!maker || maker->phase != PHASE_FORWARD || counted[tensor->id]) continue;
            costs->wave_bytes[maker->block] += micro_batches * shape_bytes(&tensor->shape);
            counted[tensor->id] = true;
        }
    }
    mem_free(counted);
    return STATUS_OK;
}

static void add_flops(const struct graph *graph, struct block_costs *costs) {
    for (int32_t b = 0; b < costs->blocks; b++)
        costs->seconds[b] = 1;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        struct op_cost cost;
        if (node->phase > PHASE_BACKWARD) continue;
        op_cost(node, &cost);
        costs->seconds[node->block] += cost.flops;
    }
}

enum status block_costs_create(const struct graph *graph, const struct policy *policy, struct block_costs *out) {
    int32_t blocks = graph_count_blocks(graph);
    size_t count = (size_t)blocks + 1;
    *out = (struct block_costs){.blocks = blocks};
    TRY(mem_items(&out->seconds, count));
    TRY(mem_items(&out->held_bytes, count));
    TRY(mem_items(&out->wave_bytes, count));
    add_flops(graph, out);
    TRY(add_states(graph, &policy->partition, out));
    return add_activations(graph, policy->micro_batches_per_wave, out);
}

void block_costs_free(struct block_costs *costs) {
    mem_free(costs->seconds);
    mem_free(costs->held_bytes);
    mem_free(costs->wave_bytes);
    *costs = (struct block_costs){0};
}

/* F(s, k, d) for s stages at most, k to `layers`, d to `devices`; `last` and `submesh` are those of the first stage. */
struct entry {
    double seconds;
    int16_t last, submesh;
};
struct table {
    const struct stage_problem *problem;
    int max_stages;
    int fewest, max; /* devices of a submesh: s stages have from s * fewest to s * max */
    struct entry *entries;
};

static struct entry *entry_at(const struct table *table, int stages, int layer, int devices) {
    const struct stage_problem *problem = table->problem;
    size_t row = (size_t)stages * (size_t)(problem->layers + 1) + (size_t)layer;
    return &table->entries[row * (size_t)(problem->devices + 1) + (size_t)devices];
}

static const struct stage_cost *cost_of(const struct stage_problem *problem, int first, int last, int submesh) {
    size_t row = (size_t)first * (size_t)problem->layers + (size_t)last;
    return &problem->costs[row * (size_t)problem->submesh_count + (size_t)submesh];
}

static bool fits(const struct stage_problem *problem, const struct stage_cost *cost, int in_flight) {
    int64_t left = problem->device_bytes - cost->held_bytes;
    return left >= 0 && cost->wave_bytes <= left / in_flight;
}

static void fill_entry(const struct table *table, int stages, int layer, int devices, double longest) {
    const struct stage_problem *problem = table->problem;
    struct entry *entry = entry_at(table, stages, layer, devices);
    *entry = (struct entry){.seconds = INFINITY};
    for (int last = layer; last < problem->layers; last++) {
        for (int m = 0; m < problem->submesh_count; m++) {
            const struct stage_cost *cost = cost_of(problem, layer, last, m);
            int left = devices - problem->submesh_devices[m];
            if (left < 0 || cost->seconds > longest || !fits(problem, cost, stages)) continue;
            double seconds = cost->seconds + entry_at(table, stages - 1, last + 1, left)->seconds;
            if (seconds < entry->seconds) *entry = (struct entry){seconds, (int16_t)last, (int16_t)m};
        }
    }
}

/* Returns the number of stages with the least sum if no stage takes longer than `longest`, or 0. Entries that s stages
 * cannot reach stay infinite. */
static int fill(const struct table *table, double longest) {
    const struct stage_problem *problem = table->problem;
    int best = 0;
    double min = INFINITY;
    for (int s = 1; s <= table->max_stages; s++) {
        int64_t end = (int64_t)s * table->max;
        if (end > problem->devices) end = problem->devices;
        for (int layer = 0; layer < problem->layers; layer++)
            for (int64_t d = (int64_t)s * table->fewest; d <= end; d++)
                fill_entry(table, s, layer, (int)d, longest);
        double seconds = entry_at(table, s, 0, problem->devices)->seconds;
        if (seconds < min) min = seconds, best = s;
    }
    return best;
}

static double step_seconds(const struct table *table, int stages) {
    const struct stage_problem *problem = table->problem;
    double sum = 0, longest = 0;
    for (int s = stages, layer = 0, d = problem->devices; s > 0; s--) {
        const struct entry *entry = entry_at(table, s, layer, d);
        double seconds = cost_of(problem, layer, entry->last, entry->submesh)->seconds;
        sum += seconds, longest = fmax(longest, seconds);
        layer = entry->last + 1, d -= problem->submesh_devices[entry->submesh];
    }
    return sum + (double)(problem->waves - 1) * longest;
}

static enum status write_cut(const struct table *table, int stages, double seconds, struct stage_cut *out) {
    stage_cut_free(out);
    *out = (struct stage_cut){.count = stages, .seconds = seconds};
    TRY(mem_items(&out->stages, (size_t)stages));
    for (int s = stages, layer = 0, d = table->problem->devices; s > 0; s--) {
        const struct entry *entry = entry_at(table, s, layer, d);
        out->stages[stages - s] = (struct stage){layer, entry->last, entry->submesh};
        layer = entry->last + 1, d -= table->problem->submesh_devices[entry->submesh];
    }
    return STATUS_OK;
}

ORDER_BY(compare_seconds, double, *item)

/* The times that could be the longest, ascending, each once. */
static enum status list_longest(const struct stage_problem *problem, double **out, size_t *count) {
    size_t capacity = (size_t)problem->layers * (size_t)problem->layers * (size_t)problem->submesh_count, kept = 0,
           used = 0;
    double *times;
    TRY(mem_items(&times, capacity));
    for (int first = 0; first < problem->layers; first++)
        for (int last = first; last < problem->layers; last++)
            for (int m = 0; m < problem->submesh_count; m++)
                if (isfinite(cost_of(problem, first, last, m)->seconds))
                    times[used++] = cost_of(problem, first, last, m)->seconds;
    qsort(times, used, sizeof *times, compare_seconds);
    for (size_t i = 0; i < used; i++)
        if (i == 0 || times[i] != times[kept - 1]) times[kept++] = times[i];
    *out = times, *count = kept;
    return STATUS_OK;
}

/* The first of the times with which there is a cut; `count` where there is none. */
static size_t first_that_fits(const struct table *table, const double *times, size_t count) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (fill(table, times[middle]) > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Tries ascending times until the longest stage alone takes longer than the best result allows. */
static enum status find(const struct table *table, const double *times, size_t count, struct stage_cut *out) {
    int stages = fill(table, INFINITY);
    if (stages == 0)
        return status_set(STATUS_NO_FIT, "no cut uses all %d devices within their memory", table->problem->devices);
    double min_sum = entry_at(table, stages, 0, table->problem->devices)->seconds;
    double others = (double)(table->problem->waves - 1);
    out->seconds = INFINITY;
    for (size_t i = first_that_fits(table, times, count); i < count; i++) {
        if (min_sum + others * times[i] >= out->seconds) return STATUS_OK;
        stages = fill(table, times[i]);
        double seconds = step_seconds(table, stages);
        if (seconds < out->seconds) TRY(write_cut(table, stages, seconds, out));
    }
    return STATUS_OK;
}

static enum status table_create(const struct stage_problem *problem, struct table *out) {
    int max = problem->layers < problem->devices ? problem->layers : problem->devices;
    size_t rows = (size_t)(max + 1) * (size_t)(problem->layers + 1), entries = rows * (size_t)(problem->devices + 1);
    if (entries > STAGE_ENTRIES_MAX)
        return status_set(STATUS_BAD_INPUT, "%d layers on %d devices: a table of %zu entries, more than %zu",
                          problem->layers, problem->devices, entries, STAGE_ENTRIES_MAX);
    *out = (struct table){problem, max, problem->submesh_devices[0], problem->submesh_devices[0], NULL};
    TRY(mem_items(&out->entries, entries));
    for (int m = 1; m < problem->submesh_count; m++) {
        if (problem->submesh_devices[m] < out->fewest) out->fewest = problem->submesh_devices[m];
        if (problem->submesh_devices[m] > out->max) out->max = problem->submesh_devices[m];
    }
    for (size_t i = 0; i < entries; i++)
        out->entries[i].seconds = INFINITY;
    entry_at(out, 0, problem->layers, 0)->seconds = 0;
    return STATUS_OK;
}

enum status stage_cut_find(const struct stage_problem *problem, struct stage_cut *out) {
    struct table table = {0};
    AUTO(stage_cut_free) struct stage_cut cut = {0};
    double *times = NULL;
    size_t count = 0;
    if (problem->layers > STAGE_LAYERS_MAX)
        return status_set(STATUS_BAD_INPUT, "%d layers: must be 1 to %d", problem->layers, STAGE_LAYERS_MAX);
    TRY(table_create(problem, &table));
    enum status status = list_longest(problem, &times, &count);
    if (status == STATUS_OK) status = find(&table, times, count, &cut);
    mem_free(times);
    mem_free(table.entries);
    TRY(status);
    *out = TAKE(cut);
    return STATUS_OK;
}

void stage_cut_free(struct stage_cut *cut) {
    mem_free(cut->stages);
    *cut = (struct stage_cut){0};
}

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

/* Costs of all runs of blocks, [first][last]. */
static enum status cut_costs(const struct block_costs *costs, bool limited, struct stage_cost **out) {
    int32_t blocks = costs->blocks;
    TRY(mem_items(out, (size_t)blocks * (size_t)blocks));
    for (int32_t first = 0; first < blocks; first++) {
        struct stage_cost sum = {.seconds = 0};
        for (int32_t last = first; last < blocks; last++) {
            sum.seconds += costs->seconds[last];
            sum.held_bytes += limited ? costs->held_bytes[last] : 0;
            sum.wave_bytes += limited ? costs->wave_bytes[last] : 0;
            (*out)[first * blocks + last] = sum;
        }
    }
    return STATUS_OK;
}

static enum status refuse_blocks(int32_t blocks, int32_t count) {
    return status_set(STATUS_BAD_INPUT,
                      "plan: policy.pipeline_parallel: %d stages need at least %d blocks (embedding and "
                      "head included); the model has %d" HINT "use at most %d stages, virtual ones included",
                      count, count, blocks, blocks);
}

static enum status choose(const struct block_costs *costs, const struct span_request *request, bool limited,
                          char text[POLICY_SPANS_BYTES]) {
    static const int one = 1;
    AUTO_FREE struct stage_cost *runs = NULL;
    AUTO(stage_cut_free) struct stage_cut cut = {0};
    TRY(cut_costs(costs, limited, &runs));
    const struct stage_problem problem = {.layers = costs->blocks,
                                          .devices = request->count,
                                          .submesh_count = 1,
                                          .submesh_devices = &one,
                                          .waves = request->waves > 1 ? request->waves : 1,
                                          .costs = runs,
                                          .device_bytes = limited ? request->device_bytes : INT64_MAX};
    TRY(stage_cut_find(&problem, &cut));
    return print_cut(&cut, text);
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
    AUTO(block_costs_free) struct block_costs costs = {0};
    TRY(block_costs_create(graph, &plain, &costs));
    return stage_spans_choose(&costs, &request, text);
}

/* ---- text ---- */

static enum status refuse_text(const char *text, const char *rule) {
    return status_set(STATUS_BAD_INPUT, "plan: policy.stage_starts: '%s' is not legal: %s" HINT "a legal value is ''",
                      text, rule);
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
    TRY(mem_items(&out->first, (size_t)blocks + 2));
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
