#include "compiler/instances.h"

#include <string.h>

enum status instances_create(const struct graph *graph, const struct activation_steps *steps, int64_t slots,
                             struct instances *out) {
    *out = (struct instances){.graph = graph, .slots = slots};
    out->current = mem_array((graph->tensors.count + 1) * (size_t)slots, sizeof *out->current);
    out->home_tiers = mem_array(graph->blocks.count + 1, sizeof *out->home_tiers);
    if (!out->current || !out->home_tiers) return STATUS_FAILED;
    instances_clear(out);
    for (size_t s = 0; s < steps->list.count; s++)
        if (steps->list.items[s].action == ACTIVATION_MOVE)
            out->home_tiers[steps->list.items[s].block] = steps->list.items[s].tier;
    return STATUS_OK;
}

void instances_free(struct instances *instances) {
    mem_free(instances->current);
    mem_free(instances->home_tiers);
    *instances = (struct instances){0};
}

void instances_clear(struct instances *instances) {
    memset(instances->current, -1, (size_t)instances->slots * instances->graph->tensors.count * sizeof(int32_t));
}

void instances_begin_group(struct instances *instances, const struct execution *executions, size_t count) {
    for (size_t i = 0; i < count && executions[i].group == executions[0].group; i++) {
        if (executions[i].kind == EXECUTION_RECEIVE && executions[i].value->tensor->kind == TENSOR_ACTIVATION)
            *instances_at(instances, executions[i].slot, executions[i].value->tensor) = -1;
        for (int k = 0; executions[i].node && k < executions[i].node->op->outputs; k++) {
            struct tensor *tensor = executions[i].node->out[k];
            if (tensor) *instances_at(instances, executions[i].slot, tensor_storage(tensor)) = -1;
        }
    }
}

int32_t *instances_of_output(const struct instances *instances, const struct execution *execution, int i) {
    const struct node *node = execution->node;
    const struct tensor *tensor = node->out[i] ? tensor_storage(node->out[i]) : NULL;
    if (!tensor || tensor->kind != TENSOR_ACTIVATION) return NULL;
    int32_t *current = instances_at(instances, execution->slot, tensor);
    if (i == 0 && execution->takes_over)
        *current = *instances_at(instances, execution->slot, node->in[node->op->in_place_input - 1]);
    return current;
}

enum tier instances_home_tier(const struct instances *instances, const struct execution *execution,
                              const struct tensor *tensor) {
    bool waits = execution->node->phase == PHASE_FORWARD && !execution->repeated && !tensor->kept;
    return waits ? instances->home_tiers[execution->node->block] : TIER_DEVICE;
}
