#include "support/product_rate.h"

#include <inttypes.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "base/clock.h"
#include "base/half.h"
#include "ir/ops/ops.h"
#include "support/median.h"

enum { RUNS = 3, OPERANDS = 3, ALIGNMENT = 4096, PACKING = 64, FILL_VALUES = 1 << 16, CHOICE_MAX = 4096 };
static const double SECONDS_ENOUGH = 0.5;

/* c [m,n] = a [m,k] b [k,n] */
struct sizes {
    int64_t m, n, k;
    enum dtype out_dtype; /* of c */
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
struct gemm {
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[OPERANDS];
    const char *layout, *implementation;
    bool transposed;
};

struct product {
    struct sizes sizes;
    int64_t count; /* in a micro-batch */
    struct gemm best;
    double seconds; /* in the last measurement */
};

struct product_rate {
    enum dtype dtype; /* of a and b */
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

static enum status add_product(struct product_rate *rate, int64_t m, int64_t n, int64_t k, enum dtype out_dtype) {
    for (size_t i = 0; i < rate->products.count; i++) {
        struct sizes *other = &rate->products.items[i].sizes;
        if (other->m != m || other->n != n || other->k != k || other->out_dtype != out_dtype) continue;
        rate->products.items[i].count++;
        return STATUS_OK;
    }
    struct product product = {.sizes = {m, n, k, out_dtype}, .count = 1};
    return vec_push(&rate->products, product);
}

/* The products of a node: y = x w, dx = dy wt, dw = xt dy, or the head's three. */
static enum status add_node(struct product_rate *rate, const struct node *node) {
    const struct shape *first = &node->in[0]->shape;
    int64_t rows = shape_rows(first), columns = shape_columns(first);
    enum dtype dtype = rate->dtype;
    if (node->op == &op_linear || node->op == &op_linear_dx)
        return add_product(rate, rows, shape_columns(&node->out[0]->shape), columns, dtype);
    if (node->op == &op_linear_dw)
        return add_product(rate, columns, shape_columns(&node->in[1]->shape), rows, DTYPE_F32);
    if (node->op != &op_head_loss_grad) return STATUS_OK;
    int64_t vocab = node->in[1]->shape.dims[0];
    TRY(add_product(rate, rows, vocab, columns, DTYPE_F32));
    if (node->out[1]) TRY(add_product(rate, rows, columns, vocab, dtype));
    return node->out[2] ? add_product(rate, vocab, columns, rows, DTYPE_F32) : STATUS_OK;
}

static dnnl_data_type_t data_type(enum dtype dtype) { return dtype == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32; }

/* Releases differ in what a description is. */
#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t describe(const struct product_rate *rate, const struct sizes *sizes, const struct layout *layout,
                              dnnl_primitive_desc_t *out) {
    const dnnl_dims_t dims[OPERANDS] = {{sizes->m, sizes->k}, {sizes->k, sizes->n}, {sizes->m, sizes->n}};
    const dnnl_format_tag_t tags[OPERANDS] = {layout->a, layout->b, layout->c};
    dnnl_memory_desc_t operands[OPERANDS] = {NULL};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        status = dnnl_memory_desc_create_with_tag(&operands[i], 2, dims[i],
                                                  data_type(i < 2 ? rate->dtype : sizes->out_dtype), tags[i]);
    if (status == dnnl_success)
        status =
            dnnl_matmul_primitive_desc_create(out, rate->engine, operands[0], operands[1], NULL, operands[2], NULL);
    for (int i = 0; i < OPERANDS; i++)
        if (operands[i]) dnnl_memory_desc_destroy(operands[i]);
    return status;
}
typedef const_dnnl_memory_desc_t found_description;
#else
static dnnl_status_t describe(const struct product_rate *rate, const struct sizes *sizes, const struct layout *layout,
                              dnnl_primitive_desc_t *out) {
    const dnnl_dims_t dims[OPERANDS] = {{sizes->m, sizes->k}, {sizes->k, sizes->n}, {sizes->m, sizes->n}};
    const dnnl_format_tag_t tags[OPERANDS] = {layout->a, layout->b, layout->c};
    dnnl_memory_desc_t operands[OPERANDS];
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        status = dnnl_memory_desc_init_by_tag(&operands[i], 2, dims[i],
                                              data_type(i < 2 ? rate->dtype : sizes->out_dtype), tags[i]);
    dnnl_matmul_desc_t product;
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&product, &operands[0], &operands[1], NULL, &operands[2]);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &product, NULL, rate->engine, NULL) : status;
}
typedef const dnnl_memory_desc_t *found_description;
#endif

static void gemm_free(struct gemm *gemm) {
    for (int i = 0; i < OPERANDS; i++)
        if (gemm->arguments[i].memory) dnnl_memory_destroy(gemm->arguments[i].memory);
    if (gemm->primitive) dnnl_primitive_destroy(gemm->primitive);
    if (gemm->description) dnnl_primitive_desc_destroy(gemm->description);
    *gemm = (struct gemm){0};
}

static enum status add_arguments(const struct product_rate *rate, struct gemm *gemm) {
    static const struct {
        int argument;
        dnnl_query_t query;
    } operands[OPERANDS] = {{DNNL_ARG_SRC, dnnl_query_src_md},
                            {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                            {DNNL_ARG_DST, dnnl_query_dst_md}};
    int64_t at = rate->factors_at;
    for (int i = 0; i < OPERANDS; i++) {
        found_description found = dnnl_primitive_desc_query_md(gemm->description, operands[i].query, 0);
        int64_t bytes = (int64_t)dnnl_memory_desc_get_size(found);
        int64_t from = operands[i].argument == DNNL_ARG_DST ? 0 : at,
                to = from == 0 ? rate->factors_at : rate->arena.bytes;
        BUG_IF(from + bytes > to, "operands larger than their arena");
        dnnl_status_t status =
            dnnl_memory_create(&gemm->arguments[i].memory, found, rate->engine, (char *)rate->arena.base + from);
        if (status != dnnl_success) return failed("make an operand", status);
        gemm->arguments[i].arg = operands[i].argument;
        at += padded(bytes);
    }
    return STATUS_OK;
}

/* Leaves out->primitive NULL where oneDNN has nothing but its slow reference for the layout. */
static enum status gemm_create(const struct product_rate *rate, const struct sizes *sizes, const struct layout *layout,
                               struct gemm *out) {
    dnnl_status_t status = describe(rate, sizes, layout, &out->description);
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

static enum status run_once(const struct product_rate *rate, const struct gemm *gemm, double *seconds) {
    int64_t start = clock_now_ns();
    dnnl_status_t status = dnnl_primitive_execute(gemm->primitive, rate->stream, OPERANDS, gemm->arguments);
    if (status == dnnl_success) status = dnnl_stream_wait(rate->stream);
    *seconds = (double)(clock_now_ns() - start) * 1e-9;
    return status == dnnl_success ? STATUS_OK : failed("run a product", status);
}

/* One run of a large product is long enough to be told from noise. */
static enum status measure_gemm(const struct product_rate *rate, const struct gemm *gemm, double *seconds) {
    double runs[RUNS], spent = 0;
    int count = 0;
    for (; count < RUNS && spent < SECONDS_ENOUGH; count++) {
        TRY(run_once(rate, gemm, &runs[count]));
        spent += runs[count];
    }
    *seconds = median(runs, count);
    return STATUS_OK;
}

static int64_t smaller(int64_t size, int64_t max) { return size < max ? size : max; }

/* Candidate `choice` of the product, cut to at most `max` rows and columns. */
static enum status create_choice(const struct product_rate *rate, const struct sizes *sizes, int choice, int64_t max,
                                 struct gemm *out) {
    bool transposed = choice >= LAYOUTS;
    struct sizes cut = {
        .m = smaller(transposed ? sizes->n : sizes->m, max),
        .n = smaller(transposed ? sizes->m : sizes->n, max),
        .k = smaller(sizes->k, max),
        .out_dtype = sizes->out_dtype,
    };
    *out = (struct gemm){.transposed = transposed};
    enum status status = gemm_create(rate, &cut, &layouts[choice % LAYOUTS], out);
    if (status != STATUS_OK) gemm_free(out);
    return status;
}

/* Seconds of the choice, the first run left out; 1e9 where there is no such primitive. */
static enum status try_choice(const struct product_rate *rate, const struct sizes *sizes, int choice, double *seconds) {
    struct gemm gemm;
    enum status status = create_choice(rate, sizes, choice, CHOICE_MAX, &gemm);
    *seconds = 1e9;
    if (status == STATUS_OK && gemm.primitive) {
        status = run_once(rate, &gemm, seconds);
        if (status == STATUS_OK) status = run_once(rate, &gemm, seconds);
    }
    gemm_free(&gemm);
    return status;
}

/* Layouts are compared on products cut to CHOICE_MAX: a whole vocabulary would take minutes where bf16 is emulated. */
static enum status choose_best(const struct product_rate *rate, struct product *product) {
    const struct sizes *sizes = &product->sizes;
    double min = 1e9;
    int best = 0;
    for (int choice = 0; choice < 2 * LAYOUTS; choice++) {
        double seconds;
        TRY(try_choice(rate, sizes, choice, &seconds));
        if (seconds >= min) continue;
        min = seconds;
        best = choice;
    }
    TRY(create_choice(rate, sizes, best, INT64_MAX, &product->best));
    if (!product->best.primitive)
        return status_set(STATUS_FAILED, "oneDNN has no kernel for %" PRId64 " x %" PRId64 " x %" PRId64, sizes->m,
                          sizes->n, sizes->k);
    return STATUS_OK;
}

/* Space for the largest product's operands with what packing adds; filled with values like activations',
 * since zeros and denormals have speeds of their own. */
static enum status open_arena(struct product_rate *rate) {
    int64_t element = dtype_bytes(rate->dtype), factors = 0;
    for (size_t i = 0; i < rate->products.count; i++) {
        const struct sizes *sizes = &rate->products.items[i].sizes;
        int64_t m = sizes->m + PACKING, n = sizes->n + PACKING, k = sizes->k + PACKING;
        int64_t c_bytes = padded(4 * m * n), bytes = padded(element * m * k) + padded(element * k * n);
        if (c_bytes > rate->factors_at) rate->factors_at = c_bytes;
        if (bytes > factors) factors = bytes;
    }
    TRY(arena_open(TIER_DEVICE, rate->factors_at + factors, NULL, &rate->arena));
    for (int64_t i = 0; i < rate->arena.bytes / element; i++) {
        float value = (float)((uint64_t)i * 2654435761u % FILL_VALUES) / (float)FILL_VALUES - 0.5f;
        if (rate->dtype == DTYPE_BF16)
            ((uint16_t *)rate->arena.base)[i] = bf16_from_float(value);
        else
            ((float *)rate->arena.base)[i] = value;
    }
    return STATUS_OK;
}

static enum status prepare(struct product_rate *rate, const struct graph *graph) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        TRY(add_node(rate, graph->nodes.items[i]));
    if (rate->products.count == 0) return status_set(STATUS_FAILED, "the graph has no GEMMs");
    dnnl_status_t status = dnnl_engine_create(&rate->engine, dnnl_cpu, 0);
    if (status == dnnl_success) status = dnnl_stream_create(&rate->stream, rate->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) return failed("start", status);
    TRY(open_arena(rate));
    for (size_t i = 0; i < rate->products.count; i++)
        TRY(choose_best(rate, &rate->products.items[i]));
    return STATUS_OK;
}

enum status product_rate_open(const struct graph *graph, enum dtype dtype, struct product_rate **out) {
    struct product_rate *rate = mem_array(1, sizeof *rate);
    if (!rate) return STATUS_FAILED;
    rate->dtype = dtype;
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
        gemm_free(&rate->products.items[i].best);
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
        TRY(measure_gemm(rate, &product->best, &product->seconds));
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
                "  %6" PRId64 " x %5" PRId64 " x %5" PRId64 " -> %s  %3" PRId64
                " a micro-batch  %7.1f GFLOP/s  %s%s, %s\n",
                sizes->m, sizes->n, sizes->k, dtype_name(sizes->out_dtype), product->count,
                flops_of(sizes) / product->seconds * 1e-9, product->best.transposed ? "transposed, " : "",
                product->best.layout, product->best.implementation);
    }
}
