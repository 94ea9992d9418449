#include "profile/points.h"

#include <math.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "ir/ops/ops.h"
#include "profile/graph_walk.h"

/* Sizes where the call's own cost dominates, that fit in the caches, and that come from memory. */
const int64_t curve_elements[CURVE_POINTS] = {1 << 10, 1 << 16, 1 << 22};

bool curve_fits(const struct node *node) {
    return node->phase >= PHASE_FINISH && !node->op->flops && node->in[0] && node->in[0]->kind == TENSOR_GRADIENT;
}

/* Elements of the parameter. */
static int64_t curve_size(const struct node *node) { return shape_elements(&node->in[0]->shape); }

static bool belongs_to_parameter(const struct tensor *tensor) {
    return tensor->kind == TENSOR_GRADIENT || tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

/* Resizes the results that the operator makes of the gradient. */
static void resize_results(struct node *node) {
    struct shape shapes[OP_OUTPUTS_MAX] = {{0}};
    BUG_IF(node->op->infer(node, shapes) != STATUS_OK, "%s of another size: %s", node->op->name, status_message());
    for (int i = 0; i < node->op->outputs; i++)
        if (node->out[i] && node->out[i]->kind == TENSOR_RESULT) node->out[i]->shape = shapes[i];
}

static struct parts curve_parts(void) {
    struct parts parts = {.count = CURVE_POINTS};
    for (int i = 0; i < CURVE_POINTS; i++)
        parts.part[i].elements = curve_elements[i];
    return parts;
}

double curve_seconds(const double seconds[CURVE_POINTS], int64_t elements) {
    const int last = CURVE_POINTS - 1;
    if (elements <= curve_elements[0]) return seconds[0];
    if (elements >= curve_elements[last]) return seconds[last] * (double)elements / (double)curve_elements[last];
    int i = 0;
    while (elements > curve_elements[i + 1])
        i++;
    double part = (double)(elements - curve_elements[i]) / (double)(curve_elements[i + 1] - curve_elements[i]);
    return seconds[i] + part * (seconds[i + 1] - seconds[i]);
}

enum { TOKENS_STEP = 64, PART_TOKENS = 256, VOCAB_MIN = 1024, HEAD_PARTS = 3 };
/* The most of a lookup's table that is measured: a table of this size is already out of the caches. */
static const int64_t TABLE_BYTES_MAX = (int64_t)256 << 20;

/* The shape [S, T, …] that the node works on. */
static const struct shape *micro_batch_of(const struct node *node) { return &node->in[0]->shape; }
static int64_t tokens_of(const struct node *node) {
    return micro_batch_of(node)->dims[0] * micro_batch_of(node)->dims[1];
}

static double flops_of(const struct node *node) {
    struct op_cost cost;
    op_cost(node, &cost);
    return cost.flops;
}

static int64_t round_down(int64_t count, int64_t step) { return count < step ? step : count / step * step; }

static struct parts two_parts(int64_t tokens) {
    return (struct parts){.count = 2, .part = {{.tokens = tokens / 2}, {.tokens = tokens}}};
}

/* As many tokens as keep the part below `large_flops`, but enough for GEMMs to reach their rate; a node with less
 * than twice as many is measured whole. */
static struct parts product_parts(const struct node *node, double large_flops) {
    int64_t tokens = round_down((int64_t)((double)tokens_of(node) * large_flops / flops_of(node)), 2 * TOKENS_STEP);
    if (tokens < PART_TOKENS) tokens = PART_TOKENS;
    return 2 * tokens <= tokens_of(node) ? two_parts(tokens) : (struct parts){0};
}

/* Attention's work follows the square of the tokens. For a part of the queries it is measured whole. */
static struct parts attention_parts(const struct node *node, double large_flops) {
    if (((const struct attention_attributes *)node->attributes)->queries.parts > 1) return (struct parts){0};
    int64_t length = micro_batch_of(node)->dims[1];
    double flops = flops_of(node) / (double)micro_batch_of(node)->dims[0];
    double part = flops > large_flops / 2 ? sqrt(large_flops / 2 / flops) : 1;
    int64_t tokens = round_down((int64_t)(part * (double)length), 2 * TOKENS_STEP);
    return tokens <= length ? two_parts(tokens) : (struct parts){0};
}

/* Its time is in proportion, so that a smaller part tells it as well; its memory follows the part's rows. */
static struct parts head_parts(const struct node *node, double large_flops) {
    int64_t vocab = node->in[1]->shape.dims[0], tokens = tokens_of(node) < PART_TOKENS ? 0 : PART_TOKENS;
    double flops = flops_of(node) * (tokens > 0 ? (double)tokens / (double)tokens_of(node) : 1);
    int64_t part = round_down((int64_t)((double)vocab * fmin(large_flops / HEAD_PARTS / flops, 1)), VOCAB_MIN);
    return (struct parts){.count = 1, .part = {{.tokens = tokens, .vocab = part < vocab ? part : 0}}};
}

static struct parts table_parts(const struct tensor *table) {
    int64_t row = shape_columns(&table->shape) * dtype_bytes(table->shape.dtype), rows = TABLE_BYTES_MAX / row + 1;
    if (shape_bytes(&table->shape) <= TABLE_BYTES_MAX) return (struct parts){0};
    return (struct parts){.count = 1, .part = {{.vocab = rows}}};
}

/* The parts of an operator that is too large to be measured whole. */
static struct parts large_parts(const struct node *node, double large_flops) {
    switch (node->op->work) {
    case OP_WORK_PRODUCT: return product_parts(node, large_flops);
    case OP_WORK_ATTENTION:
    case OP_WORK_ATTENTION_GRAD: return attention_parts(node, large_flops);
    case OP_WORK_LOSS:
    case OP_WORK_LOSS_GRAD: return head_parts(node, large_flops);
    default: return (struct parts){0};
    }
}

struct parts parts_of(const struct node *node, double large_flops) {
    if (large_flops <= 0) return (struct parts){0};
    if (node->op->work == OP_WORK_LOOKUP) return table_parts(node->in[1]);
    if (node->op->work == OP_WORK_LOOKUP_GRAD) return table_parts(node->out[0]);
    return flops_of(node) > large_flops ? large_parts(node, large_flops) : (struct parts){0};
}

/* On a curve the clip factor keeps its size. */
static void cut_shape(const struct node *node, const struct part *part, int operand, struct tensor *tensor) {
    if (part->elements > 0 && belongs_to_parameter(tensor))
        tensor->shape = shape_make(tensor->shape.dtype, 1, part->elements, 0, 0);
    if (part->elements > 0) return;
    bool weight = tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_GRADIENT;
    if (weight && part->vocab > 0) tensor->shape.dims[0] = part->vocab;
    if (weight || tensor->kind == TENSOR_RESULT || part->tokens == 0) return;
    tensor->shape.dims[0] = 1;
    tensor->shape.dims[node->op->positions_last >> operand & 1 ? 2 : 1] = part->tokens;
}

static void cut_operand(const struct operands *operands, const struct part *part, int operand, struct part_node *out) {
    const struct tensor *of = operand_tensor(operands->node, operand);
    int storage = operands->storage[operand];
    struct tensor *tensor = &out->tensors[operand];
    *tensor = *of;
    cut_shape(operands->node, part, operand, tensor);
    if (part->elements > 0) { /* no columns of something */
        tensor->base = NULL;
        tensor->base_column = 0;
    } else if (of->base) {
        out->bases[storage] = *of->base;
        cut_shape(operands->node, part, operand, &out->bases[storage]);
        tensor->base = &out->bases[storage];
    }
    if (of->base || operands->storages[storage].tensor == of)
        out->operands.storages[storage].tensor = tensor_storage(tensor);
    if (operand < OP_INPUTS_MAX)
        out->node.in[operand] = tensor;
    else
        out->node.out[operand - OP_INPUTS_MAX] = tensor;
}

static void set_table_rows(int64_t rows, struct part_node *out) {
    memcpy(out->attributes, out->node.attributes, out->node.op->attribute_bytes);
    out->node.op->set_table_rows(out->attributes, rows);
    out->node.attributes = out->attributes;
}

void part_node_make(const struct operands *operands, const struct part *part, struct part_node *out) {
    out->node = *operands->node;
    out->operands = *operands;
    out->operands.node = &out->node;
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (operand_tensor(operands->node, i)) cut_operand(operands, part, i, out);
    if (part->elements > 0) resize_results(&out->node);
    if (operands->node->op->set_table_rows && part->vocab > 0) set_table_rows(part->vocab, out);
}

double parts_seconds(const struct operands *operands, const struct parts *parts, const double seconds[PARTS_MAX]) {
    double whole = flops_of(operands->node), flops[PARTS_MAX];
    for (int i = 0; i < parts->count; i++) {
        struct part_node node;
        part_node_make(operands, &parts->part[i], &node);
        flops[i] = flops_of(&node.node);
    }
    if (parts->count == 1) return whole > 0 ? seconds[0] * whole / flops[0] : seconds[0];
    double slope = (seconds[1] - seconds[0]) / (flops[1] - flops[0]);
    /* The line is limited by the larger part's time below, and by its time in proportion to the work above. */
    return fmin(fmax(seconds[1] + slope * (whole - flops[1]), seconds[1]), seconds[1] * whole / flops[1]);
}

enum {
    ELEMENT_BYTES = 4 * 4,
    PASSES_MAX = 3,
    CALLS_MIN = 2 /* calls of a measurement, the first of which does not count */
};

void points_free(struct points *points) {
    vec_free(&points->list);
    scratch_free(&points->keys);
}

static const char *key_of(struct points *points, const struct operands *operands) {
    const char *key = operator_key(operands, &points->keys);
    return key && points->on_host ? scratch_format(&points->keys, "host %s", key) : key;
}

static enum status add_point(struct points *points, const struct point *point, int32_t *out) {
    for (size_t i = 0; i < points->list.count; i++)
        if (strcmp(points->list.items[i].key, point->key) == 0) {
            *out = (int32_t)i;
            return STATUS_OK;
        }
    *out = (int32_t)points->list.count;
    return vec_push(&points->list, *point);
}

/* `measured` is the operator, or the part or size measured in its place. */
static enum status add_point_of(struct points *points, const struct operands *measured, struct point point,
                                int32_t *out) {
    struct op_cost cost;
    op_cost(measured->node, &cost);
    point.work = cost.flops + cost.bytes;
    point.key = key_of(points, measured);
    return point.key ? add_point(points, &point, out) : STATUS_FAILED;
}

static enum status add_parts(struct points *points, const struct operands *operands, struct point_set *out) {
    for (int i = 0; i < out->parts.count; i++) {
        struct part_node node;
        part_node_make(operands, &out->parts.part[i], &node);
        const struct point point = {.operands = *operands, .part = out->parts.part[i]};
        TRY(add_point_of(points, &node.operands, point, &out->at[i]));
    }
    return STATUS_OK;
}

enum status points_add(struct points *points, const struct operands *operands, struct point_set *out) {
    *out = (struct point_set){.parts = curve_fits(operands->node) ? curve_parts()
                                                                  : parts_of(operands->node, points->large_flops)};
    if (out->parts.count > 0) return add_parts(points, operands, out);
    return add_point_of(points, operands, (struct point){.operands = *operands}, &out->at[0]);
}

struct measurement points_cost(const struct points *points, const struct operands *operands,
                               const struct point_set *set) {
    int count = set->parts.count;
    double seconds[PARTS_MAX], spread = 0;
    if (count == 0) return points->list.items[set->at[0]].measurement;
    for (int i = 0; i < count; i++) {
        struct measurement measurement = points->list.items[set->at[i]].measurement;
        seconds[i] = measurement.seconds;
        if (measurement.spread > spread) spread = measurement.spread;
    }
    double whole = set->parts.part[0].elements > 0 ? curve_seconds(seconds, curve_size(operands->node))
                                                   : parts_seconds(operands, &set->parts, seconds);
    return (struct measurement){whole, spread};
}

/* The measurements under way, and their order. */
struct measuring {
    struct points *points;
    const struct backend *backend;
    struct profile_cache *cache;
    struct bench_memory *memory; /* of each member of the contention group */
    struct point **order;
    size_t count;
    int64_t end_ns;
    int32_t measured;
};

ORDER_BY(by_work, struct point *, (*item)->work)

/* The elements of a curve's point whose weight, gradient and two moments fit the memory. Time is in proportion there.
 */
static int64_t elements_within(int64_t elements, int64_t memory_bytes) {
    while (elements > 1 && elements * ELEMENT_BYTES > memory_bytes)
        elements /= 2;
    return elements;
}

static bool is_part(const struct point *point) { return point->part.tokens > 0 || point->part.vocab > 0; }

/* One operator with operands of each member. */
struct benches {
    struct operator_bench *bench; /* by member */
    int count;
    int threads;
    double budget_s;
    struct measurement *out;
};

static enum status bench(void *payload, int member, const atomic_bool *ended) {
    const struct benches *benches = payload;
    if (member == 0) return operator_bench_measure(&benches->bench[0], benches->budget_s, benches->out);
    benches->bench[0].clock.backend->set_threads(benches->threads);
    while (!atomic_load(ended)) {
        operator_bench_evict(&benches->bench[member]);
        TRY(operator_bench_run(&benches->bench[member]));
    }
    return STATUS_OK;
}

static enum status measure_together(struct measuring *measuring, const struct operands *operands, double budget_s,
                                    struct measurement *out) {
    const struct contention *contention = &measuring->cache->contention;
    int members = contention_members(contention);
    struct benches benches = {.threads = measuring->cache->threads, .budget_s = budget_s, .out = out};
    enum status status = STATUS_OK;
    TRY(mem_items(&benches.bench, (size_t)members));
    for (; benches.count < members && status == STATUS_OK; benches.count++)
        status = operator_bench_open(measuring->backend, operands, measuring->points->evicts,
                                     &measuring->memory[benches.count], &benches.bench[benches.count]);
    if (status == STATUS_OK) status = contention_measure(contention, bench, &benches);
    for (int i = 0; i < benches.count; i++)
        operator_bench_close(&benches.bench[i]);
    mem_free(benches.bench);
    return status;
}

static enum status measure_once(struct measuring *measuring, struct point *point, double budget_s) {
    struct part_node node;
    struct part part = point->part;
    part.elements = elements_within(part.elements, measuring->cache->memory_bytes);
    bool whole = part.elements == 0 && !is_part(point);
    if (!whole) part_node_make(&point->operands, &part, &node);
    enum status status =
        measure_together(measuring, whole ? &point->operands : &node.operands, budget_s, &point->measurement);
    if (part.elements > 0) point->measurement.seconds *= (double)point->part.elements / (double)part.elements;
    if (status != STATUS_OK) return status_prefix(status, "measuring %s", point->operands.node->op->name);
    measuring->measured++;
    return profile_cache_put(measuring->cache, point->key, &point->measurement);
}

bool point_lacks(const struct point *point) {
    return point->measurement.seconds == 0 || measurement_noisy(&point->measurement);
}

/* Lacks a time, and is measured by itself. */
static bool is_alone(const struct measuring *measuring, const struct point *point) {
    return point_lacks(point) && !walk_points_has(measuring->points, point);
}

/* Logs, before the first measurement, how many the cache lacks. */
static void note_begin(const struct measuring *measuring, const struct points *points) {
    int parts = 0, again = 0;
    char of_parts[64] = "";
    for (size_t i = 0; i < measuring->count; i++) {
        parts += is_part(measuring->order[i]);
        again += measuring->order[i]->measurement.seconds > 0;
    }
    if (parts > 0) snprintf(of_parts, sizeof of_parts, ", %d of them on a part of their operands", parts);
    if (again == (int)measuring->count)
        log_note("measuring again %d operators, which other programs disturbed", again);
    else
        log_note("measuring %zu of the model's %zu operators%s%s (kept for the next time)", measuring->count,
                 points->list.count, points->on_host ? " in host memory" : "", of_parts);
}

static double left_s(const struct measuring *measuring) { return (double)(measuring->end_ns - clock_now_ns()) * 1e-9; }

/* In walks; `must`: all of them. */
static enum status walk(struct measuring *measuring, bool must) {
    double left = left_s(measuring), min = 1e-9;
    const struct walk_options options = {.backend = measuring->backend,
                                         .cache = measuring->cache,
                                         .memory = measuring->memory,
                                         .budget_s = left,
                                         .left_s = must         ? 0
                                                   : left > min ? left
                                                                : min};
    return walk_points_measure(measuring->points, &options, &measuring->measured);
}

static enum status measure_pass(struct measuring *measuring, bool must) {
    struct allowance allowance = {.end_ns = measuring->end_ns};
    TRY(walk(measuring, must));
    for (size_t i = 0; i < measuring->count; i++)
        allowance.left += is_alone(measuring, measuring->order[i]);
    for (size_t i = 0; i < measuring->count; i++) {
        if (!is_alone(measuring, measuring->order[i])) continue;
        double budget_s = allowance_next(&allowance);
        if (!must && measuring->order[i]->measurement.seconds > left_s(measuring) / CALLS_MIN) continue;
        TRY(measure_once(measuring, measuring->order[i], budget_s));
        if (must) progress_add(1);
    }
    return STATUS_OK;
}

static enum status measure_passes(struct points *points, struct measuring *measuring) {
    TRY(mem_items(&measuring->order, points->list.count));
    for (size_t i = 0; i < points->list.count; i++) {
        struct point *point = &points->list.items[i];
        (void)profile_cache_find(measuring->cache, point->key, &point->measurement);
        if (point_lacks(point)) measuring->order[measuring->count++] = point;
    }
    if (measuring->count == 0) return STATUS_OK;
    qsort(measuring->order, measuring->count, sizeof(struct point *), by_work);
    note_begin(measuring, points);
    progress_begin(PROGRESS_COUNT, (int64_t)measuring->count, "measuring operators");
    enum status status = STATUS_OK;
    for (int pass = 0; pass < PASSES_MAX && status == STATUS_OK; pass++)
        status = measure_pass(measuring, pass == 0);
    progress_end();
    return status;
}

enum status points_measure(struct points *points, const struct backend *backend, struct profile_cache *cache,
                           int64_t end_ns, int32_t *measured) {
    int members = contention_members(&cache->contention);
    struct measuring measuring = {.points = points, .backend = backend, .cache = cache, .end_ns = end_ns};
    TRY(mem_items(&measuring.memory, (size_t)members));
    for (int i = 0; i < members; i++)
        measuring.memory[i].max_bytes = cache->memory_bytes;
    enum status status = measure_passes(points, &measuring);
    *measured += measuring.measured;
    for (int i = 0; i < members; i++)
        bench_memory_free(&measuring.memory[i]);
    mem_free(measuring.memory);
    mem_free(measuring.order);
    return status;
}
