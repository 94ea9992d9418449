/* Adding tensors, views and nodes to a graph. */
#include "ir/graph.h"

#include <stdarg.h>

/* A second graph like a first one. */

static struct tensor *tensor_like(const struct graph *copy, const struct tensor *tensor) {
    return tensor ? copy->tensors.items[tensor->id] : NULL;
}

static enum status copy_tensors(const struct graph *graph, struct graph *copy) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *from = graph->tensors.items[i];
        struct tensor *tensor = graph_tensor(copy, from->kind, from->name, from->shape);
        if (!tensor) return graph_status(copy);
        *tensor = *from;
        tensor->name = scratch_format(&copy->memory, "%s", from->name);
        if (from->stack.name) tensor->stack.name = scratch_format(&copy->memory, "%s", from->stack.name);
        if (!tensor->name || (from->stack.name && !tensor->stack.name)) return STATUS_FAILED;
        tensor->base = tensor_like(copy, from->base);
        tensor->parameter = tensor_like(copy, from->parameter);
        tensor->producer = NULL;
    }
    return STATUS_OK;
}

static enum status copy_node(const struct node *from, struct graph *copy) {
    size_t bytes = from->op->attribute_bytes;
    struct node *node = scratch_alloc(&copy->memory, 1, sizeof *node);
    void *attributes = scratch_alloc(&copy->memory, 1, bytes);
    const char *name = scratch_format(&copy->memory, "%s", from->name);
    if (!node || !attributes || !name) return STATUS_FAILED;
    *node = *from;
    node->name = name, node->attributes = attributes;
    if (bytes > 0) memcpy(attributes, from->attributes, bytes);
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        node->in[i] = tensor_like(copy, from->in[i]);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        node->out[i] = tensor_like(copy, from->out[i]);
    return vec_push(&copy->nodes, node);
}

static enum status copy_into(const struct graph *graph, struct graph *copy) {
    for (size_t i = 0; i < graph->blocks.count; i++)
        graph_begin_block(copy, graph->blocks.items[i]);
    TRY(copy_tensors(graph, copy));
    for (size_t i = 0; i < graph->nodes.count; i++) {
        BUG_IF(graph->nodes.items[i]->phase != PHASE_FORWARD, "a copy of a graph with gradients");
        TRY(copy_node(graph->nodes.items[i], copy));
    }
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct node *producer = graph->tensors.items[i]->producer;
        if (producer) copy->tensors.items[i]->producer = copy->nodes.items[producer->id];
    }
    return graph_status(copy);
}

struct graph *graph_copy(const struct graph *graph) {
    struct graph *copy = graph_create(graph->dtype, graph->micro_batch_sequences, graph->sequence_length);
    if (!copy) return NULL;
    copy->cache_texts = graph->cache_texts, copy->cache_positions = graph->cache_positions;
    if (copy_into(graph, copy) == STATUS_OK) return copy;
    graph_free(copy);
    return NULL;
}

const char *phase_name(enum phase phase) {
    static const char *const names[] = {[PHASE_FORWARD] = "forward",
                                        [PHASE_BACKWARD] = "backward",
                                        [PHASE_FINISH] = "finish",
                                        [PHASE_UPDATE] = "update"};
    return names[phase];
}

struct graph *graph_create(enum dtype dtype, int64_t micro_batch_sequences, int64_t sequence_length) {
    struct graph *graph = mem_array(1, sizeof *graph);
    if (!graph) return NULL;
    graph->dtype = dtype;
    graph->micro_batch_sequences = micro_batch_sequences;
    graph->sequence_length = sequence_length;
    return graph;
}

void graph_free(struct graph *graph) {
    if (!graph) return;
    vec_free(&graph->tensors);
    vec_free(&graph->nodes);
    vec_free(&graph->blocks);
    scratch_free(&graph->memory);
    mem_free(graph);
}

static bool failed(const struct graph *graph) { return graph->status != STATUS_OK; }

/* The only way by which an error enters a graph: the first one stays. */
static void *fail(struct graph *graph, enum status status) {
    if (!failed(graph)) graph->status = status;
    return NULL;
}

enum status graph_status(const struct graph *graph) {
    if (failed(graph) && status_message()[0] == '\0') return status_set(graph->status, "the graph could not be built");
    return graph->status;
}

const char *graph_format(struct graph *graph, const char *format, ...) {
    if (failed(graph)) return NULL;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *copy = scratch_format(&graph->memory, "%s", text);
    return copy ? copy : fail(graph, STATUS_FAILED);
}

void graph_begin_block(struct graph *graph, const char *name) {
    const char *copy = graph_format(graph, "%s", name);
    if (copy && vec_push(&graph->blocks, copy) != STATUS_OK) fail(graph, STATUS_FAILED);
}

static int current_block(const struct graph *graph) {
    return graph->blocks.count == 0 ? 0 : (int)graph->blocks.count - 1;
}

struct tensor *graph_tensor(struct graph *graph, enum tensor_kind kind, const char *name, struct shape shape) {
    const char *copy = name ? graph_format(graph, "%s", name) : NULL;
    if (!copy) return NULL;
    struct tensor *tensor = scratch_alloc(&graph->memory, 1, sizeof *tensor);
    if (!tensor || vec_push(&graph->tensors, tensor) != STATUS_OK) return fail(graph, STATUS_FAILED);
    *tensor = (struct tensor){
        .id = (int)graph->tensors.count - 1,
        .name = copy,
        .shape = shape,
        .kind = kind,
        .block = current_block(graph),
    };
    return tensor;
}

/* Looks through the current block alone: a model of experts has tens of thousands of parameters. */
static bool block_has_parameter(const struct graph *graph, const char *name) {
    for (size_t i = graph->tensors.count; i-- > 0;) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->block != current_block(graph)) return false;
        if (tensor->kind == TENSOR_PARAMETER && strcmp(tensor->name, name) == 0) return true;
    }
    return false;
}

struct tensor *graph_parameter(struct graph *graph, const char *name, int rank, int64_t d0, int64_t d1) {
    if (failed(graph)) return NULL;
    BUG_IF(rank < 1 || rank > 2, "parameter %s of rank %d", name, rank);
    BUG_IF(block_has_parameter(graph, name), "two parameters are called %s", name);
    struct tensor *tensor = graph_tensor(graph, TENSOR_PARAMETER, name, shape_make(graph->dtype, rank, d0, d1, 1));
    if (!tensor) return NULL;
    tensor->trainable = true;
    tensor->decays = rank == 2;
    return tensor;
}

struct tensor *graph_quantized_parameter(struct graph *graph, const char *name, const struct weight_code *code) {
    if (failed(graph) || !name) return NULL;
    BUG_IF(block_has_parameter(graph, name), "two parameters are called %s", name);
    if (!weight_format_fits(code->format, code->block, code->values.dims[1])) {
        status_set(STATUS_BAD_INPUT, "%s: rows of %lld numbers are no whole blocks of %s", name,
                   (long long)code->values.dims[1], weight_format_name(code->format));
        return fail(graph, STATUS_BAD_INPUT);
    }
    struct shape bytes = shape_make(DTYPE_U8, 1, weight_code_layout(code).bytes, 1, 1);
    struct tensor *tensor = graph_tensor(graph, TENSOR_PARAMETER, name, bytes);
    if (!tensor) return NULL;
    tensor->code = *code;
    tensor->code.values.dtype = graph->dtype;
    return tensor;
}

void graph_stack(struct graph *graph, struct tensor *parameter, const char *name, int64_t index, int64_t count) {
    if (failed(graph) || !parameter || !name) return;
    parameter->stack = (struct tensor_stack){.name = graph_format(graph, "%s", name), .index = index, .count = count};
}

void graph_fuse(struct graph *graph, struct tensor *parameter, struct tensor_stack stack) {
    if (failed(graph) || !parameter || !stack.name) return;
    parameter->fused = stack;
    parameter->fused.name = graph_format(graph, "%s", stack.name);
}

static struct tensor *add_view(struct graph *graph, struct tensor *base, const char *name, struct shape shape,
                               int64_t column, int64_t row) {
    struct tensor *view = graph_tensor(graph, base->kind, name, shape);
    if (!view) return NULL;
    view->base = base;
    view->base_column = column;
    view->base_row = row;
    view->producer = base->producer;
    view->block = base->block;
    return view;
}

struct tensor *graph_view(struct graph *graph, struct tensor *base, int64_t column, int64_t columns) {
    if (failed(graph) || !base) return NULL;
    BUG_IF(base->base != NULL, "a view of a view of %s", base->name);
    BUG_IF(column < 0 || columns < 1 || column + columns > shape_columns(&base->shape), "columns outside %s",
           base->name);
    struct shape shape = base->shape;
    shape.dims[shape.rank - 1] = columns;
    const char *name =
        graph_format(graph, "%s[%lld:%lld]", base->name, (long long)column, (long long)(column + columns));
    return add_view(graph, base, name, shape, column, 0);
}

struct tensor *graph_view_rows(struct graph *graph, struct tensor *tensor, int64_t row, int64_t rows) {
    struct tensor *base = tensor_storage(tensor);
    if (failed(graph)) return NULL;
    BUG_IF(row < 0 || rows < 1 || row + rows > shape_rows(&tensor->shape) || tensor->base_row > 0, "rows outside %s",
           tensor->name);
    struct shape shape = shape_make(tensor->shape.dtype, 3, 1, rows, shape_columns(&tensor->shape));
    const char *name = graph_format(graph, "%s[%lld:%lld,]", tensor->name, (long long)row, (long long)(row + rows));
    return add_view(graph, base, name, shape, tensor->base_column, row);
}

struct tensor *graph_view_again(struct graph *graph, struct tensor *base, const struct tensor *view) {
    return add_view(graph, base, view->name, view->shape, view->base_column, view->base_row);
}

static struct tensor *output_tensor(struct graph *graph, struct node *node, int index, const struct shape *shape) {
    const char *name = index == 0 ? node->name : graph_format(graph, "%s.%d", node->name, index);
    struct tensor *tensor = graph_tensor(graph, TENSOR_ACTIVATION, name, *shape);
    if (tensor) tensor->producer = node;
    return tensor;
}

static enum status connect_outputs(struct graph *graph, struct node *node, struct tensor *const *into) {
    struct shape shapes[OP_OUTPUTS_MAX] = {0};
    enum status status = node->op->infer(node, shapes);
    if (status != STATUS_OK) return status_prefix(status, "%s (%s)", node->name, node->op->name);
    for (int i = 0; i < node->op->outputs; i++) {
        struct tensor *given = into ? into[i] : NULL;
        if (shapes[i].dtype == DTYPE_NONE) {
            BUG_IF(given != NULL, "%s: output %d does not exist", node->name, i);
            continue;
        }
        char wanted[SHAPE_TEXT], found[SHAPE_TEXT];
        BUG_IF(given && !shape_equal(&given->shape, &shapes[i]), "%s: output %d is %s, not %s", node->name, i,
               shape_print(&given->shape, found), shape_print(&shapes[i], wanted));
        node->out[i] = given ? given : output_tensor(graph, node, i, &shapes[i]);
        if (failed(graph)) return graph->status;
        if (given && given->kind != TENSOR_PARAMETER && given->kind != TENSOR_STATE) given->producer = node;
    }
    return STATUS_OK;
}

struct node *graph_add(struct graph *graph, const struct op *op, const char *name, struct tensor *const *in,
                       const void *attributes, struct tensor *const *into) {
    if (graph->cache_texts > 0 && op->decode) return op->decode(graph, name, in, attributes);
    BUG_IF(op->attribute_bytes > OP_ATTRIBUTES_BYTES_MAX, "%s: %zu bytes of attributes", op->name, op->attribute_bytes);
    for (int i = 0; i < op->inputs - op->optional && !failed(graph); i++)
        BUG_IF(!in[i], "%s (%s): input %d is missing", name ? name : "?", op->name, i);
    const char *copy = name ? graph_format(graph, "%s", name) : NULL;
    if (!copy) return NULL;
    struct node *node = scratch_alloc(&graph->memory, 1, sizeof *node);
    void *own = scratch_alloc(&graph->memory, 1, op->attribute_bytes);
    if (!node || !own) return fail(graph, STATUS_FAILED);
    if (op->attribute_bytes > 0) memcpy(own, attributes, op->attribute_bytes);
    *node = (struct node){
        .id = (int)graph->nodes.count,
        .op = op,
        .name = copy,
        .attributes = own,
        .phase = graph->phase,
        .block = current_block(graph),
    };
    memcpy(node->in, in, sizeof node->in);
    enum status status = connect_outputs(graph, node, into);
    if (status == STATUS_OK) status = vec_push(&graph->nodes, node);
    return status == STATUS_OK ? node : fail(graph, status);
}

struct tensor *graph_find(const struct graph *graph, const char *name) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        bool named = tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_INPUT || tensor->kind == TENSOR_RESULT;
        if (named && !tensor->base && strcmp(tensor->name, name) == 0) return tensor;
    }
    return NULL;
}

struct tensor *graph_cache_rows(struct graph *graph) {
    struct tensor *rows = graph_find(graph, "rows");
    struct shape shape = shape_make(DTYPE_I32, 2, graph->micro_batch_sequences, graph->sequence_length, 1);
    return rows ? rows : graph_tensor(graph, TENSOR_INPUT, "rows", shape);
}

int32_t graph_count_blocks(const struct graph *graph) {
    int32_t blocks = 0;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (node->phase <= PHASE_BACKWARD && node->block >= blocks) blocks = node->block + 1;
    }
    return blocks;
}

static bool is_whole_activation(const struct tensor *tensor) {
    return tensor_is_activation(tensor) && !tensor->base && !tensor->kept;
}

int node_in_place_input(const struct node *node) {
    int index = node->op->in_place_input - 1;
    if (index < 0 || !is_whole_activation(node->in[index]) || !is_whole_activation(node->out[0])) return -1;
    if (shape_bytes(&node->in[index]->shape) != shape_bytes(&node->out[0]->shape)) return -1;
    for (int i = 0; i < node->op->inputs; i++)
        if (i != index && node->in[i] && tensor_storage(node->in[i]) == node->in[index]) return -1;
    return index;
}

bool graph_has_backward(const struct graph *graph) {
    for (size_t n = 0; n < graph->nodes.count; n++)
        if (graph->nodes.items[n]->phase == PHASE_BACKWARD) return true;
    return false;
}

static bool same_tensor(const struct tensor *a, const struct tensor *b) {
    if (!a || !b) return a == b;
    return a->id == b->id && a->kind == b->kind && a->base_column == b->base_column && a->base_row == b->base_row &&
           (a->base ? a->base->id : -1) == (b->base ? b->base->id : -1) && shape_equal(&a->shape, &b->shape);
}

static bool same_node(const struct node *a, const struct node *b) {
    bool same = a->op == b->op && a->phase == b->phase && a->block == b->block;
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        same = same && same_tensor(a->in[i], b->in[i]);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        same = same && same_tensor(a->out[i], b->out[i]);
    return same && (a->op->attribute_bytes == 0 || memcmp(a->attributes, b->attributes, a->op->attribute_bytes) == 0);
}

bool graph_same_work(const struct graph *a, const struct graph *b) {
    if (a->nodes.count != b->nodes.count || a->tensors.count != b->tensors.count) return false;
    for (size_t i = 0; i < a->nodes.count; i++)
        if (!same_node(a->nodes.items[i], b->nodes.items[i])) return false;
    return true;
}
