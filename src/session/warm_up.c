#include "session/warm_up.h"

#include "base/size.h"
#include "ir/ops/ops.h"
#include "profile/operands.h"
#include "profile/operator_values.h"

enum { ALIGNMENT = 256 };

static int64_t align(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Where a call of a node finds its operands in the block: scalars, then workspace, then each storage. */
struct call_places {
    struct operands operands;
    int64_t workspace, storage[OPERAND_COUNT], bytes;
};

static struct call_places find_places(const struct executable *executable, const struct node *node) {
    struct call_places places;
    operands_find(executable->graph, node, &places.operands);
    places.workspace = align(SCALAR_COUNT * sizeof(double));
    places.bytes = places.workspace + align(executable->kernels[node->id]->workspace_bytes);
    for (int i = 0; i < places.operands.storage_count; i++) {
        places.storage[i] = places.bytes;
        places.bytes += align(shape_bytes(&places.operands.storages[i].tensor->shape));
    }
    return places;
}

static void *operand_at(const struct call_places *places, int operand, char *block) {
    int storage = places->operands.storage[operand];
    if (storage < 0) return NULL;
    const struct tensor *tensor = operand_tensor(places->operands.node, operand);
    return block + places->storage[storage] + tensor_storage_offset(tensor);
}

static enum status call_node(const struct executable *executable, const struct node *node, char *block, void *stream) {
    const struct kernel *kernel = executable->kernels[node->id];
    const struct call_places places = find_places(executable, node);
    struct kernel_call call = {.workspace = block + places.workspace, .scalars = (double *)block, .stream = stream};
    double scalars[SCALAR_COUNT];
    operator_values_scalars(node, scalars);
    TRY(executable->backend->memory->write(block, scalars, sizeof scalars));
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = operand_at(&places, i, block);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = operand_at(&places, OP_INPUTS_MAX + i, block);
    executable->backend->zero(block + places.workspace, places.bytes - places.workspace, stream);
    TRY(kernel->run(kernel, &call));
    return executable->backend->streams->finish(stream);
}

static int64_t max_bytes(const struct executable *executable) {
    int64_t max = 0;
    for (size_t i = 0; i < executable->graph->nodes.count; i++) {
        const struct node *node = executable->graph->nodes.items[i];
        if (!executable->kernels[node->id]) continue;
        const struct call_places places = find_places(executable, node);
        max = places.bytes > max ? places.bytes : max;
    }
    return max;
}

static enum status call_all(const struct executable *executable, char *block) {
    const struct backend_streams *streams = executable->backend->streams;
    void *stream;
    TRY(streams->create(&stream));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < executable->graph->nodes.count && status == STATUS_OK; i++)
        if (executable->kernels[i]) status = call_node(executable, executable->graph->nodes.items[i], block, stream);
    (void)streams->finish(stream);
    streams->free(stream);
    return status;
}

static enum status warm_program(const struct executable *executable) {
    const struct backend *backend = executable->backend;
    int64_t bytes = max_bytes(executable);
    void *block;
    if (bytes == 0) return STATUS_OK;
    backend->set_threads(executable->threads);
    TRY(backend->streams->enter());
    TRY(backend->memory->take(TIER_DEVICE, bytes, &block));
    enum status status = call_all(executable, block);
    backend->memory->give_back(TIER_DEVICE, block);
    return status;
}

enum status warm_up(const struct session_plan *plan) {
    const struct backend *backend = plan->session->machine.backend;
    int64_t needed = plan->programs.tier_bytes[TIER_DEVICE], left;
    char need[SIZE_TEXT], there[SIZE_TEXT], option[SIZE_TEXT];
    if (!backend->left_bytes) return STATUS_OK;
    for (int use = 0; use < PROGRAM_USES; use++)
        if (plan->programs.of[use]) TRY(warm_program(plan->programs.of[use]));
    TRY(backend->left_bytes(&left));
    if (needed <= left) return STATUS_OK;
    status_set(STATUS_NO_FIT, "the plan needs %s of the device, which has %s left next to the code of all kernels",
               size_print(needed, need), size_print(left, there));
    return status_hint(STATUS_NO_FIT, "plan with --device-memory %s", size_print_option(left, option));
}
