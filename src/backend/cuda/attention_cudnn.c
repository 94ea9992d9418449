#include "backend/cuda/attention_cudnn.h"

#include <cudnn.h>
#include <float.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANK = 4, DESCRIPTORS_MOST = 64, OPERATIONS_MOST = 16, NOTES_MOST = CUDNN_NUMERICAL_NOTE_TYPE_COUNT };
enum { MESSAGE_BYTES = 512, VERSION_BYTES = 32, OWN_ALIGN = 256 };

/* Identifiers of a plan's tensors; intermediate tensors are numbered from INSIDE on. */
enum { OPERAND_Q = 1, OPERAND_K, OPERAND_V, OPERAND_Y, OPERAND_LSE, OPERAND_SCALE, OPERAND_MASKED, INSIDE };
enum { OPERAND_COUNT = INSIDE - 1 };

typedef cudnnBackendDescriptor_t descriptor;

/* Plans of the current device; kernels of one shape share one, since the library takes seconds to compile it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct attention_cudnn *plans;

/* Descriptors, all of which live as long as the plan. An error sticks: what follows it does nothing. */
struct attention_cudnn {
    struct attention_cudnn_shape shape;
    struct attention_cudnn *next; /* of those that kernels share */
    int users;
    descriptor all[DESCRIPTORS_MOST];
    int count;
    descriptor operations[OPERATIONS_MOST];
    int operation_count;
    int64_t inside; /* tensors so far that stay inside */
    cudnnStatus_t status;
    const char *failed; /* what did */
    cudnnHandle_t library;
    descriptor plan;
    int64_t workspace_bytes;
};

static void check(struct attention_cudnn *at, cudnnStatus_t status, const char *what) {
    if (at->status != CUDNN_STATUS_SUCCESS || status == CUDNN_STATUS_SUCCESS) return;
    at->status = status;
    at->failed = what;
}

static descriptor begin(struct attention_cudnn *at, cudnnBackendDescriptorType_t type) {
    if (at->status != CUDNN_STATUS_SUCCESS) return NULL;
    BUG_IF(at->count == DESCRIPTORS_MOST, "too many descriptors");
    descriptor made = NULL;
    check(at, cudnnBackendCreateDescriptor(type, &made), "a descriptor");
    if (made) at->all[at->count++] = made;
    return made;
}

static void set(struct attention_cudnn *at, descriptor to, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (at->status == CUDNN_STATUS_SUCCESS)
        check(at, cudnnBackendSetAttribute(to, name, type, count, values), "an attribute");
}

static void link_to(struct attention_cudnn *at, descriptor to, cudnnBackendAttributeName_t name, descriptor value) {
    set(at, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish(struct attention_cudnn *at, descriptor made, const char *what) {
    if (at->status == CUDNN_STATUS_SUCCESS) check(at, cudnnBackendFinalize(made), what);
}

/* operand 0: an intermediate tensor. */
static descriptor tensor(struct attention_cudnn *at, int64_t operand, cudnnDataType_t type, const int64_t dims[RANK],
                         const int64_t strides[RANK]) {
    descriptor made = begin(at, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t alignment = 16, uid = operand > 0 ? operand : INSIDE + at->inside++;
    bool inside = operand == 0, by_value = operand == OPERAND_SCALE || operand == OPERAND_MASKED;
    set(at, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(at, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, RANK, dims);
    set(at, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, RANK, strides);
    set(at, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(at, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(at, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside);
    set(at, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finish(at, made, "a tensor");
    return made;
}

/* Heads of positions, `row` elements apart. */
static descriptor heads(struct attention_cudnn *at, int64_t operand, const struct attention_cudnn_shape *shape,
                        int64_t count, int64_t row, bool turned) {
    const int64_t length = shape->length, dim = shape->head_dim;
    const int64_t dims[RANK] = {shape->sequences, count, turned ? dim : length, turned ? length : dim};
    const int64_t strides[RANK] = {length * row, dim, turned ? 1 : row, turned ? row : 1};
    return tensor(at, operand, CUDNN_DATA_BFLOAT16, dims, strides);
}

/* [sequences][heads][length][columns], packed. */
static descriptor packed(struct attention_cudnn *at, int64_t operand, const struct attention_cudnn_shape *shape,
                         int64_t columns, cudnnDataType_t type) {
    const int64_t rows = shape->length * columns;
    const int64_t dims[RANK] = {shape->sequences, shape->heads, shape->length, columns};
    const int64_t strides[RANK] = {shape->heads * rows, rows, columns, 1};
    return tensor(at, operand, type, dims, strides);
}

static descriptor number(struct attention_cudnn *at, int64_t operand) {
    const int64_t ones[RANK] = {1, 1, 1, 1};
    return tensor(at, operand, CUDNN_DATA_FLOAT, ones, ones);
}

static void add_operation(struct attention_cudnn *at, descriptor operation, const char *what) {
    finish(at, operation, what);
    BUG_IF(at->operation_count == OPERATIONS_MOST, "too many operations");
    at->operations[at->operation_count++] = operation;
}

static descriptor product(struct attention_cudnn *at, descriptor a, descriptor b, descriptor c) {
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    descriptor kind = begin(at, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(at, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    finish(at, kind, "a product");
    descriptor operation = begin(at, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    link_to(at, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    link_to(at, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    link_to(at, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    link_to(at, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    add_operation(at, operation, "a product");
    return c;
}

/* An operation on each element; b and mask may be missing, axis is that of an index. */
struct elementwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type; /* that it computes in */
    descriptor x, b, mask, y;
    int64_t axis;
};

static descriptor elementwise(struct attention_cudnn *at, struct elementwise is) {
    descriptor kind = begin(at, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(at, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &is.mode);
    set(at, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &is.type);
    if (is.axis > 0) set(at, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &is.axis);
    finish(at, kind, "an elementwise operation");
    descriptor operation = begin(at, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, is.x);
    if (is.b) link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, is.b);
    if (is.mask) link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, is.mask);
    link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, is.y);
    add_operation(at, operation, "an elementwise operation");
    return is.y;
}

static descriptor reduction(struct attention_cudnn *at, cudnnReduceTensorOp_t how, descriptor x, descriptor y) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor kind = begin(at, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(at, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    set(at, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(at, kind, "a reduction");
    descriptor operation = begin(at, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    link_to(at, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    link_to(at, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    link_to(at, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(at, operation, "a reduction");
    return y;
}

static descriptor inside(struct attention_cudnn *at, const struct attention_cudnn_shape *shape, int64_t columns) {
    return packed(at, 0, shape, columns, CUDNN_DATA_FLOAT);
}

/* Scores, those of later keys replaced by the least number. */
static descriptor add_scores(struct attention_cudnn *at, const struct attention_cudnn_shape *shape) {
    const int64_t keys = shape->length;
    descriptor q = heads(at, OPERAND_Q, shape, shape->heads, shape->q_row, false);
    descriptor k = heads(at, OPERAND_K, shape, shape->kv_heads, shape->k_row, true);
    descriptor plain = product(at, q, k, inside(at, shape, keys));
    descriptor scores =
        elementwise(at, (struct elementwise){CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, .x = plain,
                                             .b = number(at, OPERAND_SCALE), .y = inside(at, shape, keys)});
    descriptor query =
        elementwise(at, (struct elementwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, .x = scores,
                                             .y = packed(at, 0, shape, keys, CUDNN_DATA_INT32), .axis = 2});
    descriptor key =
        elementwise(at, (struct elementwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, .x = scores,
                                             .y = packed(at, 0, shape, keys, CUDNN_DATA_INT32), .axis = 3});
    descriptor sees =
        elementwise(at, (struct elementwise){CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, .x = query, .b = key,
                                             .y = packed(at, 0, shape, keys, CUDNN_DATA_BOOLEAN)});
    return elementwise(at, (struct elementwise){CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, .x = scores,
                                                .b = number(at, OPERAND_MASKED), .mask = sees,
                                                .y = inside(at, shape, keys)});
}

/* y = softmax(scores) v, with the probabilities in bf16; lse = largest + log(sum of exp(score - largest)). */
static void add_softmax(struct attention_cudnn *at, const struct attention_cudnn_shape *shape, descriptor scores) {
    const int64_t keys = shape->length;
    const cudnnDataType_t real = CUDNN_DATA_FLOAT;
    descriptor largest = reduction(at, CUDNN_REDUCE_TENSOR_MAX, scores, inside(at, shape, 1));
    descriptor below = elementwise(
        at, (struct elementwise){CUDNN_POINTWISE_SUB, real, .x = scores, .b = largest, .y = inside(at, shape, keys)});
    descriptor weights =
        elementwise(at, (struct elementwise){CUDNN_POINTWISE_EXP, real, .x = below, .y = inside(at, shape, keys)});
    descriptor sum = reduction(at, CUDNN_REDUCE_TENSOR_ADD, weights, inside(at, shape, 1));
    descriptor log =
        elementwise(at, (struct elementwise){CUDNN_POINTWISE_LOG, real, .x = sum, .y = inside(at, shape, 1)});
    elementwise(at, (struct elementwise){CUDNN_POINTWISE_ADD, real, .x = largest, .b = log,
                                         .y = packed(at, OPERAND_LSE, shape, 1, real)});
    descriptor parts = elementwise(at, (struct elementwise){CUDNN_POINTWISE_DIV, real, .x = weights, .b = sum,
                                                            .y = packed(at, 0, shape, keys, CUDNN_DATA_BFLOAT16)});
    product(at, parts, heads(at, OPERAND_V, shape, shape->kv_heads, shape->v_row, false),
            heads(at, OPERAND_Y, shape, shape->heads, shape->y_row, false));
}

/* The device of the library's handle, or the one that a text describes. */
static descriptor describe_device(struct attention_cudnn *at, const char *device) {
    if (!device) {
        check(at, cudnnCreate(&at->library), "the library");
        return NULL;
    }
    descriptor made = begin(at, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(at, made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(device), device);
    finish(at, made, "the device's properties");
    return made;
}

static descriptor join_operations(struct attention_cudnn *at) {
    descriptor graph = begin(at, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(at, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, at->operation_count, at->operations);
    if (at->library) set(at, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &at->library);
    finish(at, graph, "the graph");
    return graph;
}

/* The first configuration that the library's rules put forward: they measure nothing. */
static descriptor choose_engine(struct attention_cudnn *at, descriptor graph, descriptor device) {
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    descriptor rules = begin(at, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    link_to(at, rules, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(at, rules, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (device) link_to(at, rules, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    finish(at, rules, "the choice of an engine");
    descriptor config = begin(at, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t found = 0;
    if (at->status == CUDNN_STATUS_SUCCESS)
        check(at,
              cudnnBackendGetAttribute(rules, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found,
                                       &config),
              "the choice of an engine");
    if (found < 1) check(at, CUDNN_STATUS_NOT_SUPPORTED, "the choice of an engine");
    return config;
}

static void refuse_unordered(struct attention_cudnn *at, descriptor config) {
    cudnnBackendNumericalNote_t notes[NOTES_MOST];
    descriptor engine = begin(at, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count = 0;
    if (at->status != CUDNN_STATUS_SUCCESS) return;
    check(at,
          cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                   &engine),
          "the engine");
    if (at->status != CUDNN_STATUS_SUCCESS) return;
    check(at,
          cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES_MOST,
                                   &count, notes),
          "the engine");
    for (int64_t i = 0; i < count && at->status == CUDNN_STATUS_SUCCESS; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            check(at, CUDNN_STATUS_NOT_SUPPORTED, "an engine whose results are the same each time");
}

static void make_plan(struct attention_cudnn *at, descriptor config, descriptor device) {
    int64_t count = 0;
    at->plan = begin(at, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (at->library) set(at, at->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &at->library);
    if (device) link_to(at, at->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    link_to(at, at->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finish(at, at->plan, "the plan");
    if (at->status == CUDNN_STATUS_SUCCESS)
        check(at,
              cudnnBackendGetAttribute(at->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                       &at->workspace_bytes),
              "the plan's workspace");
}

static void build(struct attention_cudnn *at, const struct attention_cudnn_shape *shape, const char *device) {
    descriptor properties = describe_device(at, device);
    add_softmax(at, shape, add_scores(at, shape));
    descriptor config = choose_engine(at, join_operations(at), properties);
    refuse_unordered(at, config);
    make_plan(at, config, properties);
}

/* A shape that cuDNN has no engine for is no failure. */
static enum status judge(const struct attention_cudnn *at) {
    char words[MESSAGE_BYTES] = "";
    if (at->status == CUDNN_STATUS_SUCCESS) return STATUS_OK;
    cudnnGetLastErrorString(words, sizeof words);
    (void)status_set(STATUS_FAILED, "cuDNN: %s: %s: %s", at->failed, cudnnGetErrorString(at->status), words);
    return CUDNN_STATUS_CATEGORY(at->status) == CUDNN_STATUS_NOT_SUPPORTED ? STATUS_OK : STATUS_FAILED;
}

static void destroy(struct attention_cudnn *at) {
    while (at->count > 0)
        cudnnBackendDestroyDescriptor(at->all[--at->count]);
    if (at->library) cudnnDestroy(at->library);
    mem_free(at);
}

static enum status create(const struct attention_cudnn_shape *shape, const char *device, struct attention_cudnn **out) {
    struct attention_cudnn *at = mem_array(1, sizeof *at);
    *out = NULL;
    if (!at) return STATUS_FAILED;
    at->shape = *shape;
    at->users = 1;
    build(at, shape, device);
    enum status status = judge(at);
    if (at->status == CUDNN_STATUS_SUCCESS)
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
    TRY(create(shape, NULL, out));
    if (!*out) return STATUS_OK;
    (*out)->next = plans;
    plans = *out;
    return STATUS_OK;
}

enum status attention_cudnn_create(const struct attention_cudnn_shape *shape, const char *device,
                                   struct attention_cudnn **out) {
    if (device) return create(shape, device, out);
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

int64_t attention_cudnn_workspace_bytes(const struct attention_cudnn *at) {
    return at->workspace_bytes > 0 ? workspace_align(at->workspace_bytes) + OWN_ALIGN - WORKSPACE_ALIGN : 0;
}

/* Creates a list of addresses for each call and frees it: the library has none whose addresses may be changed. */
static cudnnStatus_t execute(const struct attention_cudnn *at, void *const addresses[OPERAND_COUNT], void *workspace) {
    static const int64_t names[OPERAND_COUNT] = {OPERAND_Q,   OPERAND_K,     OPERAND_V,     OPERAND_Y,
                                                 OPERAND_LSE, OPERAND_SCALE, OPERAND_MASKED};
    descriptor list = NULL;
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &list);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    status = cudnnBackendSetAttribute(list, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, OPERAND_COUNT, names);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(list, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                          OPERAND_COUNT, addresses);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(list, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendFinalize(list);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendExecute(at->library, at->plan, list);
    cudnnBackendDestroyDescriptor(list);
    return status;
}

/* Several threads may call kernels that share a plan. */
void attention_cudnn_run(const struct attention_cudnn *at, const struct attention_cudnn_operands *operands,
                         void *workspace, cudaStream_t stream) {
    float scale = operands->scale, masked = -FLT_MAX;
    uintptr_t aligned = ((uintptr_t)workspace + OWN_ALIGN - 1) / OWN_ALIGN * OWN_ALIGN;
    void *const addresses[OPERAND_COUNT] = {operands->q,   operands->k, operands->v, operands->y,
                                            operands->lse, &scale,      &masked};
    pthread_mutex_lock(&lock);
    cudnnStatus_t status = cudnnSetStream(at->library, stream);
    if (status == CUDNN_STATUS_SUCCESS)
        status = execute(at, addresses, at->workspace_bytes > 0 ? (void *)aligned : NULL);
    pthread_mutex_unlock(&lock);
    /* On a device that has failed before, this fails too; cuda_refused then reports the device's failure. */
    if (status != CUDNN_STATUS_SUCCESS) cuda_refused(stream, "cuDNN: attention", cudnnGetErrorString(status));
}

bool attention_cudnn_wanted(void) {
    const char *choice = getenv("BALLAST_ATTENTION");
    return choice && strcmp(choice, "cudnn") == 0;
}

const char *attention_cudnn_version(void) {
    static char version[VERSION_BYTES];
    size_t number = cudnnGetVersion();
    if (!attention_cudnn_wanted()) return "";
    snprintf(version, sizeof version, "+cudnn%zu.%zu.%zu", number / 10000, number / 100 % 100, number % 100);
    return version;
}
