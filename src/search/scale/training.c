#include "search/scale/training.h"

int64_t transformer_head_size(const struct transformer *model) {
    return model->head_size > 0 ? model->head_size : model->hidden / model->heads;
}

int64_t transformer_query_width(const struct transformer *model) { return model->heads * transformer_head_size(model); }

/* Parameters of queries and the output, and of keys and values. */
static int64_t attention_parameters(const struct transformer *model) {
    return 2 * model->hidden * (transformer_query_width(model) + model->kv_heads * transformer_head_size(model));
}

int64_t transformer_layer_parameters(const struct transformer *model) {
    int64_t experts = model->experts > 0 ? model->experts : 1, attention = attention_parameters(model);
    int64_t mlp = (model->gated ? 3 : 2) * model->hidden * model->ffn;
    return attention + experts * mlp + (model->experts > 0 ? model->experts * model->hidden : 0) + 2 * model->hidden;
}

int64_t transformer_expert_parameters(const struct transformer *model) {
    return model->experts * (model->gated ? 3 : 2) * model->hidden * model->ffn;
}

int64_t transformer_table_parameters(const struct transformer *model) { return model->vocab * model->hidden; }

int64_t transformer_parameters(const struct transformer *model) {
    return model->layers * transformer_layer_parameters(model) +
           (model->tied ? 1 : 2) * transformer_table_parameters(model) + model->hidden;
}

double transformer_token_flops(const struct transformer *model, int64_t sequence) {
    double active = model->experts > 0 ? (double)model->experts_a_token : 1;
    double attention = (double)attention_parameters(model);
    double mlp = active * (model->gated ? 3 : 2) * (double)model->hidden * (double)model->ffn;
    double table = (double)transformer_table_parameters(model);
    double squares = 2 * (double)transformer_query_width(model) * (double)sequence;
    return 6 * ((double)model->layers * (attention + mlp + squares) + table);
}

bool training_sums_by_product(const struct training *job) {
    return system_has(&job->system, SUMS_BY_PRODUCT) ||
           (job->layout.pipeline > 1 && system_has(&job->system, SUMS_BY_PRODUCT_OF_STAGES));
}

static enum status refuse(const char *field, const char *why) {
    return status_set(STATUS_BAD_INPUT, "layout: %s: %s", field, why);
}

static enum status check_sizes(const struct layout *layout) {
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"tensor", layout->tensor},
                 {"pipeline", layout->pipeline},
                 {"context", layout->context},
                 {"data", layout->data},
                 {"virtual stages", layout->virtual_stages},
                 {"micro-batch", layout->micro_batch},
                 {"micro-batches", layout->micro_batches},
                 {"sequence length", layout->sequence_length}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1) return refuse(sizes[i].name, "must be at least 1");
    return STATUS_OK;
}

static enum status check_partition(const struct layout *layout) {
    const struct partition_triple *cut = &layout->partition;
    if (cut->parameters < 1 || cut->gradients < cut->parameters || cut->optimizer < cut->gradients)
        return refuse("partition", "optimizer states must be cut as finely as gradients, and those as parameters");
    if (layout->data * layout->context % cut->optimizer != 0 || cut->optimizer % cut->gradients != 0 ||
        cut->gradients % cut->parameters != 0)
        return refuse("partition", "must divide the data-parallel ranks");
    if (layout->second_parameters < 0 ||
        (layout->second_parameters > 0 && cut->parameters % layout->second_parameters != 0))
        return refuse("second copy", "must divide the ranks over which parameters are cut");
    return STATUS_OK;
}

/* Each rank of an expert group has the same number of experts. */
static enum status check_experts(const struct training *job) {
    const struct layout *layout = &job->layout;
    const struct transformer *model = &job->model;
    int64_t ranks = layout_expert_ranks(layout), data = layout->data * layout->context;
    if (model->experts > 0 && (model->experts_a_token < 1 || model->experts_a_token > model->experts))
        return status_set(STATUS_BAD_INPUT, "model: experts a token: must be from 1 to the number of experts");
    if (ranks == 1) return STATUS_OK;
    if (model->experts % ranks != 0 || data % ranks != 0)
        return refuse("expert", "must divide the experts and the data-parallel ranks");
    if (layout->partition.parameters > 1)
        return refuse("expert", "is not described together with parameters that are cut");
    return STATUS_OK;
}

/* Maximum number of layer passes of a simulated step: some gigabytes of instructions. */
static const double PASSES_MAX = 1 << 24;

enum status training_check(const struct training *job) {
    const struct layout *layout = &job->layout;
    const struct transformer *model = &job->model;
    TRY(check_sizes(layout));
    TRY(check_partition(layout));
    TRY(check_experts(job));
    if ((double)layout->micro_batches * (double)(layout->pipeline * layout->virtual_stages + model->layers) >
        PASSES_MAX)
        return refuse("micro-batches", "are more than can be simulated");
    if (job->cluster.network.devices < 1) return refuse("network", "the cluster does not describe one");
    if (job->cluster.device.limits.bf16_flops_per_s <= 0) return refuse("limits", "the cluster does not describe them");
    if (system_has(&job->system, OWN_KERNELS) && job->cluster.rates.zero.bytes_per_s <= 0)
        return refuse("rates", "the cluster does not describe them");
    if (layout->pipeline * layout->virtual_stages > model->layers)
        return refuse("pipeline", "has more stages than the model has layers");
    if (model->heads % layout->tensor != 0) return refuse("tensor", "must divide the heads");
    return STATUS_OK;
}
