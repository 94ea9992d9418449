#include "runtime/executable.h"

static void free_kernels(struct kernel **kernels, size_t count) {
    for (size_t i = 0; kernels && i < count; i++)
        if (kernels[i]) kernels[i]->release(kernels[i]);
    mem_free(kernels);
}

void executable_free(struct executable *executable) {
    if (!executable) return;
    free_kernels(executable->kernels, executable->graph->nodes.count);
    free_kernels(executable->host_kernels, executable->graph->nodes.count);
    program_free(executable->program);
    graph_free(executable->graph);
    mem_free(executable);
}

int64_t *executable_workspace(const struct executable *executable) {
    size_t nodes = executable->graph->nodes.count;
    int64_t *bytes = mem_array(nodes, sizeof *bytes);
    for (size_t i = 0; bytes && i < nodes; i++)
        bytes[i] = executable->kernels[i] ? executable->kernels[i]->workspace_bytes : 0;
    return bytes;
}

static enum status create_kernels(struct executable *executable) {
    const struct graph *graph = executable->graph;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (!graph->nodes.items[i]->op->exchange)
            TRY(backend_kernel_create(executable->backend, graph->nodes.items[i], &executable->kernels[i]));
    return STATUS_OK;
}

static enum status compile(struct executable *executable, const struct plan *plan, const struct program *beside) {
    int64_t *bytes = executable_workspace(executable);
    if (!bytes) return STATUS_FAILED;
    const struct workspace_table table = {bytes, (int)executable->graph->nodes.count};
    enum status status = program_compile_beside(executable->graph, plan, &table, beside, &executable->program);
    mem_free(bytes);
    return status;
}

static enum status create_host_kernels(struct executable *executable) {
    const struct program *program = executable->program;
    const struct backend *host = executable->backend->host;
    if (!host) return STATUS_OK;
    executable->host_kernels = mem_array(executable->graph->nodes.count, sizeof(struct kernel *));
    if (!executable->host_kernels) return STATUS_FAILED;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode != OPCODE_KERNEL || instruction->tier != TIER_HOST) continue;
        struct kernel **kernel = &executable->host_kernels[instruction->node->id];
        if (!*kernel) TRY(backend_kernel_create(host, instruction->node, kernel));
        BUG_IF((*kernel)->workspace_bytes > 0, "%s needs room in the host tier", instruction->node->name);
    }
    return STATUS_OK;
}

enum status executable_create_beside(const struct backend *backend, struct graph *graph, const struct plan *plan,
                                     const struct executable *resident, struct executable **out) {
    struct executable *executable = mem_array(1, sizeof *executable);
    if (!executable) {
        graph_free(graph);
        return STATUS_FAILED;
    }
    *executable = (struct executable){.backend = backend, .graph = graph, .threads = plan->threads};
    executable->kernels = mem_array(graph->nodes.count, sizeof(struct kernel *));
    enum status status;
    TRY_GOTO(status, executable->kernels ? STATUS_OK : STATUS_FAILED, failed);
    if (backend->pin_products) TRY_GOTO(status, backend->pin_products(plan->recipe.products), failed);
    TRY_GOTO(status, create_kernels(executable), failed);
    TRY_GOTO(status, compile(executable, plan, resident ? resident->program : NULL), failed);
    TRY_GOTO(status, create_host_kernels(executable), failed);
    *out = executable;
    return STATUS_OK;
failed:
    executable_free(executable);
    return status;
}

enum status executable_create(const struct backend *backend, struct graph *graph, const struct plan *plan,
                              struct executable **out) {
    return executable_create_beside(backend, graph, plan, NULL, out);
}
