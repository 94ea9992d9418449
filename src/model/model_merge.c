/* A model with adapters as one without. */
#include <string.h>

#include "base/half.h"
#include "base/progress.h"
#include "model/model_adapter.h"
#include "model/model_build.h"

/* W += factor B A in fp32; W [out, in], or [in, out] where `kn`. */
static void add_product(float *weight, const float *a, const float *b, const struct linear_sizes *sizes, int64_t rank,
                        float factor) {
    int64_t in = sizes->in, out = sizes->out;
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            float sum = 0;
            for (int64_t r = 0; r < rank; r++)
                sum += b[o * rank + r] * a[r * in + i];
            weight[sizes->weight_is_kn ? i * out + o : o * in + i] += factor * sum;
        }
}

static enum status load(const struct model *model, const struct tensor *parameter, enum dtype dtype, void **out) {
    void *data = mem_array((size_t)shape_elements(&parameter->shape), (size_t)dtype_bytes(dtype));
    if (!data) return STATUS_FAILED;
    struct weight_target target = weight_whole(parameter, dtype, data);
    enum status status = model_load_weights(model, &target, 1);
    if (status != STATUS_OK) mem_free(data);
    *out = status == STATUS_OK ? data : NULL;
    return status;
}

/* The linear node that multiplies by this parameter; NULL when none does. */
static const struct node *product_of(const struct graph *graph, const struct tensor *weight) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.items[i]->op == &op_linear && graph->nodes.items[i]->in[1] == weight)
            return graph->nodes.items[i];
    return NULL;
}

static const struct tensor *adapter_of(const struct model *model, struct graph *graph, const struct tensor *weight,
                                       const char *suffix) {
    const char *name = weight->name + strlen(model->prefix), *family = model->config.family->prefix;
    static const char end[] = ".weight";
    if (!name_ends(name, end)) return NULL;
    int length = (int)(strlen(name) - strlen(end));
    const char *wanted = graph_format(graph, "%s%s%.*s%s", adapter_prefix, family, length, name, suffix);
    return wanted ? graph_find(graph, wanted) : NULL;
}

/* In place: a value never lies before those that are still to be read. */
static void round_to(struct weight_target *target, enum dtype dtype) {
    if (dtype == DTYPE_F32) return;
    int64_t elements = shape_elements(&target->tensor->shape);
    for (int64_t i = 0; i < elements; i++) {
        float value;
        memcpy(&value, (char *)target->data + i * (int64_t)sizeof value, sizeof value);
        uint16_t rounded = bf16_from_float(value);
        memcpy((char *)target->data + i * (int64_t)sizeof rounded, &rounded, sizeof rounded);
    }
    target->dtype = dtype;
}

static enum status merge_one(const struct model *model, struct graph *graph, struct weight_target *target) {
    const struct tensor *weight = target->tensor;
    const struct node *node = product_of(graph, weight);
    const struct tensor *a = node ? adapter_of(model, graph, weight, adapter_suffix_a) : NULL;
    const struct tensor *b = a ? adapter_of(model, graph, weight, adapter_suffix_b) : NULL;
    TRY(graph_status(graph));
    const struct safetensors_tensor *source = safetensors_find(model->weights, weight->name);
    enum dtype dtype = source->dtype == SAFETENSORS_BF16 ? DTYPE_BF16 : DTYPE_F32;
    void *a_data = NULL, *b_data = NULL;
    target->dtype = b ? DTYPE_F32 : dtype;
    TRY(load(model, weight, target->dtype, &target->data));
    if (!b) return STATUS_OK;
    const struct adapter *adapter = &model->config.adapter;
    struct linear_sizes sizes = {.in = a->shape.dims[1],
                                 .out = b->shape.dims[0],
                                 .weight_is_kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn};
    enum status status;
    TRY_GOTO(status, load(model, a, DTYPE_F32, &a_data), done);
    TRY_GOTO(status, load(model, b, DTYPE_F32, &b_data), done);
    add_product(target->data, a_data, b_data, &sizes, adapter->rank, (float)(adapter->alpha / (double)adapter->rank));
    round_to(target, dtype);
done:
    mem_free(a_data);
    mem_free(b_data);
    return status;
}

static enum status merge_all(const struct model *model, struct graph *graph, struct weight_target *targets,
                             int *count) {
    size_t tensors = graph->tensors.count;
    for (size_t i = 0; i < tensors; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER || tensor->base || adapter_owns(tensor->name)) continue;
        targets[*count] = weight_whole(tensor, DTYPE_F32, NULL);
        TRY(merge_one(model, graph, &targets[(*count)++]));
        progress_add(shape_elements(&tensor->shape));
    }
    return STATUS_OK;
}

enum status model_write_merged(const struct model *model, const char *folder) {
    BUG_IF(!model->adapter_weights, "a model without adapters is merged");
    if (model->config.base_format != WEIGHT_PLAIN)
        return status_hint(status_set(STATUS_BAD_INPUT, "%s: weights in %s cannot take adapters in", model->folder,
                                      weight_format_name(model->config.base_format)),
                           "merge into the model that they were made from: --base MODEL_DIR");
    struct graph *graph;
    int count = 0;
    TRY(adapter_small_graph(model, &graph));
    struct weight_target *targets = mem_array(graph->tensors.count, sizeof *targets);
    progress_begin(PROGRESS_COUNT, model_parameter_count(graph), "merging adapters into weights");
    enum status status = targets ? merge_all(model, graph, targets, &count) : STATUS_FAILED;
    progress_end();
    struct model plain = *model;
    plain.config.adapter.rank = 0;
    if (status == STATUS_OK) status = model_write(&plain, folder, targets, count, NULL);
    for (int i = 0; i < count; i++)
        mem_free(targets[i].data);
    mem_free(targets);
    graph_free(graph);
    return status;
}
