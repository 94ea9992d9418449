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
    mem_free((void *)executable->workspace.bytes);
    mem_free((void *)executable->workspace.host_bytes);
    program_free(executable->program);
    graph_free(executable->graph);
    mem_free(executable);
}

/* Kernels of all nodes, or of updates alone, by node id, and the workspaces that they need. */
static enum status create_kernels(const struct backend *backend, const struct graph *graph, bool updates,
                                  struct kernel ***kernels, const int64_t **workspaces) {
    int64_t *bytes = mem_array(graph->nodes.count, sizeof *bytes);
    *workspaces = bytes;
    *kernels = mem_array(graph->nodes.count, sizeof(struct kernel *));
    if (!bytes || !*kernels) return STATUS_FAILED;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->op->collective || (updates && node->phase != PHASE_UPDATE)) continue;
        TRY(backend_kernel_create(backend, node, &(*kernels)[i]));
        bytes[i] = (*kernels)[i]->workspace_bytes;
    }
    return STATUS_OK;
}

enum status executable_create(const struct backend *backend, struct graph *graph, const struct plan *plan,
                              const struct executable *resident, struct executable **out) {
    struct executable *executable = mem_array(1, sizeof *executable);
    if (!executable) {
        graph_free(graph);
        return STATUS_FAILED;
    }
    *executable = (struct executable){.backend = backend, .graph = graph, .threads = plan->threads};
    struct workspace_table *table = &executable->workspace;
    table->count = (int)graph->nodes.count;
    enum status status;
    if (backend->pin_products) TRY_GOTO(status, backend->pin_products(plan->recipe.products), failed);
    TRY_GOTO(status, create_kernels(backend, graph, false, &executable->kernels, &table->bytes), failed);
    /* The program is not there yet, so every update gets one. */
    if (backend->host)
        TRY_GOTO(status, create_kernels(backend->host, graph, true, &executable->host_kernels, &table->host_bytes),
                 failed);
    TRY_GOTO(status, executable_compile(executable, plan, resident ? resident->program : NULL, &executable->program),
             failed);
    *out = executable;
    return STATUS_OK;
failed:
    executable_free(executable);
    return status;
}

enum status executable_compile(const struct executable *executable, const struct plan *plan,
                               const struct program *resident, struct program **out) {
    return program_compile(executable->graph, plan, &executable->workspace, resident, out);
}

void executable_take(struct executable *executable, struct program *program) {
    program_free(executable->program);
    executable->program = program;
    executable->proved = false;
}

enum status executable_prove(struct executable *executable) {
    if (!executable->proved) TRY(program_verify(executable->program));
    executable->proved = true;
    return STATUS_OK;
}
