/* An executable: a program with a kernel for each of its nodes, ready for an arena. Made before any weight is read:
 * what `ballast plan` prints is read off it. */
#ifndef BALLAST_RUNTIME_EXECUTABLE_H
#define BALLAST_RUNTIME_EXECUTABLE_H

#include "backend/backend.h"
#include "program/program.h"

struct executable {
    const struct backend *backend;
    struct graph *graph;
    struct kernel **kernels; /* by node id; NULL for operators that are operations between ranks */
    /* By node id: the host backend's kernels for updates, which a program may place in the host tier; NULL for all
     * others, and where the backend has no host. */
    struct kernel **host_kernels;
    struct workspace_table workspace; /* of both; for other programs of the graph */
    struct program *program;
    int threads; /* the recipe's: every thread that calls kernels sets it first */
};

/* Takes over `graph` (also on failure) and compiles it under the plan. The backend's threads must be set before. */
enum status executable_create(const struct backend *backend, struct graph *graph, const struct plan *plan,
                              struct executable **out);
/* The same for an executable that takes turns with `resident` in one arena (program_compile_beside). */
enum status executable_create_beside(const struct backend *backend, struct graph *graph, const struct plan *plan,
                                     const struct executable *resident, struct executable **out);
void executable_free(struct executable *executable);

#endif
