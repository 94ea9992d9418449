#include "profile/graph_walk.h"

#include <math.h>

#include "base/clock.h"
#include "base/terminal.h"

enum { ALIGNMENT = 64, LINE_BYTES = 64 };
static const double LONG_CALL_S = 0.15; /* one call of it is enough */

static int64_t align(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Whether a call does not write all of it, but finds values there. */
static bool is_read(const struct walk_call *call, int storage) {
    const struct node *node = call->operands.node;
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (call->operands.storage[i] == storage &&
            (i < OP_INPUTS_MAX || op_updates(node) >> (i - OP_INPUTS_MAX) & 1 || operand_tensor(node, i)->base))
            return true;
    return false;
}

static void place_storage(struct walk_call *call, int storage, int64_t *places, int64_t *bytes) {
    const struct tensor *tensor = call->operands.storages[storage].tensor;
    bool shared = tensor->shape.dtype != DTYPE_I32;
    if (shared && places[tensor->id] >= 0) {
        call->offset[storage] = places[tensor->id];
        return;
    }
    call->offset[storage] = *bytes;
    if (is_read(call, storage)) call->fills |= UINT32_C(1) << storage;
    if (shared) places[tensor->id] = *bytes;
    *bytes += align(shape_bytes(&tensor->shape));
}

/* If an output overwrites an input's bytes, its readers find it there. */
static void place_call(struct walk_call *call, int64_t *places, int64_t *bytes) {
    const struct tensor *out = call->operands.node->out[0];
    int first = call->operands.storage[OP_INPUTS_MAX];
    call->fills = 0;
    for (int i = 0; i < call->operands.storage_count; i++)
        place_storage(call, i, places, bytes);
    if (out && first >= 0) places[out->base ? out->base->id : out->id] = call->offset[first];
    call->scalars_offset = *bytes;
    *bytes += align(SCALAR_COUNT * sizeof(double));
}

int64_t node_walk_lay_out(const struct graph *graph, struct walk_call *calls, int count, int64_t *places) {
    int64_t bytes = 0;
    for (size_t i = 0; i < graph->tensors.count; i++)
        places[i] = -1;
    for (int i = 0; i < count; i++)
        place_call(&calls[i], places, &bytes);
    return bytes;
}

static void fill(const struct node_walk *walk, const struct walk_call *call) {
    const struct node *node = call->operands.node;
    double *scalars = (double *)(void *)(walk->base + call->scalars_offset);
    operator_values_scalars(node, scalars);
    for (int i = 0; i < call->operands.storage_count; i++)
        if (call->fills >> i & 1)
            operator_values_fill(node, call->operands.storages[i].tensor, walk->base + call->offset[i]);
}

static enum status open_walk(struct node_walk *walk, int64_t bytes, struct bench_memory *memory) {
    int64_t workspace_bytes = 0;
    for (int i = 0; i < walk->count; i++) {
        struct walk_call *call = &walk->calls[i];
        TRY(backend_kernel_create(walk->backend, call->operands.node, &call->kernel));
        if (call->kernel->workspace_bytes > workspace_bytes) workspace_bytes = call->kernel->workspace_bytes;
    }
    walk->workspace_offset = align(bytes);
    walk->flush_offset = walk->workspace_offset + align(workspace_bytes);
    TRY(bench_memory_grow(walk->backend, memory, walk->flush_offset + walk->flush_bytes));
    walk->base = memory->arena.base;
    for (int i = 0; i < walk->count; i++)
        fill(walk, &walk->calls[i]);
    return STATUS_OK;
}

enum status node_walk_open(const struct backend *backend, struct walk_call *calls, int count, int64_t bytes,
                           int64_t flush_bytes, struct bench_memory *memory, struct node_walk *out) {
    *out = (struct node_walk){.backend = backend, .calls = calls, .count = count, .flush_bytes = flush_bytes};
    return open_walk(out, bytes, memory);
}

void node_walk_close(struct node_walk *walk) {
    for (int i = 0; i < walk->count; i++) {
        struct kernel *kernel = walk->calls[i].kernel;
        if (kernel) kernel->release(kernel);
        walk->calls[i].kernel = NULL;
    }
}

static void flush(const struct node_walk *walk) {
    volatile const char *at = walk->base + walk->flush_offset;
    for (int64_t i = 0; i < walk->flush_bytes; i += LINE_BYTES)
        (void)at[i];
}

static void *operand_data(const struct node_walk *walk, const struct walk_call *call, int operand) {
    int storage = call->operands.storage[operand];
    if (storage < 0) return NULL;
    return walk->base + call->offset[storage] + tensor_storage_offset(operand_tensor(call->operands.node, operand));
}

static enum status run_call(const struct node_walk *walk, const struct walk_call *call) {
    bool works = call->kernel->workspace_bytes > 0;
    struct kernel_call arguments = {.workspace = works ? walk->base + walk->workspace_offset : NULL,
                                    .scalars = (const double *)(const void *)(walk->base + call->scalars_offset)};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        arguments.in[i] = operand_data(walk, call, i);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        arguments.out[i] = operand_data(walk, call, OP_INPUTS_MAX + i);
    return call->kernel->run(call->kernel, &arguments);
}

static void evict_operands(const struct node_walk *walk, const struct walk_call *call) {
    for (int i = 0; i < call->operands.storage_count; i++)
        if (call->evicts >> i & 1)
            evict(walk->base + call->offset[i], shape_bytes(&call->operands.storages[i].tensor->shape));
}

static bool begins_phase(const struct node_walk *walk, int i) {
    return i == 0 || walk->calls[i].operands.node->phase != walk->calls[i - 1].operands.node->phase;
}

/* Before a call that is timed goes the one before it, as in a step. */
static bool is_due(const struct node_walk *walk, int i) {
    return !walk->calls[i].settled || (i + 1 < walk->count && !walk->calls[i + 1].settled);
}

/* Makes a pass over the calls that are due; over all calls if `seconds` is NULL. */
static enum status make_pass(const struct node_walk *walk, double *seconds) {
    for (int i = 0; i < walk->count; i++) {
        const struct walk_call *call = &walk->calls[i];
        if (begins_phase(walk, i)) flush(walk);
        if (seconds && !is_due(walk, i)) continue;
        evict_operands(walk, call);
        int64_t begin = clock_now_ns();
        TRY(run_call(walk, call));
        if (seconds) seconds[i] = (double)(clock_now_ns() - begin) * 1e-9;
    }
    return STATUS_OK;
}

enum status node_walk_run(struct node_walk *walk) { return make_pass(walk, NULL); }

/* It is unknown which call waited for a processor, so all calls are assumed to have waited for the same fraction of
 * their time. */
static void keep(struct walk_call *call, double seconds, const struct sample *pass) {
    const double min_s = 1e-9;
    if (seconds < min_s) seconds = min_s;
    call->samples[call->count++] = (struct sample){seconds, seconds * pass->waited_s / pass->seconds};
    call->settled = seconds >= LONG_CALL_S || measurement_settled(call->samples, call->count);
}

/* Adds a sample to each call that lacks one. */
static enum status time_pass(struct node_walk *walk, double *seconds, double *spent_s) {
    struct stopwatch stopwatch = stopwatch_begin();
    TRY(make_pass(walk, seconds));
    struct sample pass = stopwatch_end(&stopwatch);
    *spent_s += pass.seconds;
    for (int i = 0; i < walk->count; i++)
        if (!walk->calls[i].settled) keep(&walk->calls[i], seconds[i], &pass);
    return STATUS_OK;
}

static bool are_settled(const struct node_walk *walk) {
    for (int i = 0; i < walk->count; i++)
        if (!walk->calls[i].settled) return false;
    return true;
}

/* The first call of a kernel may take twice the time of others: it counts where others are no lower. */
static enum status measure(struct node_walk *walk, double budget_s, double *seconds) {
    double spent_s = 0;
    for (int i = 0; i < walk->count; i++)
        walk->calls[i].count = 0, walk->calls[i].settled = false;
    for (int n = 0; n < WALK_PASSES_MAX && (n < WALK_PASSES_MIN || spent_s < budget_s) && !are_settled(walk); n++)
        TRY(time_pass(walk, seconds, &spent_s));
    return STATUS_OK;
}

enum status node_walk_measure(struct node_walk *walk, double budget_s) {
    AUTO_FREE double *seconds = mem_array((size_t)walk->count, sizeof *seconds);
    if (!seconds) return STATUS_FAILED;
    return measure(walk, budget_s, seconds);
}

/* Counted passes take so long for each node, at most. */
static const double NODE_S = 0.016;
/* Parts of the memory for measuring. Walks use one of the first parts. Reading one of the others, at most, empties the
 * caches. Half of the memory holds a layer. Apart from its passes, a walk spends most of its time on taking memory. */
enum { WALK_PARTS = 2, FLUSH_PARTS = 8 };
/* Steps of fewer bytes stay in the caches. */
static const int64_t STEP_BYTES_MIN = (int64_t)16 << 20;

bool walk_points_has(const struct points *points, const struct point *point) {
    return points->graph && point->part.elements == 0 && point->part.tokens == 0 && point->part.vocab == 0;
}

struct walking {
    struct points *points;
    const struct walk_options *options;
    struct point **timed; /* by call; NULL: it only goes before one that is */
    VEC(struct walk_call) calls;
    int64_t *places;
    bool *kept; /* operands_kept */
    int64_t flush_bytes;
    int32_t *measured;
};

static bool goes_before(const struct points *points, const struct node *node) {
    return !node->op->collective && !curve_fits(node) && parts_of(node, points->large_flops).count == 0;
}

static enum status add_call(struct walking *walking, const struct node *node, struct point *point) {
    struct walk_call call = {.count = 0};
    if (point)
        call.operands = point->operands;
    else
        operands_find(walking->points->graph, node, &call.operands);
    if (point) call.evicts = operands_out_of_caches(&call.operands, walking->kept);
    walking->timed[walking->calls.count] = point;
    return vec_push(&walking->calls, call);
}

/* Calls in the order of the graph. `lacking` has the points by node. */
static enum status list_calls(struct walking *walking, struct point *const *lacking) {
    const struct graph *graph = walking->points->graph;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        bool before = i + 1 < graph->nodes.count && lacking[i + 1] && goes_before(walking->points, node);
        if (lacking[i] || before) TRY(add_call(walking, node, lacking[i]));
    }
    return STATUS_OK;
}

static enum status find_calls(struct walking *walking) {
    const struct points *points = walking->points;
    size_t nodes = points->graph->nodes.count;
    AUTO_FREE struct point **lacking = mem_array(nodes, sizeof(struct point *));
    if (!lacking) return STATUS_FAILED;
    for (size_t i = 0; i < points->list.count; i++) {
        struct point *point = &points->list.items[i];
        if (walk_points_has(points, point) && point_lacks(point)) lacking[point->operands.node->id] = point;
    }
    return list_calls(walking, lacking);
}

/* One walk with the operands of each member. */
struct walks {
    struct node_walk *walk; /* by member */
    int count;
    int threads;
    double budget_s;
};

static enum status walk_member(void *payload, int member, const atomic_bool *ended) {
    const struct walks *walks = payload;
    if (member == 0) return node_walk_measure(&walks->walk[0], walks->budget_s);
    walks->walk[0].backend->set_threads(walks->threads);
    while (!atomic_load(ended))
        TRY(node_walk_run(&walks->walk[member]));
    return STATUS_OK;
}

/* Opens a member's own calls, since kernels have state. The first member's calls are the listed ones. */
static enum status open_member(const struct walking *walking, struct walk_call *calls, int count, int64_t bytes,
                               int member, struct walks *walks) {
    const struct walk_options *options = walking->options;
    struct walk_call *own = calls;
    if (member > 0) own = mem_array((size_t)count, sizeof *own);
    if (!own) return STATUS_FAILED;
    for (int i = 0; i < count && member > 0; i++)
        own[i] = calls[i], own[i].kernel = NULL;
    walks->count++;
    return node_walk_open(options->backend, own, count, bytes, walking->flush_bytes, &options->memory[member],
                          &walks->walk[member]);
}

static void close_walks(struct walks *walks) {
    for (int i = 0; i < walks->count; i++) {
        node_walk_close(&walks->walk[i]);
        if (i > 0) mem_free(walks->walk[i].calls);
    }
    mem_free(walks->walk);
}

static enum status walk_together(const struct walking *walking, struct walk_call *calls, int count) {
    const struct walk_options *options = walking->options;
    const struct contention *contention = &options->cache->contention;
    int members = contention_members(contention);
    int64_t bytes = node_walk_lay_out(walking->points->graph, calls, count, walking->places);
    struct walks walks = {.threads = options->cache->threads, .budget_s = NODE_S * count};
    if (walks.budget_s > options->budget_s) walks.budget_s = options->budget_s;
    TRY(mem_items(&walks.walk, (size_t)members));
    enum status status = STATUS_OK;
    for (int i = 0; i < members && status == STATUS_OK; i++)
        status = open_member(walking, calls, count, bytes, i, &walks);
    if (status == STATUS_OK) status = contention_measure(contention, walk_member, &walks);
    close_walks(&walks);
    return status;
}

static enum status keep_point(const struct walking *walking, struct walk_call *call, struct point *point) {
    point->measurement = measurement_of(call->samples, call->count);
    TRY(profile_cache_put(walking->options->cache, point->key, &point->measurement));
    ++*walking->measured;
    if (walking->options->left_s <= 0) progress_add(1);
    return STATUS_OK;
}

static double expected_s(const struct walking *walking, int first, int end) {
    double seconds = 0;
    for (int i = first; i < end; i++)
        if (walking->timed[i]) seconds += walking->timed[i]->measurement.seconds;
    return 2 * seconds;
}

static enum status walk(const struct walking *walking, int first, int end) {
    const struct walk_options *options = walking->options;
    if (options->left_s > 0 && expected_s(walking, first, end) > options->left_s) return STATUS_OK;
    struct walk_call *calls = &walking->calls.items[first];
    enum status status = walk_together(walking, calls, end - first);
    if (status != STATUS_OK) return status_prefix(status, "measuring operators");
    for (int i = first; i < end; i++)
        if (walking->timed[i]) TRY(keep_point(walking, &walking->calls.items[i], walking->timed[i]));
    return STATUS_OK;
}

int64_t walk_step_bytes(const struct graph *graph) {
    int64_t bytes = 0;
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (!graph->tensors.items[i]->base) bytes += shape_bytes(&graph->tensors.items[i]->shape);
    return bytes;
}

/* By stores that go through the caches, as those of most kernels. */
static void write_bytes(char *to, int64_t bytes) {
    enum { PART_BYTES = 1 << 20 };
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < bytes; first += PART_BYTES)
        memset(to + first, 0, (size_t)(bytes - first < PART_BYTES ? bytes - first : PART_BYTES));
}

static double write_s(void *to, int64_t bytes, bool evicted) {
    if (evicted) evict(to, bytes);
    int64_t begin = clock_now_ns();
    write_bytes(to, bytes);
    return (double)(clock_now_ns() - begin) * 1e-9;
}

/* Whether a step finds fewer bytes in the caches than it touches. The reported size of the last-level cache may be
 * shared with other virtual machines, which this one cannot see. So the test writes as many bytes repeatedly, once as
 * they are and once out of the caches. Both take about equally long if the bytes leave the caches anyway. */
static bool leaves_caches(const struct walking *walking) {
    enum { ROUNDS = 3 };
    static const double SAME = 0.75;
    const struct backend *backend = walking->options->backend;
    const struct arena *arena = &walking->options->memory[0].arena;
    int64_t step = walk_step_bytes(walking->points->graph), bytes = step < arena->bytes ? step : arena->bytes;
    double again = INFINITY, evicted = INFINITY;
    if (!evict_possible() || step < STEP_BYTES_MIN) return false;
    if (step > backend->cache_bytes()) return true;
    (void)write_s(arena->base, bytes, false);
    for (int i = 0; i < ROUNDS; i++) {
        again = fmin(again, write_s(arena->base, bytes, false));
        evicted = fmin(evicted, write_s(arena->base, bytes, true));
    }
    return again > SAME * evicted;
}

/* As many calls as the memory has space for; a call that needs more has a walk of its own. */
static enum status walk_all(const struct walking *walking) {
    const struct graph *graph = walking->points->graph;
    const struct walk_options *options = walking->options;
    int64_t max = options->cache->memory_bytes / WALK_PARTS - walking->flush_bytes;
    int count = (int)walking->calls.count;
    int64_t all = count > 0 ? node_walk_lay_out(graph, walking->calls.items, count, walking->places)
                            : walk_step_bytes(graph); /* for leaves_caches */
    for (int i = 0; i < contention_members(&options->cache->contention); i++)
        TRY(bench_memory_grow(options->backend, &options->memory[i],
                              (all < max ? all : max) + walking->flush_bytes)); /* once, not walk by walk */
    walking->points->evicts = leaves_caches(walking);
    for (int i = 0; i < count && !walking->points->evicts; i++)
        walking->calls.items[i].evicts = 0;
    for (int first = 0, end; first < count; first = end) {
        struct walk_call *calls = &walking->calls.items[first];
        for (end = first + 1; end < count; end++)
            if (node_walk_lay_out(graph, calls, end + 1 - first, walking->places) > max) break;
        TRY(walk(walking, first, end));
    }
    return STATUS_OK;
}

/* Reading 1.5 times the bytes of the last cache replaces all that it holds. */
static int64_t flush_bytes(const struct walking *walking) {
    int64_t max = walking->options->cache->memory_bytes / FLUSH_PARTS, step = walk_step_bytes(walking->points->graph);
    int64_t cache = walking->options->backend->cache_bytes();
    if (cache > 0 && max > cache / 2 * 3) max = cache / 2 * 3;
    return step < max ? step : max;
}

enum status walk_points_measure(struct points *points, const struct walk_options *options, int32_t *measured) {
    struct walking walking = {.points = points, .options = options, .measured = measured};
    if (!points->graph) return STATUS_OK;
    enum status status = STATUS_FAILED;
    walking.flush_bytes = flush_bytes(&walking);
    walking.timed = mem_array(points->graph->nodes.count, sizeof(struct point *));
    walking.places = mem_array(points->graph->tensors.count, sizeof *walking.places);
    walking.kept = operands_kept(points->graph);
    if (walking.timed && walking.places && walking.kept) status = find_calls(&walking);
    if (status == STATUS_OK) status = walk_all(&walking);
    vec_free(&walking.calls);
    mem_free(walking.timed);
    mem_free(walking.places);
    mem_free(walking.kept);
    return status;
}
