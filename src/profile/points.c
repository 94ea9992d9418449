#include "profile/points.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "profile/operator_key.h"

static const int64_t NOTE_EVERY_NS = 2000000000;
enum {
    ELEMENT_BYTES = 4 * 4,
    PASSES_MOST = 3,
    CALLS_LEAST = 2 /* of a measurement, the first of which does not count */
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

static enum status add_curve(struct points *points, const struct operands *operands, int32_t *first) {
    for (int i = 0; i < CURVE_POINTS; i++) {
        struct curve_node node;
        int32_t index;
        curve_node_make(operands, curve_elements[i], &node);
        const struct point point = {
            .key = key_of(points, &node.operands), .operands = *operands, .elements = curve_elements[i]};
        if (!point.key) return STATUS_FAILED;
        TRY(add_point(points, &point, &index));
        if (i == 0) *first = index;
    }
    return STATUS_OK;
}

enum status points_add(struct points *points, const struct operands *operands, int32_t *first) {
    if (curve_fits(operands->node)) return add_curve(points, operands, first);
    const struct point point = {.key = key_of(points, operands), .operands = *operands};
    return point.key ? add_point(points, &point, first) : STATUS_FAILED;
}

struct measurement points_cost(const struct points *points, const struct node *node, int32_t first) {
    const struct point *point = &points->list.items[first];
    double seconds[CURVE_POINTS], spread = 0;
    if (point->elements == 0) return point->measurement;
    for (int i = 0; i < CURVE_POINTS; i++) {
        seconds[i] = point[i].measurement.seconds;
        if (point[i].measurement.spread > spread) spread = point[i].measurement.spread;
    }
    return (struct measurement){curve_seconds(seconds, curve_size(node)), spread};
}

/* What is being measured, and the order of it. */
struct measuring {
    const struct backend *backend;
    struct profile_cache *cache;
    struct bench_memory memory;
    struct point **order;
    size_t count;
    int64_t end_ns, noted_ns;
    int32_t measured;
};

/* Bytes and arithmetic, as if both took one time: good enough for an order. */
static double work_of(const struct point *point) {
    struct op_cost cost;
    if (point->elements > 0) return (double)point->elements;
    op_cost(point->operands.node, &cost);
    return cost.flops + cost.bytes;
}

static int by_work(const void *left, const void *right) {
    double a = work_of(*(struct point *const *)left), b = work_of(*(struct point *const *)right);
    return (a > b) - (a < b);
}

/* Of a curve's point what fits the memory: weight, gradient and two moments. What it takes is in proportion there. */
static int64_t elements_within(int64_t elements, int64_t memory_bytes) {
    while (elements > 1 && elements * ELEMENT_BYTES > memory_bytes)
        elements /= 2;
    return elements;
}

static enum status measure_once(struct measuring *measuring, struct point *point, double budget_s) {
    struct operator_bench bench;
    struct curve_node curve;
    int64_t elements = elements_within(point->elements, measuring->memory.most_bytes);
    if (elements > 0) curve_node_make(&point->operands, elements, &curve);
    TRY(operator_bench_open(measuring->backend, elements > 0 ? &curve.operands : &point->operands, &measuring->memory,
                            &bench));
    enum status status = operator_bench_measure(&bench, budget_s, &point->measurement);
    if (elements > 0) point->measurement.seconds *= (double)point->elements / (double)elements;
    operator_bench_close(&bench);
    if (status != STATUS_OK) return status_prefix(status, "measuring %s", point->operands.node->op->name);
    measuring->measured++;
    TRY(profile_cache_put(measuring->cache, point->key, &point->measurement));
    (void)profile_cache_find(measuring->cache, point->key,
                             &point->measurement); /* the lower of it and what was there */
    return STATUS_OK;
}

static void note_progress(struct measuring *measuring, int left) {
    if (clock_now_ns() - measuring->noted_ns < NOTE_EVERY_NS) return;
    measuring->noted_ns = clock_now_ns();
    log_note("measuring operators: %zu of %zu", measuring->count - (size_t)left, measuring->count);
}

static bool lacks(const struct point *point) {
    return point->measurement.seconds == 0 || measurement_noisy(&point->measurement);
}

static enum status measure_pass(struct measuring *measuring, bool must) {
    struct allowance allowance = {.end_ns = measuring->end_ns};
    for (size_t i = 0; i < measuring->count; i++)
        allowance.left += lacks(measuring->order[i]);
    for (size_t i = 0; i < measuring->count; i++) {
        if (!lacks(measuring->order[i])) continue;
        double budget_s = allowance_next(&allowance), left_s = (double)(measuring->end_ns - clock_now_ns()) * 1e-9;
        if (!must && measuring->order[i]->measurement.seconds > left_s / CALLS_LEAST) continue;
        TRY(measure_once(measuring, measuring->order[i], budget_s));
        note_progress(measuring, allowance.left);
    }
    return STATUS_OK;
}

static enum status measure_passes(struct points *points, struct measuring *measuring) {
    measuring->order = mem_array(points->list.count, sizeof *measuring->order);
    if (!measuring->order) return STATUS_FAILED;
    for (size_t i = 0; i < points->list.count; i++) {
        struct point *point = &points->list.items[i];
        (void)profile_cache_find(measuring->cache, point->key, &point->measurement);
        if (lacks(point)) measuring->order[measuring->count++] = point;
    }
    if (measuring->count > 0) qsort(measuring->order, measuring->count, sizeof(struct point *), by_work);
    for (int pass = 0; pass < PASSES_MOST; pass++)
        TRY(measure_pass(measuring, pass == 0));
    return STATUS_OK;
}

enum status points_measure(struct points *points, const struct backend *backend, struct profile_cache *cache,
                           int64_t end_ns, int32_t *measured) {
    struct measuring measuring = {.backend = backend,
                                  .cache = cache,
                                  .end_ns = end_ns,
                                  .noted_ns = clock_now_ns(),
                                  .memory.most_bytes = cache->memory_bytes};
    enum status status = measure_passes(points, &measuring);
    *measured += measuring.measured;
    bench_memory_free(&measuring.memory);
    mem_free(measuring.order);
    return status;
}
