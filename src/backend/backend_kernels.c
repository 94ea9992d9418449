/* Which operators a backend has kernels for. */
#include <stdio.h>

#include "backend/backend.h"

static kernel_maker *find(const struct kernel_list *list, const struct op *op) {
    for (; list; list = list->next)
        for (int i = 0; i < list->count; i++)
            if (list->entries[i].op == op || !list->entries[i].op) return list->entries[i].create;
    return NULL;
}

bool backend_has_kernel(const struct backend *backend, const struct op *op) {
    return find(backend->kernels, op) != NULL;
}

static enum status refuse(const struct backend *backend, const struct node *node) {
    char others[256] = "";
    size_t used = 0;
    for (int i = 0; i < backend_count && used < sizeof others; i++)
        if (backend_has_kernel(backends[i], node->op))
            used += (size_t)snprintf(others + used, sizeof others - used, "%s--device %s", used ? " or " : "",
                                     backends[i]->name);
    enum status status = status_set(STATUS_BAD_INPUT, "%s: the %s backend has no kernel for the operator %s",
                                    node->name, backend->name, node->op->name);
    if (used > 0) return status_hint(status, "%s has one", others);
    return status_hint(status, "no backend of this build has one: see \"An operator\" in CONTRIBUTING.md");
}

enum status backend_kernel_create(const struct backend *backend, const struct node *node, struct kernel **out) {
    kernel_maker *create = find(backend->kernels, node->op);
    if (!create) return refuse(backend, node);
    if (backend->prepare) TRY(backend->prepare());
    enum status status = create(node, out);
    return status == STATUS_OK ? status : status_prefix(status, "%s (%s)", node->name, node->op->name);
}
