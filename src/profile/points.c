#include "profile/points.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/terminal.h"
#include "profile/operands.h"
#include "profile/walk_points.h"

enum {
    ELEMENT_BYTES = 4 * 4,
    PASSES_MAX = 3,
    CALLS_MIN = 2 /* of a measurement, the first of which does not count */
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

static enum status add_curve(struct points *points, const struct operands *operands, struct point_set *out) {
    for (int i = 0; i < CURVE_POINTS; i++) {
        struct curve_node node;
        curve_node_make(operands, curve_elements[i], &node);
        const struct point point = {.operands = *operands, .elements = curve_elements[i]};
        TRY(add_point_of(points, &node.operands, point, &out->at[i]));
    }
    return STATUS_OK;
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
    *out = (struct point_set){.parts = parts_of(operands->node, points->large_flops)};
    if (curve_fits(operands->node)) return add_curve(points, operands, out);
    if (out->parts.count > 0) return add_parts(points, operands, out);
    return add_point_of(points, operands, (struct point){.operands = *operands}, &out->at[0]);
}

struct measurement points_cost(const struct points *points, const struct operands *operands,
                               const struct point_set *set) {
    bool curve = curve_fits(operands->node);
    int count = curve ? CURVE_POINTS : set->parts.count;
    double seconds[CURVE_POINTS], spread = 0;
    if (count == 0) return points->list.items[set->at[0]].measurement;
    for (int i = 0; i < count; i++) {
        struct measurement measurement = points->list.items[set->at[i]].measurement;
        seconds[i] = measurement.seconds;
        if (measurement.spread > spread) spread = measurement.spread;
    }
    double whole =
        curve ? curve_seconds(seconds, curve_size(operands->node)) : parts_seconds(operands, &set->parts, seconds);
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

static int by_work(const void *left, const void *right) {
    double a = (*(struct point *const *)left)->work, b = (*(struct point *const *)right)->work;
    return (a > b) - (a < b);
}

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

static enum status lead(void *payload) {
    const struct benches *benches = payload;
    return operator_bench_measure(&benches->bench[0], benches->budget_s, benches->out);
}

static enum status contend(void *payload, int member, const atomic_bool *ended) {
    const struct benches *benches = payload;
    benches->bench[0].clock.backend->set_threads(benches->threads);
    while (!atomic_load(ended)) {
        operator_bench_evict(&benches->bench[member]);
        TRY(operator_bench_run(&benches->bench[member]));
    }
    return STATUS_OK;
}

static enum status measure_together(struct measuring *measuring, const struct operands *operands, double budget_s,
                                    struct measurement *out) {
    static const struct contention_work work = {lead, contend};
    const struct contention *contention = &measuring->cache->contention;
    int members = contention_members(contention);
    struct benches benches = {.threads = measuring->cache->threads, .budget_s = budget_s, .out = out};
    enum status status = STATUS_OK;
    benches.bench = mem_array((size_t)members, sizeof *benches.bench);
    if (!benches.bench) return STATUS_FAILED;
    for (; benches.count < members && status == STATUS_OK; benches.count++)
        status = operator_bench_open(measuring->backend, operands, measuring->points->evicts,
                                     &measuring->memory[benches.count], &benches.bench[benches.count]);
    if (status == STATUS_OK) status = contention_measure(contention, &work, &benches);
    for (int i = 0; i < benches.count; i++)
        operator_bench_close(&benches.bench[i]);
    mem_free(benches.bench);
    return status;
}

static enum status measure_once(struct measuring *measuring, struct point *point, double budget_s) {
    struct curve_node curve;
    struct part_node part;
    const struct operands *operands = &point->operands;
    int64_t elements = elements_within(point->elements, measuring->cache->memory_bytes);
    if (elements > 0) {
        curve_node_make(operands, elements, &curve);
        operands = &curve.operands;
    } else if (is_part(point)) {
        part_node_make(operands, &point->part, &part);
        operands = &part.operands;
    }
    enum status status = measure_together(measuring, operands, budget_s, &point->measurement);
    if (elements > 0) point->measurement.seconds *= (double)point->elements / (double)elements;
    if (status != STATUS_OK) return status_prefix(status, "measuring %s", point->operands.node->op->name);
    measuring->measured++;
    TRY(profile_cache_put(measuring->cache, point->key, &point->measurement));
    (void)profile_cache_find(measuring->cache, point->key,
                             &point->measurement); /* now the lower of the new and the old value */
    return STATUS_OK;
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
    measuring->order = mem_array(points->list.count, sizeof *measuring->order);
    if (!measuring->order) return STATUS_FAILED;
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
    measuring.memory = mem_array((size_t)members, sizeof *measuring.memory);
    if (!measuring.memory) return STATUS_FAILED;
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
