#include "support/product_rate.h"

#include <inttypes.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "base/clock.h"
#include "base/half.h"
#include "ops/ops.h"
#include "support/median.h"

enum { RUNS = 3, OPERANDS = 3, ALIGNMENT = 4096, PACKING = 64, FILL_VALUES = 1 << 16 };
static const double HOPELESS = 1.15; /* a layout this much slower in its first run than the best is not run again */

/* c [m,n] = a [m,k] b [k,n] */
struct sizes {
    int64_t m, n, k;
    enum dtype dtype, out_dtype;
};

struct layout {
    const char *name;
    dnnl_format_tag_t a, b, c;
};
static const struct layout layouts[] = {
    {"a rows, b rows", dnnl_ab, dnnl_ab, dnnl_ab},
    {"a rows, b columns", dnnl_ab, dnnl_ba, dnnl_ab},
    {"a columns, b rows", dnnl_ba, dnnl_ab, dnnl_ab},
    {"a columns, b columns", dnnl_ba, dnnl_ba, dnnl_ab},
    {"a rows, b packed", dnnl_ab, dnnl_format_tag_any, dnnl_ab},
    {"all packed", dnnl_format_tag_any, dnnl_format_tag_any, dnnl_format_tag_any},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* A primitive with its operands in the arena. */
struct candidate {
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[OPERANDS];
    const char *layout, *implementation;
    bool transposed;
};

struct product {
    struct sizes sizes;
    int64_t count; /* in a grain */
    struct candidate best;
    double seconds; /* in the last measurement */
};

struct product_rate {
    VEC(struct product) products;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct arena arena; /* of one product's operands at a time: first c's, then a's and b's, */
    int64_t factors_at; /* from here on: no c is read as a factor later, when it may hold what slows arithmetic */
};

static enum status failed(const char *what, dnnl_status_t status) {
    return status_set(STATUS_FAILED, "oneDNN cannot %s (its status %d)", what, (int)status);
}

static int64_t padded(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static double flops_of(const struct sizes *sizes) {
    return 2.0 * (double)sizes->m * (double)sizes->n * (double)sizes->k;
}

static enum status add_product(struct product_rate *rate, int64_t m, int64_t n, int64_t k, enum dtype dtype,
                               enum dtype out_dtype) {
    for (size_t i = 0; i < rate->products.count; i++) {
        struct sizes *other = &rate->products.items[i].sizes;
        if (other->m != m || other->n != n || other->k != k || other->out_dtype != out_dtype) continue;
        rate->products.items[i].count++;
        return STATUS_OK;
    }
    struct product product = {.sizes = {m, n, k, dtype, out_dtype}, .count = 1};
    return vec_push(&rate->products, product);
}

/* The products of a node: y = x w, dx = dy wt, dw = xt dy, or the head's three. */
static enum status add_node(struct product_rate *rate, const struct node *node) {
    const struct shape *first = &node->in[0]->shape;
    int64_t rows = shape_rows(first), columns = shape_columns(first);
    enum dtype dtype = first->dtype;
    if (node->op == &op_linear || node->op == &op_linear_dx)
        return add_product(rate, rows, shape_columns(&node->out[0]->shape), columns, dtype, dtype);
    if (node->op == &op_linear_dw)
        return add_product(rate, columns, shape_columns(&node->in[1]->shape), rows, dtype, DTYPE_F32);
    if (node->op != &op_head_loss_grad) return STATUS_OK;
    int64_t vocab = node->in[1]->shape.dims[0];
    TRY(add_product(rate, rows, vocab, columns, dtype, DTYPE_F32));
    if (node->out[1]) TRY(add_product(rate, rows, columns, vocab, dtype, dtype));
    return node->out[2] ? add_product(rate, vocab, columns, rows, dtype, DTYPE_F32) : STATUS_OK;
}

static dnnl_data_type_t data_type(enum dtype dtype) { return dtype == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32; }

/* Releases differ in what a description is. */
#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t describe(const struct sizes *sizes, const struct layout *layout, dnnl_engine_t engine,
                              dnnl_primitive_desc_t *out) {
    const dnnl_dims_t dims[OPERANDS] = {{sizes->m, sizes->k}, {sizes->k, sizes->n}, {sizes->m, sizes->n}};
    const dnnl_format_tag_t tags[OPERANDS] = {layout->a, layout->b, layout->c};
    dnnl_memory_desc_t operands[OPERANDS] = {NULL};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        status = dnnl_memory_desc_create_with_tag(&operands[i], 2, dims[i],
                                                  data_type(i < 2 ? sizes->dtype : sizes->out_dtype), tags[i]);
    if (status == dnnl_success)
        status = dnnl_matmul_primitive_desc_create(out, engine, operands[0], operands[1], NULL, operands[2], NULL);
    for (int i = 0; i < OPERANDS; i++)
        if (operands[i]) dnnl_memory_desc_destroy(operands[i]);
    return status;
}
typedef const_dnnl_memory_desc_t found_description;
#else
static dnnl_status_t describe(const struct sizes *sizes, const struct layout *layout, dnnl_engine_t engine,
                              dnnl_primitive_desc_t *out) {
    const dnnl_dims_t dims[OPERANDS] = {{sizes->m, sizes->k}, {sizes->k, sizes->n}, {sizes->m, sizes->n}};
    const dnnl_format_tag_t tags[OPERANDS] = {layout->a, layout->b, layout->c};
    dnnl_memory_desc_t operands[OPERANDS];
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        status = dnnl_memory_desc_init_by_tag(&operands[i], 2, dims[i],
                                              data_type(i < 2 ? sizes->dtype : sizes->out_dtype), tags[i]);
    dnnl_matmul_desc_t product;
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&product, &operands[0], &operands[1], NULL, &operands[2]);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &product, NULL, engine, NULL) : status;
}
typedef const dnnl_memory_desc_t *found_description;
#endif

static void candidate_free(struct candidate *candidate) {
    for (int i = 0; i < OPERANDS; i++)
        if (candidate->arguments[i].memory) dnnl_memory_destroy(candidate->arguments[i].memory);
    if (candidate->primitive) dnnl_primitive_destroy(candidate->primitive);
    if (candidate->description) dnnl_primitive_desc_destroy(candidate->description);
    *candidate = (struct candidate){0};
}

static enum status add_arguments(const struct product_rate *rate, struct candidate *candidate) {
    static const struct {
        int argument;
        dnnl_query_t query;
    } operands[OPERANDS] = {{DNNL_ARG_SRC, dnnl_query_src_md},
                            {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                            {DNNL_ARG_DST, dnnl_query_dst_md}};
    int64_t at = rate->factors_at;
    for (int i = 0; i < OPERANDS; i++) {
        found_description found = dnnl_primitive_desc_query_md(candidate->description, operands[i].query, 0);
        int64_t bytes = (int64_t)dnnl_memory_desc_get_size(found);
        int64_t from = operands[i].argument == DNNL_ARG_DST ? 0 : at,
                to = from == 0 ? rate->factors_at : rate->arena.bytes;
        BUG_IF(from + bytes > to, "operands larger than their arena");
        dnnl_status_t status =
            dnnl_memory_create(&candidate->arguments[i].memory, found, rate->engine, (char *)rate->arena.base + from);
        if (status != dnnl_success) return failed("make an operand", status);
        candidate->arguments[i].arg = operands[i].argument;
        at += padded(bytes);
    }
    return STATUS_OK;
}

/* Leaves out->primitive NULL where oneDNN has nothing but its slow reference for the layout. */
static enum status candidate_create(const struct product_rate *rate, const struct sizes *sizes,
                                    const struct layout *layout, struct candidate *out) {
    dnnl_status_t status = describe(sizes, layout, rate->engine, &out->description);
    if (status == dnnl_unimplemented) return STATUS_OK;
    if (status != dnnl_success) return failed("describe a product", status);
    status = dnnl_primitive_desc_query(out->description, dnnl_query_impl_info_str, 0, (void *)&out->implementation);
    if (status != dnnl_success) return failed("name its kernel", status);
    if (strncmp(out->implementation, "ref", 3) == 0) return STATUS_OK;
    out->layout = layout->name;
    status = dnnl_primitive_create(&out->primitive, out->description);
    if (status != dnnl_success) return failed("compile a product", status);
    return add_arguments(rate, out);
}

static enum status run_once(const struct product_rate *rate, const struct candidate *candidate, double *seconds) {
    int64_t start = clock_now_ns();
    dnnl_status_t status = dnnl_primitive_execute(candidate->primitive, rate->stream, OPERANDS, candidate->arguments);
    if (status == dnnl_success) status = dnnl_stream_wait(rate->stream);
    *seconds = (double)(clock_now_ns() - start) * 1e-9;
    return status == dnnl_success ? STATUS_OK : failed("run a product", status);
}

static enum status measure_candidate(const struct product_rate *rate, const struct candidate *candidate, double worst,
                                     double *seconds) {
    double runs[RUNS];
    for (int i = 0; i < RUNS; i++) {
        TRY(run_once(rate, candidate, &runs[i]));
        if (i == 0 && runs[0] > worst) {
            *seconds = runs[0];
            return STATUS_OK;
        }
    }
    *seconds = median(runs, RUNS);
    return STATUS_OK;
}

/* Takes the candidate over: it becomes the product's best, or is freed. */
static enum status consider(const struct product_rate *rate, struct product *product, struct candidate *candidate) {
    double seconds = 0, best = product->best.primitive ? product->seconds : 1e9;
    enum status status = STATUS_OK;
    if (candidate->primitive) {
        status = measure_candidate(rate, candidate, HOPELESS * best, &seconds);
        if (status == STATUS_OK && seconds < best) {
            struct candidate loser = product->best;
            product->best = *candidate;
            product->seconds = seconds;
            *candidate = loser;
        }
    }
    candidate_free(candidate);
    return status;
}

static enum status choose_best(const struct product_rate *rate, struct product *product) {
    for (int i = 0; i < 2 * LAYOUTS; i++) {
        struct sizes sizes = product->sizes;
        struct candidate candidate = {.transposed = i >= LAYOUTS};
        if (candidate.transposed) {
            sizes.m = product->sizes.n;
            sizes.n = product->sizes.m;
        }
        enum status status = candidate_create(rate, &sizes, &layouts[i % LAYOUTS], &candidate);
        if (status != STATUS_OK) {
            candidate_free(&candidate);
            return status;
        }
        TRY(consider(rate, product, &candidate));
    }
    const struct sizes *sizes = &product->sizes;
    if (!product->best.primitive)
        return status_set(STATUS_FAILED, "oneDNN has no kernel for %" PRId64 " x %" PRId64 " x %" PRId64, sizes->m,
                          sizes->n, sizes->k);
    return STATUS_OK;
}

/* Room for the largest product's operands with what packing adds; filled with values like activations',
 * since zeros and denormals have speeds of their own. */
static enum status open_arena(struct product_rate *rate) {
    enum dtype dtype = rate->products.items[0].sizes.dtype;
    int64_t element = dtype_bytes(dtype), factors = 0;
    for (size_t i = 0; i < rate->products.count; i++) {
        const struct sizes *sizes = &rate->products.items[i].sizes;
        int64_t m = sizes->m + PACKING, n = sizes->n + PACKING, k = sizes->k + PACKING;
        int64_t c_bytes = padded(4 * m * n), bytes = padded(element * m * k) + padded(element * k * n);
        if (c_bytes > rate->factors_at) rate->factors_at = c_bytes;
        if (bytes > factors) factors = bytes;
    }
    TRY(arena_open(TIER_DEVICE, rate->factors_at + factors, &rate->arena));
    for (int64_t i = 0; i < rate->arena.bytes / element; i++) {
        float value = (float)((uint64_t)i * 2654435761u % FILL_VALUES) / (float)FILL_VALUES - 0.5f;
        if (dtype == DTYPE_BF16)
            ((uint16_t *)rate->arena.base)[i] = bf16_from_float(value);
        else
            ((float *)rate->arena.base)[i] = value;
    }
    return STATUS_OK;
}

static enum status prepare(struct product_rate *rate, const struct graph *graph) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        TRY(add_node(rate, graph->nodes.items[i]));
    if (rate->products.count == 0) return status_set(STATUS_FAILED, "the graph has no matrix products");
    dnnl_status_t status = dnnl_engine_create(&rate->engine, dnnl_cpu, 0);
    if (status == dnnl_success) status = dnnl_stream_create(&rate->stream, rate->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) return failed("start", status);
    TRY(open_arena(rate));
    for (size_t i = 0; i < rate->products.count; i++)
        TRY(choose_best(rate, &rate->products.items[i]));
    return STATUS_OK;
}

enum status product_rate_open(const struct graph *graph, struct product_rate **out) {
    struct product_rate *rate = mem_array(1, sizeof *rate);
    if (!rate) return STATUS_FAILED;
    enum status status = prepare(rate, graph);
    if (status == STATUS_OK)
        *out = rate;
    else
        product_rate_close(rate);
    return status;
}

void product_rate_close(struct product_rate *rate) {
    if (!rate) return;
    for (size_t i = 0; i < rate->products.count; i++)
        candidate_free(&rate->products.items[i].best);
    vec_free(&rate->products);
    if (rate->stream) dnnl_stream_destroy(rate->stream);
    if (rate->engine) dnnl_engine_destroy(rate->engine);
    arena_close(&rate->arena);
    mem_free(rate);
}

enum status product_rate_measure(struct product_rate *rate, double *flops_per_s) {
    double flops = 0, seconds = 0;
    for (size_t i = 0; i < rate->products.count; i++) {
        struct product *product = &rate->products.items[i];
        TRY(measure_candidate(rate, &product->best, 1e9, &product->seconds));
        flops += flops_of(&product->sizes) * (double)product->count;
        seconds += product->seconds * (double)product->count;
    }
    *flops_per_s = flops / seconds;
    return STATUS_OK;
}

void product_rate_print(const struct product_rate *rate, FILE *out) {
    for (size_t i = 0; i < rate->products.count; i++) {
        const struct product *product = &rate->products.items[i];
        const struct sizes *sizes = &product->sizes;
        fprintf(out,
                "  %6" PRId64 " x %5" PRId64 " x %5" PRId64 " -> %s  %3" PRId64 " a grain  %7.1f GFLOP/s  %s%s, %s\n",
                sizes->m, sizes->n, sizes->k, dtype_name(sizes->out_dtype), product->count,
                flops_of(sizes) / product->seconds * 1e-9, product->best.transposed ? "transposed, " : "",
                product->best.layout, product->best.implementation);
    }
}
