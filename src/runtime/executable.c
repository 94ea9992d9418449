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

static enum status create_kernels(struct executable *executable) {
    const struct graph *graph = executable->graph;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (!graph->nodes.items[i]->op->collective)
            TRY(backend_kernel_create(executable->backend, graph->nodes.items[i], &executable->kernels[i]));
    return STATUS_OK;
}

/* The program is not there yet, so every update gets one. */
static enum status create_host_kernels(struct executable *executable) {
    const struct graph *graph = executable->graph;
    const struct backend *host = executable->backend->host;
    if (!host) return STATUS_OK;
    executable->host_kernels = mem_array(graph->nodes.count, sizeof(struct kernel *));
    if (!executable->host_kernels) return STATUS_FAILED;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->phase == PHASE_UPDATE && !node->op->collective)
            TRY(backend_kernel_create(host, node, &executable->host_kernels[i]));
    }
    return STATUS_OK;
}

static enum status list_workspace(struct kernel *const *kernels, size_t count, const int64_t **out) {
    int64_t *bytes = mem_array(count, sizeof *bytes);
    for (size_t i = 0; bytes && i < count; i++)
        bytes[i] = kernels[i] ? kernels[i]->workspace_bytes : 0;
    *out = bytes;
    return bytes ? STATUS_OK : STATUS_FAILED;
}

static enum status list_workspaces(struct executable *executable) {
    size_t count = executable->graph->nodes.count;
    struct workspace_table *table = &executable->workspace;
    table->count = (int)count;
    TRY(list_workspace(executable->kernels, count, &table->bytes));
    return executable->host_kernels ? list_workspace(executable->host_kernels, count, &table->host_bytes) : STATUS_OK;
}

enum status executable_create(const struct backend *backend, struct graph *graph, const struct plan *plan,
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
    TRY_GOTO(status, create_host_kernels(executable), failed);
    TRY_GOTO(status, list_workspaces(executable), failed);
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
