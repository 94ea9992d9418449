/* The rate of GEMMs, from calls of the backend's linear operator at two sizes. */
#include "base/half.h"
#include "ir/ops/ops.h"
#include "profile/cache.h"
#include "profile/measurement.h"
#include "profile/operator_bench.h"
#include "profile/profile.h"

enum { ALIGNMENT = 64, SIZES = 2, CALLS_MAX = 9 };

struct product {
    int64_t rows, inputs, outputs;
};
/* The GEMMs of a transformer block's MLP. */
static const struct product products[SIZES] = {{512, 768, 3072}, {512, 3072, 768}};
static const double BUDGET_S = 0.15; /* for both sizes */

/* Devices that need larger micro-batches to reach their rate also need larger GEMMs. */
static struct product product_for(const struct backend *backend, struct product product) {
    int64_t factor = backend->micro_batch_tokens / 1024;
    if (factor < 1) factor = 1;
    return (struct product){factor * factor * product.rows, factor * product.inputs, factor * product.outputs};
}

/* One linear kernel, with its operands in a block of memory. */
struct bench {
    const struct backend *backend;
    void *stream;
    struct graph *graph;
    struct kernel *kernel;
    struct kernel_call call;
    double flops;
};

static int64_t padded(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void fill_mapped(void *to, const struct shape *shape) {
    int64_t count = shape_elements(shape);
    for (int64_t i = 0; i < count; i++) {
        /* Values like those of activations, since zeros and denormals have other speeds. */
        float value = (float)(i * 2654435761u % 1024) / 1024.0f - 0.5f;
        if (shape->dtype == DTYPE_BF16)
            ((uint16_t *)to)[i] = bf16_from_float(value);
        else
            ((float *)to)[i] = value;
    }
}

static enum status fill(const struct bench *bench, void *to, const struct shape *shape) {
    if (!bench->backend->memory) {
        fill_mapped(to, shape);
        return STATUS_OK;
    }
    void *values = mem_array((size_t)shape_bytes(shape), 1);
    if (!values) return STATUS_FAILED;
    fill_mapped(values, shape);
    enum status status = bench->backend->memory->write(to, values, shape_bytes(shape));
    mem_free(values);
    return status;
}

static int64_t operand_bytes(const struct bench *bench) {
    const struct node *node = bench->kernel->node;
    return padded(shape_bytes(&node->in[0]->shape)) + padded(shape_bytes(&node->in[1]->shape)) +
           padded(shape_bytes(&node->out[0]->shape)) + padded(bench->kernel->workspace_bytes);
}

static enum status place_operands(struct bench *bench, char *at) {
    const struct node *node = bench->kernel->node;
    const struct shape *x = &node->in[0]->shape, *weight = &node->in[1]->shape, *y = &node->out[0]->shape;
    bench->call.in[0] = at;
    bench->call.in[1] = at += padded(shape_bytes(x));
    bench->call.out[0] = at += padded(shape_bytes(weight));
    bench->call.workspace = at + padded(shape_bytes(y));
    bench->call.stream = bench->stream;
    TRY(fill(bench, bench->call.in[0], x));
    return fill(bench, bench->call.in[1], weight);
}

static enum status bench_open(const struct backend *backend, enum dtype dtype, const struct product *product,
                              struct bench *bench) {
    bench->backend = backend;
    if (backend->streams) TRY(backend->streams->enter());
    if (backend->streams) TRY(backend->streams->create(&bench->stream));
    bench->graph = graph_create(dtype, 1, product->rows);
    if (!bench->graph) return STATUS_FAILED;
    graph_begin_block(bench->graph, "rate");
    struct tensor *x =
        graph_tensor(bench->graph, TENSOR_INPUT, "x", shape_make(dtype, 3, 1, product->rows, product->inputs));
    struct tensor *weight = graph_parameter(bench->graph, "weight", 2, product->outputs, product->inputs);
    struct tensor *y =
        ops_linear(bench->graph, "product", x, weight, NULL, NULL, (struct linear_attributes){.weight_is_kn = false});
    TRY(graph_status(bench->graph));
    bench->flops = 2.0 * (double)product->rows * (double)product->inputs * (double)product->outputs;
    return backend_kernel_create(backend, y->producer, &bench->kernel);
}

static void bench_close(struct bench *bench) {
    if (bench->stream) bench->backend->streams->free(bench->stream);
    if (bench->kernel) bench->kernel->release(bench->kernel);
    graph_free(bench->graph);
}

static enum status time_call(const struct bench *bench, struct sample *out) {
    const struct backend_streams *streams = bench->backend->streams;
    struct stopwatch stopwatch = stopwatch_begin();
    TRY(bench->kernel->run(bench->kernel, &bench->call));
    if (streams) TRY(streams->finish(bench->stream));
    *out = stopwatch_end(&stopwatch);
    out->seconds /= bench->flops * 1e-9;
    out->waited_s /= bench->flops * 1e-9;
    return STATUS_OK;
}

static bool are_settled(const struct sample calls[SIZES][CALLS_MAX], int count) {
    for (int i = 0; i < SIZES; i++)
        if (!measurement_settled(calls[i], count)) return false;
    return true;
}

/* The sizes take turns, so that the calls of each are spread over the time. */
static enum status measure_turns(const struct bench benches[SIZES], struct measurement *out) {
    struct sample calls[SIZES][CALLS_MAX];
    struct measurement sizes[SIZES];
    double spent = 0;
    int count = 0;
    for (int i = 0; i < SIZES; i++)
        TRY(time_call(&benches[i], &calls[i][0])); /* warms caches and threads */
    do {
        for (int i = 0; i < SIZES; i++) {
            TRY(time_call(&benches[i], &calls[i][count]));
            spent += calls[i][count].seconds * benches[i].flops * 1e-9;
        }
        count++;
    } while (count < CALLS_MAX && spent < BUDGET_S && !are_settled(calls, count));
    for (int i = 0; i < SIZES; i++)
        sizes[i] = measurement_of(calls[i], count);
    *out = sizes[0].seconds <= sizes[1].seconds ? sizes[0] : sizes[1];
    return STATUS_OK;
}

/* The sizes share one block, so that measuring takes the memory of one: what a call reads may be what another wrote. */
static enum status place_all(struct bench benches[SIZES], struct bench_memory *memory) {
    for (int i = 0; i < SIZES; i++)
        TRY(bench_memory_grow(benches[i].backend, memory, operand_bytes(&benches[i])));
    for (int i = 0; i < SIZES; i++)
        TRY(place_operands(&benches[i], memory->arena.base));
    return STATUS_OK;
}

enum status profile_measure_matrix_rate(const struct backend *backend, enum dtype dtype, struct measurement *out) {
    struct bench benches[SIZES] = {0};
    struct bench_memory memory = {.max_bytes = 0};
    enum status status;
    for (int i = 0; i < SIZES; i++) {
        struct product product = product_for(backend, products[i]);
        TRY_GOTO(status, bench_open(backend, dtype, &product, &benches[i]), done);
    }
    TRY_GOTO(status, place_all(benches, &memory), done);
    TRY_GOTO(status, measure_turns(benches, out), done);
done:
    for (int i = 0; i < SIZES; i++)
        bench_close(&benches[i]);
    bench_memory_free(&memory);
    return status;
}

/* One measurement, and what measures concurrently. */
struct rating {
    const struct backend *backend;
    enum dtype dtype;
    int threads;
    struct measurement *out;
};

static enum status lead(void *payload) {
    const struct rating *rating = payload;
    return profile_measure_matrix_rate(rating->backend, rating->dtype, rating->out);
}

static enum status contend(void *payload, int member, const atomic_bool *ended) {
    const struct rating *rating = payload;
    struct measurement dropped;
    (void)member;
    rating->backend->set_threads(rating->threads);
    while (!atomic_load(ended))
        TRY(profile_measure_matrix_rate(rating->backend, rating->dtype, &dropped));
    return STATUS_OK;
}

static double rate_of(const struct measurement *gflop) { return 1e9 / gflop->seconds; }

enum status profile_find_matrix_rate(const struct backend *backend, enum dtype dtype, struct profile_cache *cache,
                                     double *flops_per_s, int32_t *measured) {
    static const struct contention_work work = {lead, contend};
    struct measurement gflop;
    struct rating rating = {backend, dtype, cache->threads, &gflop};
    if (!profile_cache_find_product(cache, dtype, &gflop) || measurement_noisy(&gflop)) {
        TRY(contention_measure(&cache->contention, &work, &rating));
        TRY(profile_cache_put_product(cache, dtype, &gflop));
        (*measured)++;
        (void)profile_cache_find_product(cache, dtype, &gflop); /* now the lower of the new and the old value */
    }
    *flops_per_s = rate_of(&gflop);
    return STATUS_OK;
}

enum status profile_matrix_rate_kept(const struct backend *backend, enum dtype dtype,
                                     const struct profile_options *options, double *flops_per_s) {
    struct profile_cache cache;
    int32_t measured = 0;
    backend->set_threads(options->threads);
    enum status status = profile_cache_open(backend, options, options->memory_bytes, &cache);
    if (status == STATUS_OK) status = profile_find_matrix_rate(backend, dtype, &cache, flops_per_s, &measured);
    profile_cache_close(&cache);
    return status;
}
