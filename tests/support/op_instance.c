#include "support/op_instance.h"

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"
#include "support/op_device.h"

enum { CANARY_BYTES = 128, POISON = 0xff };

/* Buffers begin at 64-byte boundaries, after a canary. */
static void *buffer_create(int64_t bytes) {
    size_t whole = ((size_t)bytes + 2 * CANARY_BYTES + 63) / 64 * 64;
    char *block = aligned_alloc(64, whole);
    if (!block) return NULL;
    memset(block, POISON, whole);
    return block + CANARY_BYTES;
}

static void buffer_free(void *buffer) {
    if (buffer) free((char *)buffer - CANARY_BYTES);
}

static bool poisoned(const void *data, int64_t bytes) {
    const unsigned char *at = data;
    for (int64_t i = 0; i < bytes; i++)
        if (at[i] != POISON) return false;
    return true;
}

static bool buffer_intact(const void *buffer, int64_t bytes) {
    return poisoned((const char *)buffer - CANARY_BYTES, CANARY_BYTES) &&
           poisoned((const char *)buffer + bytes, CANARY_BYTES);
}

static bool uses_cuda(void) {
    const char *name = getenv("BALLAST_TEST_BACKEND");
    return name && strcmp(name, "cuda") == 0;
}

bool op_instance_can_run(const char **why) {
    *why = NULL;
    return !uses_cuda() || op_device_find(why);
}

bool op_instance_on_cuda(void) { return uses_cuda(); }

bool op_instance_has_kernel(const struct op *op) {
    return uses_cuda() ? op_device_has_kernel(op) : backend_has_kernel(&backend_cpu, op);
}

enum status op_instance_kernel(const struct node *node, struct kernel **out) {
    return uses_cuda() ? op_device_kernel(node, out) : backend_kernel_create(&backend_cpu, node, out);
}

static int64_t whole_bytes(int64_t bytes) { return bytes + 2 * CANARY_BYTES; }

/* Where a kernel finds a tensor: its own memory, or that of its twin. */
static void *place_of(const struct op_instance *instance, const struct tensor *tensor) {
    if (!tensor) return NULL;
    return instance->twins ? instance->twins[tensor->id] : instance->data[tensor->id];
}

static enum status create_twins(struct op_instance *instance) {
    instance->twins = mem_array(instance->graph->tensors.count, sizeof *instance->twins);
    if (!instance->twins) return STATUS_FAILED;
    instance->scalars_twin = op_device_allocate(SCALAR_COUNT * sizeof(double));
    if (!instance->scalars_twin) return status_set(STATUS_FAILED, "the device has no memory for a test");
    for (size_t i = 0; i < instance->graph->tensors.count; i++) {
        struct tensor *tensor = instance->graph->tensors.items[i], *storage = tensor_storage(tensor);
        char *block = tensor == storage ? op_device_allocate(whole_bytes(shape_bytes(&tensor->shape))) : NULL;
        if (tensor == storage && !block) return status_set(STATUS_FAILED, "the device has no memory for a test");
        instance->twins[i] =
            block ? block + CANARY_BYTES : (char *)instance->twins[storage->id] + tensor_storage_offset(tensor);
    }
    return STATUS_OK;
}

static void free_twins(struct op_instance *instance) {
    for (size_t i = 0; instance->twins && i < instance->graph->tensors.count; i++)
        if (!instance->graph->tensors.items[i]->base && instance->twins[i])
            op_device_free((char *)instance->twins[i] - CANARY_BYTES);
    if (instance->scalars_twin) op_device_free(instance->scalars_twin);
    mem_free(instance->twins);
}

/* All buffers, canaries included. */
static void copy_twins(struct op_instance *instance, bool to_device) {
    for (size_t i = 0; instance->twins && i < instance->graph->tensors.count; i++) {
        const struct tensor *tensor = instance->graph->tensors.items[i];
        if (tensor->base) continue;
        op_device_copy((char *)instance->twins[i] - CANARY_BYTES, (char *)instance->data[i] - CANARY_BYTES,
                       whole_bytes(shape_bytes(&tensor->shape)), to_device);
    }
}

static enum status create_buffers(struct op_instance *instance) {
    for (size_t i = 0; i < instance->graph->tensors.count; i++) {
        struct tensor *tensor = instance->graph->tensors.items[i], *storage = tensor_storage(tensor);
        if (tensor == storage) {
            instance->data[i] = buffer_create(shape_bytes(&tensor->shape));
            if (!instance->data[i]) return status_no_memory((unsigned long long)shape_bytes(&tensor->shape), "a test");
        } else {
            instance->data[i] = (char *)instance->data[storage->id] + tensor_storage_offset(tensor);
        }
    }
    return STATUS_OK;
}

static enum status create_kernel(struct op_instance *instance, int index) {
    struct node *node = instance->graph->nodes.items[index];
    TRY(op_instance_kernel(node, &instance->kernels[index]));
    struct kernel_call *call = &instance->calls[index];
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call->in[i] = place_of(instance, node->in[i]);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call->out[i] = place_of(instance, node->out[i]);
    int64_t bytes = instance->kernels[index]->workspace_bytes;
    call->workspace = instance->workspaces[index] = buffer_create(bytes);
    const double *scalars = instance->twins ? instance->scalars_twin : instance->scalars;
    call->scalars = node->op->reads_scalars ? scalars : NULL;
    return call->workspace ? STATUS_OK : status_no_memory((unsigned long long)bytes, "a workspace");
}

enum status op_instance_create(struct graph *graph, struct op_instance *out) {
    *out = (struct op_instance){.graph = graph};
    if (!graph) return STATUS_FAILED;
    out->nodes = (int)graph->nodes.count;
    BUG_IF(out->nodes < 1 || out->nodes > OP_INSTANCE_NODES, "%d nodes", out->nodes);
    out->node = graph->nodes.items[out->nodes - 1];
    out->data = mem_array(graph->tensors.count, sizeof *out->data);
    out->workspaces = mem_array((size_t)out->nodes, sizeof *out->workspaces);
    out->scalars = mem_array(SCALAR_COUNT, sizeof *out->scalars);
    enum status status = out->data && out->workspaces && out->scalars ? create_buffers(out) : STATUS_FAILED;
    if (status == STATUS_OK && uses_cuda()) status = create_twins(out);
    for (int i = 0; i < out->nodes && status == STATUS_OK; i++)
        status = create_kernel(out, i);
    if (status != STATUS_OK) op_instance_free(out);
    return status;
}

void op_instance_free(struct op_instance *instance) {
    for (int i = 0; i < instance->nodes; i++) {
        if (instance->kernels[i]) instance->kernels[i]->release(instance->kernels[i]);
        if (instance->workspaces) buffer_free(instance->workspaces[i]);
    }
    for (size_t i = 0; instance->data && i < instance->graph->tensors.count; i++)
        if (!instance->graph->tensors.items[i]->base) buffer_free(instance->data[i]);
    free_twins(instance);
    mem_free(instance->data);
    mem_free(instance->workspaces);
    mem_free(instance->scalars);
    graph_free(instance->graph);
    *instance = (struct op_instance){0};
}

static void *element(const struct op_instance *instance, const struct tensor *tensor, int64_t row, int64_t column) {
    int64_t at = row * tensor_row_stride(tensor) + column;
    return (char *)instance->data[tensor->id] + at * dtype_bytes(tensor->shape.dtype);
}

static double element_read(const void *at, enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F64: return *(const double *)at;
    case DTYPE_F32: return (double)*(const float *)at;
    case DTYPE_BF16: return (double)bf16_to_float(*(const uint16_t *)at);
    case DTYPE_I32: return (double)*(const int32_t *)at;
    case DTYPE_U8: return (double)*(const uint8_t *)at;
    case DTYPE_U16: return (double)*(const uint16_t *)at;
    default: BUG("no dtype");
    }
}

static void element_write(void *at, enum dtype dtype, double value) {
    switch (dtype) {
    case DTYPE_F64: *(double *)at = value; break;
    case DTYPE_F32: *(float *)at = (float)value; break;
    case DTYPE_BF16: *(uint16_t *)at = bf16_from_float((float)value); break;
    case DTYPE_I32: *(int32_t *)at = (int32_t)value; break;
    case DTYPE_U8: *(uint8_t *)at = (uint8_t)value; break;
    case DTYPE_U16: *(uint16_t *)at = (uint16_t)value; break;
    default: BUG("no dtype");
    }
}

double *op_instance_read(const struct op_instance *instance, const struct tensor *tensor) {
    int64_t columns = shape_columns(&tensor->shape), count = shape_elements(&tensor->shape);
    double *values = mem_array((size_t)count, sizeof *values);
    for (int64_t i = 0; values && i < count; i++)
        values[i] = element_read(element(instance, tensor, i / columns, i % columns), tensor->shape.dtype);
    return values;
}

void op_instance_write(struct op_instance *instance, const struct tensor *tensor, const double *values) {
    int64_t columns = shape_columns(&tensor->shape), count = shape_elements(&tensor->shape);
    for (int64_t i = 0; i < count; i++)
        element_write(element(instance, tensor, i / columns, i % columns), tensor->shape.dtype, values[i]);
}

/* Integers that the operators take: `index` counts tokens of the micro-batch. */
static double integer_value(const struct op_instance *instance, const char *name, int64_t index, uint32_t random) {
    const struct tensor *weight = op_case_tensor(instance->graph, "weight");
    const struct node *first = instance->graph->nodes.items[0];
    int64_t length = instance->graph->sequence_length, vocab = weight ? weight->shape.dims[0] : 1;
    if (first->op == &op_embedding) vocab = embedding_tokens(NODE_ATTRIBUTES(first, embedding_attributes), vocab);
    if (strcmp(name, "positions") == 0) return (double)(index % length + 3);
    if (strcmp(name, "rows") == 0) return (double)op_case_cache_row(first, index / length, index % length);
    if (strcmp(name, "segments") == 0) return (double)(index % length * 3 / length);
    if (strcmp(name, "targets") == 0 && index % 7 == 3) return index % 2 == 0 ? TARGET_PADDING : -1;
    return (double)(random % (uint32_t)vocab);
}

/* An accumulator that a head is told to hold nothing. */
static bool holds_nothing(const struct op_instance *instance, const struct tensor *tensor) {
    bool head = instance->node->op == &op_head_loss_grad && strcmp(tensor->name, "d.weight") == 0;
    return head && NODE_ATTRIBUTES(instance->node, head_loss_grad_attributes)->begins;
}

/* Uniform with variance 1, or what the tensor's name asks for. */
static double value_of(const struct op_instance *instance, const struct tensor *tensor, int64_t index,
                       uint32_t random) {
    double uniform = ((double)random * 0x1p-31 - 1) * 1.7320508;
    if (tensor->shape.dtype == DTYPE_I32) return integer_value(instance, tensor->name, index, random);
    if (tensor->shape.dtype == DTYPE_U8) return (double)(random >> 24);
    if (holds_nothing(instance, tensor)) return 0;
    if (tensor->shape.dtype == DTYPE_U16) return (double)(random >> 16);
    if (strcmp(tensor->name, "logits") == 0) { /* whose order small steps do not change */
        int64_t experts = shape_columns(&tensor->shape), expert = index % experts, token = index / experts;
        return 0.4 * (double)((expert * 5 + token * token) % experts) + 0.1 * uniform;
    }
    if (strcmp(tensor->name, "clip") == 0) return index == 0 ? 3 : 0.7;
    if (strcmp(tensor->name, "exp_avg_sq") == 0 || strstr(tensor->name, "_absmax") ||
        strncmp(tensor->name, "squared_norms", 6) == 0)
        return uniform * uniform; /* and sums of squares */
    if (strcmp(tensor->name, "norm") == 0) return 1 + 0.3 * uniform;
    if (tensor->kind == TENSOR_PARAMETER) return 0.2 * uniform;
    const struct node *first = instance->graph->nodes.items[0];
    bool has_kink =
        first->op == &op_activation && NODE_ATTRIBUTES(first, activation_attributes)->function == ACTIVATION_RELU;
    return has_kink && strcmp(tensor->name, "x") == 0 ? uniform + (uniform < 0 ? -0.1 : 0.1) : uniform;
}

/* Whether a node writes the tensor without reading it. */
static bool overwritten(const struct op_instance *instance, const struct tensor *tensor) {
    for (int n = 0; n < instance->nodes; n++) {
        const struct node *node = instance->graph->nodes.items[n];
        for (int i = 0; i < node->op->outputs; i++)
            if (node->out[i] == tensor) return (node->op->updates >> i & 1u) == 0;
    }
    return false;
}

static bool has_view(const struct op_instance *instance, const struct tensor *tensor) {
    for (size_t i = 0; i < instance->graph->tensors.count; i++)
        if (instance->graph->tensors.items[i]->base == tensor) return true;
    return false;
}

static void fill_tensor(struct op_instance *instance, const struct tensor *tensor, uint64_t seed) {
    int64_t columns = shape_columns(&tensor->shape), count = shape_elements(&tensor->shape);
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t bits[4];
        random_block(seed, RANDOM_TEST, (uint32_t)tensor->id, (uint64_t)i, bits);
        for (int64_t j = i; j < i + 4 && j < count; j++)
            element_write(element(instance, tensor, j / columns, j % columns), tensor->shape.dtype,
                          value_of(instance, tensor, j, bits[j - i]));
    }
}

void op_instance_fill(struct op_instance *instance, uint64_t seed) {
    for (size_t i = 0; i < instance->graph->tensors.count; i++) {
        const struct tensor *tensor = instance->graph->tensors.items[i];
        if (!overwritten(instance, tensor) && !has_view(instance, tensor)) fill_tensor(instance, tensor, seed);
    }
    instance->scalars[SCALAR_LOSS_SCALE] = 1.0 / 37;
    int64_t length = instance->graph->sequence_length;
    instance->scalars[SCALAR_NEW_TOKENS] = (double)(length > 1 ? length - 1 : 1);
    instance->scalars[SCALAR_LEARNING_RATE] = 3e-3;
    instance->scalars[SCALAR_STEP] = 2;
    instance->scalars[SCALAR_BIAS_CORRECTION] = 1 / (1 - 0.9 * 0.9);
    instance->scalars[SCALAR_BIAS_CORRECTION_SQ] = 1.0 / 0.3;
}

static void poison_tensor(struct op_instance *instance, const struct tensor *tensor) {
    size_t bytes = (size_t)(shape_columns(&tensor->shape) * dtype_bytes(tensor->shape.dtype));
    for (int64_t row = 0; row < shape_rows(&tensor->shape); row++)
        memset(element(instance, tensor, row, 0), POISON, bytes);
}

static void require(enum status status) { BUG_IF(status != STATUS_OK, "%s", status_message()); }

/* Calls as they are, or at once. */
static void call_kernel(const struct kernel *kernel, const struct kernel_call *calls, int count, bool together) {
    const struct kernel *kernels[KERNELS_TOGETHER];
    for (int i = 0; i < count; i++)
        kernels[i] = kernel;
    if (together) require(kernel->run_together(kernels, calls, count));
    for (int i = 0; i < count && !together; i++)
        require(kernel->run(kernel, &calls[i]));
}

/* On a device the workspace is a buffer there for the time of the run. */
static void run_on_device(struct op_instance *instance, int index, struct kernel_call *calls, int count,
                          bool together) {
    const struct kernel *kernel = instance->kernels[index];
    int64_t bytes = whole_bytes(kernel->workspace_bytes);
    char *own = (char *)instance->workspaces[index] - CANARY_BYTES, *workspace = op_device_allocate(bytes);
    BUG_IF(!workspace, "the device has no memory for a workspace");
    copy_twins(instance, true);
    op_device_copy(instance->scalars_twin, instance->scalars, SCALAR_COUNT * sizeof(double), true);
    op_device_copy(workspace, own, bytes, true);
    for (int i = 0; i < count; i++)
        calls[i].workspace = workspace + CANARY_BYTES;
    call_kernel(kernel, calls, count, together);
    op_device_wait();
    op_device_copy(workspace, own, bytes, false);
    copy_twins(instance, false);
    op_device_free(workspace);
}

static void run(struct op_instance *instance, int index, const struct kernel_call *given, int count, bool together) {
    struct kernel *kernel = instance->kernels[index];
    struct kernel_call calls[KERNELS_TOGETHER];
    memcpy(calls, given, (size_t)count * sizeof *calls);
    memset(instance->workspaces[index], POISON, (size_t)kernel->workspace_bytes);
    if (instance->twins)
        run_on_device(instance, index, calls, count, together);
    else
        call_kernel(kernel, calls, count, together);
}

static void poison_outputs(struct op_instance *instance, const struct node *node) {
    for (int i = 0; i < node->op->outputs; i++)
        if (node->out[i] && (node->op->updates >> i & 1u) == 0) poison_tensor(instance, node->out[i]);
}

void op_instance_run(struct op_instance *instance, int index) {
    const struct node *node = instance->graph->nodes.items[index];
    poison_outputs(instance, node);
    run(instance, index, &instance->calls[index], 1, false);
}

static void *advance(void *at, const struct tensor *tensor, int64_t whole, int64_t elements) {
    if (!at) return NULL;
    bool sums = tensor->block_elements == 0 && shape_elements(&tensor->shape) != whole;
    int64_t per = sums ? GRADIENT_NORM_BLOCK : tensor_elements_per(tensor);
    return (char *)at + elements / per * dtype_bytes(tensor->shape.dtype);
}

static struct kernel_call call_of_run(const struct op_instance *instance, int index, int64_t begin, int64_t end) {
    const struct node *node = instance->graph->nodes.items[index];
    int64_t whole = shape_elements(&node->in[0]->shape);
    struct kernel_call call = instance->calls[index];
    call.first_element = begin;
    call.elements = end - begin;
    call.in[0] = advance(call.in[0], node->in[0], whole, begin);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = advance(call.out[i], node->out[i], whole, begin);
    return call;
}

void op_instance_run_cut(struct op_instance *instance, int index, const int64_t *cuts, int count, bool together) {
    const struct node *node = instance->graph->nodes.items[index];
    struct kernel_call calls[KERNELS_TOGETHER];
    BUG_IF(count > KERNELS_TOGETHER || !node->op->by_elements, "%s in %d runs", node->op->name, count);
    for (int i = 0; i < count; i++)
        calls[i] =
            call_of_run(instance, index, cuts[i], i + 1 < count ? cuts[i + 1] : shape_elements(&node->in[0]->shape));
    poison_outputs(instance, node);
    run(instance, index, calls, count, together);
}

bool op_instance_runs_together(const struct op_instance *instance, int index) {
    return instance->kernels[index]->run_together != NULL;
}

void op_instance_run_in_place(struct op_instance *instance, int index, int input) {
    const struct node *node = instance->graph->nodes.items[index];
    struct kernel_call call = instance->calls[index];
    call.out[0] = call.in[input];
    run(instance, index, &call, 1, false);
    memcpy(instance->data[node->out[0]->id], instance->data[node->in[input]->id],
           (size_t)shape_bytes(&node->out[0]->shape));
}

void op_instance_run_all(struct op_instance *instance) {
    for (int i = 0; i < instance->nodes; i++)
        op_instance_run(instance, i);
}

/* Next to a view its base stays poisoned. */
static bool beside_intact(const struct op_instance *instance, const struct tensor *view) {
    int64_t bytes = dtype_bytes(view->shape.dtype), stride = tensor_row_stride(view) * bytes;
    int64_t before = view->base_column * bytes, own = shape_columns(&view->shape) * bytes;
    const char *base = instance->data[view->base->id];
    for (int64_t row = 0; row < shape_rows(&view->shape); row++, base += stride)
        if (!poisoned(base, before) || !poisoned(base + before + own, stride - before - own)) return false;
    return true;
}

const char *op_instance_overrun(const struct op_instance *instance) {
    for (size_t i = 0; i < instance->graph->tensors.count; i++) {
        const struct tensor *tensor = instance->graph->tensors.items[i];
        bool intact = tensor->base ? beside_intact(instance, tensor)
                                   : buffer_intact(instance->data[i], shape_bytes(&tensor->shape));
        if (!intact) return tensor->name;
    }
    for (int i = 0; i < instance->nodes; i++)
        if (!buffer_intact(instance->workspaces[i], instance->kernels[i]->workspace_bytes)) return "the workspace";
    return NULL;
}
