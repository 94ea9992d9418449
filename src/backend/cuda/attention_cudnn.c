#include "backend/cuda/attention_cudnn.h"

#include <float.h>
#include <pthread.h>

#include "backend/cuda/cudnn_graph.h"

enum { VERSION_BYTES = 48, OWN_ALIGN = 256 };
static const cudnnDataType_t FP32 = CUDNN_DATA_FLOAT, BF16 = CUDNN_DATA_BFLOAT16;

/* A call's operands. SUMS: of dy y for each query, in the workspace. */
enum operand { INSIDE, Q, K, V, Y, LSE, SCALE, MASKED, ONE, DY, DQ, DK, DV, SUMS };

/* Plans of the current device; kernels of one shape share one, since the library takes seconds to compile it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct attention_cudnn *plans;

struct attention_cudnn {
    struct cudnn_graph graph;
    struct attention_cudnn_shape shape;
    struct attention_cudnn *next; /* list of the attentions that kernels share */
    int users;
};

static bool is_gradient(const struct attention_cudnn_shape *shape) { return shape->dy_row > 0; }

/* Heads of positions, `row` elements apart; turned: [sequences][heads][head_dim][length]. */
static cudnn_descriptor heads(struct attention_cudnn *at, enum operand operand, int64_t count, int64_t row,
                              bool turned) {
    const int64_t length = at->shape.length, dim = at->shape.head_dim;
    return cudnn_graph_tensor(&at->graph,
                              &(struct cudnn_tensor){
                                  .operand = operand,
                                  .type = BF16,
                                  .dims = {at->shape.sequences, count, turned ? dim : length, turned ? length : dim},
                                  .strides = {length * row, dim, turned ? 1 : row, turned ? row : 1},
                              });
}

/* [sequences][heads][length][columns], packed. */
static cudnn_descriptor packed(struct attention_cudnn *at, enum operand operand, int64_t columns,
                               cudnnDataType_t type) {
    const int64_t rows = at->shape.length * columns;
    return cudnn_graph_tensor(&at->graph, &(struct cudnn_tensor){
                                              .operand = operand,
                                              .type = type,
                                              .dims = {at->shape.sequences, at->shape.heads, at->shape.length, columns},
                                              .strides = {at->shape.heads * rows, rows, columns, 1},
                                          });
}

static cudnn_descriptor inside(struct attention_cudnn *at, int64_t columns) {
    return packed(at, INSIDE, columns, FP32);
}

static cudnn_descriptor number(struct attention_cudnn *at, enum operand operand) {
    return cudnn_graph_tensor(
        &at->graph,
        &(struct cudnn_tensor){
            .operand = operand, .by_value = true, .type = FP32, .dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}});
}

/* In fp32, on all scores, or one number for each query. */
static cudnn_descriptor compute(struct attention_cudnn *at, cudnnPointwiseMode_t mode, cudnn_descriptor x,
                                cudnn_descriptor b, int64_t columns) {
    return cudnn_graph_elementwise(&at->graph,
                                   (struct cudnn_elementwise){mode, FP32, .x = x, .b = b, .y = inside(at, columns)});
}

static cudnn_descriptor index_of(struct attention_cudnn *at, cudnn_descriptor scores, int64_t axis) {
    cudnn_descriptor y = packed(at, INSIDE, at->shape.length, CUDNN_DATA_INT32);
    return cudnn_graph_elementwise(&at->graph, (struct cudnn_elementwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32,
                                                                          .x = scores, .y = y, .axis = axis});
}

/* Scores of later keys are replaced by the least number. */
static cudnn_descriptor add_mask(struct attention_cudnn *at, cudnn_descriptor scores) {
    const int64_t keys = at->shape.length;
    cudnn_descriptor query = index_of(at, scores, 2), key = index_of(at, scores, 3);
    cudnn_descriptor sees = cudnn_graph_elementwise(
        &at->graph, (struct cudnn_elementwise){CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, .x = query, .b = key,
                                               .y = packed(at, INSIDE, keys, CUDNN_DATA_BOOLEAN)});
    return cudnn_graph_elementwise(&at->graph, (struct cudnn_elementwise){CUDNN_POINTWISE_BINARY_SELECT, FP32,
                                                                          .x = scores, .b = number(at, MASKED),
                                                                          .mask = sees, .y = inside(at, keys)});
}

/* Of all keys. `k`: turned. */
static cudnn_descriptor add_scores(struct attention_cudnn *at, cudnn_descriptor q, cudnn_descriptor k) {
    const int64_t keys = at->shape.length;
    cudnn_descriptor plain = cudnn_graph_product(&at->graph, q, k, inside(at, keys));
    return compute(at, CUDNN_POINTWISE_MUL, plain, number(at, SCALE), keys);
}

/* y = softmax(scores) v, with the probabilities in bf16; lse = largest + log(sum of exp(score - largest)). */
static void build_forward(struct attention_cudnn *at) {
    const struct attention_cudnn_shape *shape = &at->shape;
    struct cudnn_graph *graph = &at->graph;
    const int64_t keys = shape->length;
    cudnn_descriptor scores = add_mask(at, add_scores(at, heads(at, Q, shape->heads, shape->q_row, false),
                                                      heads(at, K, shape->kv_heads, shape->k_row, true)));
    cudnn_descriptor largest = cudnn_graph_reduction(graph, CUDNN_REDUCE_TENSOR_MAX, scores, inside(at, 1));
    cudnn_descriptor below = compute(at, CUDNN_POINTWISE_SUB, scores, largest, keys);
    cudnn_descriptor weights = compute(at, CUDNN_POINTWISE_EXP, below, NULL, keys);
    cudnn_descriptor sum = cudnn_graph_reduction(graph, CUDNN_REDUCE_TENSOR_ADD, weights, inside(at, 1));
    cudnn_descriptor log = compute(at, CUDNN_POINTWISE_LOG, sum, NULL, 1);
    cudnn_graph_elementwise(graph, (struct cudnn_elementwise){CUDNN_POINTWISE_ADD, FP32, .x = largest, .b = log,
                                                              .y = packed(at, LSE, 1, FP32)});
    cudnn_descriptor parts =
        cudnn_graph_elementwise(graph, (struct cudnn_elementwise){CUDNN_POINTWISE_DIV, FP32, .x = weights, .b = sum,
                                                                  .y = packed(at, INSIDE, keys, BF16)});
    cudnn_graph_product(graph, parts, heads(at, V, shape->kv_heads, shape->v_row, false),
                        heads(at, Y, shape->heads, shape->y_row, false));
}

/* [length of keys][length of queries] of each head, in bf16. */
static cudnn_descriptor add_turned(struct attention_cudnn *at, cudnn_descriptor x) {
    const int64_t length = at->shape.length, square = length * length;
    cudnn_descriptor y =
        cudnn_graph_tensor(&at->graph, &(struct cudnn_tensor){
                                           .type = BF16,
                                           .dims = {at->shape.sequences, at->shape.heads, length, length},
                                           .strides = {at->shape.heads * square, square, 1, length},
                                       });
    return cudnn_graph_reshape(&at->graph, x, y);
}

/* The GEMM of `turned` and b; summed over the query heads that a key-value head has. */
static void add_key_gradient(struct attention_cudnn *at, cudnn_descriptor turned, cudnn_descriptor b,
                             enum operand operand, int64_t row) {
    const struct attention_cudnn_shape *shape = &at->shape;
    cudnn_descriptor out = heads(at, operand, shape->kv_heads, row, false);
    if (shape->heads == shape->kv_heads) {
        cudnn_graph_product(&at->graph, turned, b, out);
        return;
    }
    cudnn_descriptor all = packed(at, INSIDE, shape->head_dim, BF16);
    cudnn_graph_product(&at->graph, turned, b, all);
    cudnn_graph_reduction(&at->graph, CUDNN_REDUCE_TENSOR_ADD, all, out);
}

/* The sums over each query's dy y, outside of the graph's inside: the engine writes and reads them. */
static cudnn_descriptor add_sums(struct attention_cudnn *at, cudnn_descriptor dy) {
    cudnn_descriptor y = heads(at, Y, at->shape.heads, at->shape.y_row, false);
    cudnn_descriptor products = compute(at, CUDNN_POINTWISE_MUL, dy, y, at->shape.head_dim);
    cudnn_descriptor sums = cudnn_graph_reduction(&at->graph, CUDNN_REDUCE_TENSOR_ADD, products, inside(at, 1));
    return cudnn_graph_elementwise(&at->graph,
                                   (struct cudnn_elementwise){CUDNN_POINTWISE_MUL, FP32, .x = sums,
                                                              .b = number(at, ONE), .y = packed(at, SUMS, 1, FP32)});
}

/* With p = exp(scores - lse) and ds = scale p (dy v^t - sums): dv = p^t dy, dk = ds^t q, dq = ds k. The GEMM for dq
 * uses whole rows of ds, which the engine keeps. It does not sum parts in the order of their arrival, so it is
 * deterministic. */
static void build_gradient(struct attention_cudnn *at) {
    const struct attention_cudnn_shape *shape = &at->shape;
    struct cudnn_graph *graph = &at->graph;
    const int64_t keys = shape->length;
    cudnn_descriptor q = heads(at, Q, shape->heads, shape->q_row, false);
    cudnn_descriptor k = heads(at, K, shape->kv_heads, shape->k_row, true);
    cudnn_descriptor dy = heads(at, DY, shape->heads, shape->dy_row, false);
    cudnn_descriptor sums = add_sums(at, dy);
    cudnn_descriptor scores = add_scores(at, q, k);
    cudnn_descriptor below = compute(at, CUDNN_POINTWISE_SUB, scores, packed(at, LSE, 1, FP32), keys);
    cudnn_descriptor p = compute(at, CUDNN_POINTWISE_EXP, add_mask(at, below), NULL, keys);
    add_key_gradient(at, add_turned(at, p), dy, DV, shape->dv_row);
    cudnn_descriptor dp =
        cudnn_graph_product(graph, dy, heads(at, V, shape->kv_heads, shape->v_row, true), inside(at, keys));
    cudnn_descriptor left = compute(at, CUDNN_POINTWISE_SUB, dp, sums, keys);
    cudnn_descriptor plain = compute(at, CUDNN_POINTWISE_MUL, left, p, keys);
    cudnn_descriptor ds = compute(at, CUDNN_POINTWISE_MUL, plain, number(at, SCALE), keys);
    add_key_gradient(at, add_turned(at, ds), q, DK, shape->dk_row);
    cudnn_descriptor rows = cudnn_graph_reshape(graph, k, heads(at, INSIDE, shape->kv_heads, shape->k_row, false));
    cudnn_graph_product(graph, ds, rows, heads(at, DQ, shape->heads, shape->dq_row, false));
}

static void destroy(struct attention_cudnn *at) {
    cudnn_graph_close(&at->graph);
    mem_free(at);
}

static enum status create_plan(const struct attention_cudnn_shape *shape, const char *device,
                               struct attention_cudnn **out) {
    struct attention_cudnn *at = mem_array(1, sizeof *at);
    *out = NULL;
    if (!at) return STATUS_FAILED;
    at->shape = *shape;
    at->users = 1;
    if (is_gradient(shape))
        build_gradient(at);
    else
        build_forward(at);
    cudnn_graph_plan(&at->graph, device);
    enum status status = cudnn_graph_judge(&at->graph);
    if (at->graph.status == CUDNN_STATUS_SUCCESS)
        *out = at;
    else
        destroy(at);
    return status;
}

static enum status find_or_create(const struct attention_cudnn_shape *shape, struct attention_cudnn **out) {
    for (struct attention_cudnn *at = plans; at; at = at->next)
        if (memcmp(&at->shape, shape, sizeof *shape) == 0) {
            at->users++;
            *out = at;
            return STATUS_OK;
        }
    TRY(create_plan(shape, NULL, out));
    if (!*out) return STATUS_OK;
    (*out)->next = plans;
    plans = *out;
    return STATUS_OK;
}

enum status attention_cudnn_create(const struct attention_cudnn_shape *shape, const char *device,
                                   struct attention_cudnn **out) {
    if (device) return create_plan(shape, device, out);
    pthread_mutex_lock(&lock);
    enum status status = find_or_create(shape, out);
    pthread_mutex_unlock(&lock);
    return status;
}

void attention_cudnn_free(struct attention_cudnn *at) {
    if (!at) return;
    pthread_mutex_lock(&lock);
    if (--at->users == 0) {
        struct attention_cudnn **place = &plans;
        while (*place && *place != at)
            place = &(*place)->next;
        if (*place) *place = at->next;
        destroy(at);
    }
    pthread_mutex_unlock(&lock);
}

/* Bytes of the sums, which stand before the library's own workspace. */
static int64_t sums_bytes(const struct attention_cudnn *at) {
    const struct attention_cudnn_shape *shape = &at->shape;
    int64_t bytes = shape->sequences * shape->heads * shape->length * (int64_t)sizeof(float);
    return is_gradient(shape) ? (bytes + OWN_ALIGN - 1) / OWN_ALIGN * OWN_ALIGN : 0;
}

/* Workspace of a call, 64-byte aligned. */
static int64_t workspace_bytes(const struct attention_cudnn *at) {
    int64_t bytes = sums_bytes(at) + at->graph.workspace_bytes;
    return bytes > 0 ? workspace_align(bytes) + OWN_ALIGN - WORKSPACE_ALIGN : 0;
}

static bool choice_is(const char *name) {
    const char *choice = getenv("BALLAST_ATTENTION");
    return choice && strcmp(choice, name) == 0;
}

static bool gradient_is_wanted(void) { return choice_is("cudnn-both"); }

static bool is_wanted(void) { return choice_is("cudnn") || gradient_is_wanted(); }

const char *attention_cudnn_version(void) {
    static char version[VERSION_BYTES];
    if (!is_wanted()) return "";
    size_t number = cudnnGetVersion();
    snprintf(version, sizeof version, "+cudnn%s%zu.%zu.%zu", gradient_is_wanted() ? "-both" : "", number / 10000,
             number / 100 % 100, number % 100);
    return version;
}

/* ---- kernels by plans ---- */

struct plan_kernel {
    struct kernel kernel;
    struct attention_cudnn *plan;
};

static void plan_release(struct kernel *kernel) {
    attention_cudnn_free(((struct plan_kernel *)kernel)->plan);
    mem_free(kernel);
}

/* Several threads may call kernels that share a plan. On a device that has failed before, the call fails too;
 * cuda_refused then reports the device's failure. */
static enum status plan_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct attention_cudnn *at = ((const struct plan_kernel *)kernel)->plan;
    float scale = (float)NODE_ATTRIBUTES(kernel->node, attention_attributes)->scale, masked = -FLT_MAX, one = 1;
    char *sums = (char *)(((uintptr_t)call->workspace + OWN_ALIGN - 1) / OWN_ALIGN * OWN_ALIGN);
    void *const *in = call->in, *const *out = call->out;
    void *forward[CUDNN_OPERANDS_MAX] = {[Q - 1] = in[0],       [K - 1] = in[1],    [V - 1] = in[2],
                                         [Y - 1] = out[0],      [LSE - 1] = out[1], [SCALE - 1] = &scale,
                                         [MASKED - 1] = &masked};
    void *gradient[CUDNN_OPERANDS_MAX] = {
        [DY - 1] = in[0],  [Q - 1] = in[1],      [K - 1] = in[2],       [V - 1] = in[3],   [Y - 1] = in[4],
        [LSE - 1] = in[5], [DQ - 1] = out[0],    [DK - 1] = out[1],     [DV - 1] = out[2], [SUMS - 1] = sums,
        [ONE - 1] = &one,  [SCALE - 1] = &scale, [MASKED - 1] = &masked};
    void *own = at->graph.workspace_bytes > 0 ? sums + sums_bytes(at) : NULL;
    pthread_mutex_lock(&lock);
    cudnnStatus_t status =
        cudnn_graph_execute(&at->graph, is_gradient(&at->shape) ? gradient : forward, own, stream_of(call));
    pthread_mutex_unlock(&lock);
    if (status != CUDNN_STATUS_SUCCESS) cuda_refused(stream_of(call), "cuDNN: attention", cudnnGetErrorString(status));
    return cuda_outcome();
}

/* An operand that is left out has none. */
static bool has_vectors(const struct tensor *tensor) {
    return tensor && cuda_alignment(tensor) >= 16 &&
           tensor_row_stride(tensor) * dtype_bytes(tensor->shape.dtype) % 16 == 0;
}

static bool are_vectors(struct tensor *const tensors[], int count) {
    for (int i = 0; i < count; i++)
        if (!has_vectors(tensors[i])) return false;
    return true;
}

/* Whether cuDNN is asked for an engine. */
static bool suits(const struct node *node, const struct tensor *q, const struct tensor *segments) {
    const struct attention_attributes *attributes = NODE_ATTRIBUTES(node, attention_attributes);
    bool whole = !segments && (attributes->window <= 0 || attributes->window >= q->shape.dims[1]);
    bool head = attributes->head_dim % 8 == 0 && attributes->head_dim <= 128 && attributes->softcap == 0;
    return q->shape.dtype == DTYPE_BF16 && whole && head && attributes->queries.parts <= 1;
}

static struct attention_cudnn_shape shape_of(const struct node *node, struct tensor *const qkv[3],
                                             const struct tensor *y) {
    const struct attention_attributes *attributes = NODE_ATTRIBUTES(node, attention_attributes);
    return (struct attention_cudnn_shape){
        .sequences = qkv[0]->shape.dims[0],
        .length = qkv[0]->shape.dims[1],
        .heads = attributes->heads,
        .kv_heads = attributes->kv_heads,
        .head_dim = attributes->head_dim,
        .q_row = tensor_row_stride(qkv[0]),
        .k_row = tensor_row_stride(qkv[1]),
        .v_row = tensor_row_stride(qkv[2]),
        .y_row = tensor_row_stride(y),
    };
}

/* *out stays NULL where the library has no plan. */
static enum status create(const struct node *node, const struct attention_cudnn_shape *shape, struct kernel **out) {
    struct attention_cudnn *plan;
    TRY(attention_cudnn_create(shape, NULL, &plan));
    if (!plan) {
        status_clear();
        return STATUS_OK;
    }
    struct plan_kernel *kernel = kernel_new(node, sizeof *kernel, plan_run);
    if (!kernel) {
        attention_cudnn_free(plan);
        return STATUS_FAILED;
    }
    kernel->plan = plan;
    kernel->kernel.release = plan_release;
    kernel->kernel.workspace_bytes = workspace_bytes(plan);
    *out = &kernel->kernel;
    return STATUS_OK;
}

enum status attention_cudnn_kernel(const struct node *node, struct kernel **out) {
    *out = NULL;
    if (!is_wanted() || !suits(node, node->in[0], node->in[3]) || node->in[4]) return STATUS_OK;
    if (!are_vectors(node->in, 3) || !has_vectors(node->out[0])) return STATUS_OK;
    const struct attention_cudnn_shape shape = shape_of(node, node->in, node->out[0]);
    return create(node, &shape, out);
}

enum status attention_cudnn_grad_kernel(const struct node *node, struct kernel **out) {
    *out = NULL;
    if (!gradient_is_wanted() || !suits(node, node->in[1], node->in[6])) return STATUS_OK;
    if (!are_vectors(node->in, 5) || !are_vectors(node->out, 3)) return STATUS_OK;
    struct attention_cudnn_shape shape = shape_of(node, node->in + 1, node->in[4]);
    shape.dy_row = tensor_row_stride(node->in[0]);
    shape.dq_row = tensor_row_stride(node->out[0]);
    shape.dk_row = tensor_row_stride(node->out[1]);
    shape.dv_row = tensor_row_stride(node->out[2]);
    return create(node, &shape, out);
}
