#include "backend/cuda/cudnn_graph.h"

#include "backend/cuda/library.h"

/* The functions of cuDNN that this backend uses. */

#define SONAME "libcudnn.so." OPENED_TEXT(CUDNN_MAJOR)

static struct opened_library cudnn_library = OPENED_LIBRARY(SONAME, CUDNN_FOLDER);

#define FORWARD(type, name, parameters, arguments, otherwise)                                                          \
    OPENED_FUNCTION(&cudnn_library, type, name, parameters, arguments, otherwise)
#define FORWARD_CALL(name, parameters, arguments)                                                                      \
    FORWARD(cudnnStatus_t, name, parameters, arguments, CUDNN_STATUS_NOT_INITIALIZED)

FORWARD(size_t, cudnnGetVersion, (void), (), 0)
FORWARD(const char *, cudnnGetErrorString, (cudnnStatus_t status), (status), SONAME " cannot be opened")
FORWARD_CALL(cudnnCreate, (cudnnHandle_t * handle), (handle))
FORWARD_CALL(cudnnDestroy, (cudnnHandle_t handle), (handle))
FORWARD_CALL(cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
FORWARD_CALL(cudnnBackendCreateDescriptor, (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor),
             (type, descriptor))
FORWARD_CALL(cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), (descriptor))
FORWARD_CALL(cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor))
FORWARD_CALL(cudnnBackendSetAttribute,
             (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
              int64_t count, const void *values),
             (descriptor, name, type, count, values))
FORWARD_CALL(cudnnBackendGetAttribute,
             (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *values),
             (descriptor, name, type, wanted, count, values))
FORWARD_CALL(cudnnBackendExecute,
             (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t addresses),
             (handle, plan, addresses))

void cudnnGetLastErrorString(char *message, size_t bytes) {
    void (*function)(char *, size_t);
    *(void **)&function = opened_library_find(&cudnn_library, "cudnnGetLastErrorString");
    if (function)
        function(message, bytes);
    else if (bytes > 0)
        message[0] = '\0';
}

enum { NOTES_MAX = CUDNN_NUMERICAL_NOTE_TYPE_COUNT, ENGINES_MAX = 8, MESSAGE_BYTES = 512 };

static void check(struct cudnn_graph *at, cudnnStatus_t status, const char *what) {
    if (at->status != CUDNN_STATUS_SUCCESS || status == CUDNN_STATUS_SUCCESS) return;
    at->status = status;
    at->failed = what;
}

static cudnn_descriptor begin(struct cudnn_graph *at, cudnnBackendDescriptorType_t type) {
    if (at->status != CUDNN_STATUS_SUCCESS) return NULL;
    BUG_IF(at->count == CUDNN_DESCRIPTORS_MAX, "too many descriptors");
    cudnn_descriptor made = NULL;
    check(at, cudnnBackendCreateDescriptor(type, &made), "a descriptor");
    if (made) at->all[at->count++] = made;
    return made;
}

static void set(struct cudnn_graph *at, cudnn_descriptor to, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (at->status == CUDNN_STATUS_SUCCESS)
        check(at, cudnnBackendSetAttribute(to, name, type, count, values), "an attribute");
}

static void link_to(struct cudnn_graph *at, cudnn_descriptor to, cudnnBackendAttributeName_t name,
                    cudnn_descriptor value) {
    set(at, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void get(struct cudnn_graph *at, cudnn_descriptor from, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t max, int64_t *count, void *values, const char *what) {
    *count = 0;
    if (at->status == CUDNN_STATUS_SUCCESS)
        check(at, cudnnBackendGetAttribute(from, name, type, max, count, values), what);
}

static void finish(struct cudnn_graph *at, cudnn_descriptor made, const char *what) {
    if (at->status == CUDNN_STATUS_SUCCESS) check(at, cudnnBackendFinalize(made), what);
}

static void note_operand(struct cudnn_graph *at, int64_t operand) {
    for (int i = 0; i < at->operand_count; i++)
        if (at->operands[i] == operand) return;
    BUG_IF(at->operand_count == CUDNN_OPERANDS_MAX || operand > CUDNN_OPERANDS_MAX, "too many operands");
    at->operands[at->operand_count++] = operand;
}

cudnn_descriptor cudnn_graph_tensor(struct cudnn_graph *at, const struct cudnn_tensor *is) {
    cudnn_descriptor made = begin(at, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t alignment = 16, uid = is->operand > 0 ? is->operand : CUDNN_OPERANDS_MAX + 1 + at->inside++;
    bool inside = is->operand == 0;
    if (!inside) note_operand(at, is->operand);
    set(at, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &is->type);
    set(at, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, CUDNN_RANK, is->dims);
    set(at, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, CUDNN_RANK, is->strides);
    set(at, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(at, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(at, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside);
    set(at, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is->by_value);
    finish(at, made, "a tensor");
    return made;
}

static void add_operation(struct cudnn_graph *at, cudnn_descriptor operation, const char *what) {
    finish(at, operation, what);
    BUG_IF(at->operation_count == CUDNN_OPERATIONS_MAX, "too many operations");
    at->operations[at->operation_count++] = operation;
}

cudnn_descriptor cudnn_graph_product(struct cudnn_graph *at, cudnn_descriptor a, cudnn_descriptor b,
                                     cudnn_descriptor c) {
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnn_descriptor kind = begin(at, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(at, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    finish(at, kind, "a product");
    cudnn_descriptor operation = begin(at, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    link_to(at, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    link_to(at, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    link_to(at, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    link_to(at, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    add_operation(at, operation, "a product");
    return c;
}

cudnn_descriptor cudnn_graph_elementwise(struct cudnn_graph *at, struct cudnn_elementwise is) {
    cudnn_descriptor kind = begin(at, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(at, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &is.mode);
    set(at, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &is.type);
    if (is.axis > 0) set(at, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &is.axis);
    finish(at, kind, "an elementwise operation");
    cudnn_descriptor operation = begin(at, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, is.x);
    if (is.b) link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, is.b);
    if (is.mask) link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, is.mask);
    link_to(at, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, is.y);
    add_operation(at, operation, "an elementwise operation");
    return is.y;
}

cudnn_descriptor cudnn_graph_reduction(struct cudnn_graph *at, cudnnReduceTensorOp_t how, cudnn_descriptor x,
                                       cudnn_descriptor y) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnn_descriptor kind = begin(at, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(at, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    set(at, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(at, kind, "a reduction");
    cudnn_descriptor operation = begin(at, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    link_to(at, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    link_to(at, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    link_to(at, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(at, operation, "a reduction");
    return y;
}

cudnn_descriptor cudnn_graph_reshape(struct cudnn_graph *at, cudnn_descriptor x, cudnn_descriptor y) {
    cudnn_descriptor operation = begin(at, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    link_to(at, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    link_to(at, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(at, operation, "a reshape");
    return y;
}

/* The device of the library's handle, or the one that a text describes. */
static cudnn_descriptor describe_device(struct cudnn_graph *at, const char *device) {
    if (!device) {
        check(at, cudnnCreate(&at->library), "the library");
        return NULL;
    }
    cudnn_descriptor made = begin(at, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(at, made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(device), device);
    finish(at, made, "the device's properties");
    return made;
}

static cudnn_descriptor join_operations(struct cudnn_graph *at) {
    cudnn_descriptor graph = begin(at, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(at, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, at->operation_count, at->operations);
    if (at->library) set(at, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &at->library);
    finish(at, graph, "the graph");
    return graph;
}

static bool is_deterministic(struct cudnn_graph *at, cudnn_descriptor config) {
    cudnnBackendNumericalNote_t notes[NOTES_MAX];
    cudnn_descriptor engine = begin(at, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count;
    get(at, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine, "the engine");
    get(at, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES_MAX, &count, notes,
        "the engine");
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    return at->status == CUDNN_STATUS_SUCCESS;
}

/* The first configuration of the library's heuristics, which measure nothing, that is not marked nondeterministic. */
static cudnn_descriptor choose_engine(struct cudnn_graph *at, cudnn_descriptor graph, cudnn_descriptor device) {
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnn_descriptor configs[ENGINES_MAX], rules = begin(at, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t found;
    link_to(at, rules, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(at, rules, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (device) link_to(at, rules, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    finish(at, rules, "the choice of an engine");
    for (int i = 0; i < ENGINES_MAX; i++)
        configs[i] = begin(at, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    get(at, rules, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES_MAX, &found, configs,
        "the choice of an engine");
    for (int64_t i = 0; i < found && i < ENGINES_MAX; i++)
        if (is_deterministic(at, configs[i])) return configs[i];
    check(at, CUDNN_STATUS_NOT_SUPPORTED, found > 0 ? "an engine that is deterministic" : "the choice of an engine");
    return NULL;
}

void cudnn_graph_plan(struct cudnn_graph *at, const char *device) {
    int64_t count;
    cudnn_descriptor properties = describe_device(at, device);
    cudnn_descriptor config = choose_engine(at, join_operations(at), properties);
    at->plan = begin(at, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (at->library) set(at, at->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &at->library);
    if (properties) link_to(at, at->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties);
    link_to(at, at->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finish(at, at->plan, "the plan");
    get(at, at->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &at->workspace_bytes,
        "the plan's workspace");
}

enum status cudnn_graph_judge(const struct cudnn_graph *at) {
    char message[MESSAGE_BYTES] = "";
    if (at->status == CUDNN_STATUS_SUCCESS) return STATUS_OK;
    cudnnGetLastErrorString(message, sizeof message);
    (void)status_set(STATUS_FAILED, "cuDNN: %s: %s%s%s", at->failed, cudnnGetErrorString(at->status),
                     message[0] ? ": " : "", message);
    return CUDNN_STATUS_CATEGORY(at->status) == CUDNN_STATUS_NOT_SUPPORTED ? STATUS_OK : STATUS_FAILED;
}

void cudnn_graph_close(struct cudnn_graph *at) {
    while (at->count > 0)
        cudnnBackendDestroyDescriptor(at->all[--at->count]);
    if (at->library) cudnnDestroy(at->library);
}

/* The list of a call's addresses. */
static cudnnStatus_t fill_list(const struct cudnn_graph *at, cudnn_descriptor list,
                               void *const addresses[CUDNN_OPERANDS_MAX], void *workspace) {
    void *own[CUDNN_OPERANDS_MAX];
    for (int i = 0; i < at->operand_count; i++)
        own[i] = addresses[at->operands[i] - 1];
    cudnnStatus_t status = cudnnBackendSetAttribute(list, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                                    at->operand_count, at->operands);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(list, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                          at->operand_count, own);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(list, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    return status == CUDNN_STATUS_SUCCESS ? cudnnBackendFinalize(list) : status;
}

/* Creates a list of addresses for each call and frees it: the library has none whose addresses may be changed. */
cudnnStatus_t cudnn_graph_execute(const struct cudnn_graph *at, void *const addresses[CUDNN_OPERANDS_MAX],
                                  void *workspace, cudaStream_t stream) {
    cudnn_descriptor list = NULL;
    cudnnStatus_t status = cudnnSetStream(at->library, stream);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &list);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    status = fill_list(at, list, addresses, workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendExecute(at->library, at->plan, list);
    cudnnBackendDestroyDescriptor(list);
    return status;
}
