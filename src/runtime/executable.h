/* An executable: a program with a kernel for each of its nodes, ready for an arena. It is created before any weight is
 * read; `ballast plan` prints its properties. */
#pragma once

#include "backend/backend.h"
#include "compiler/program.h"

struct executable {
    const struct backend *backend;
    struct graph *graph;
    struct kernel **kernels; /* by node id; NULL for operators that are operations between ranks */
    /* By node id: the host backend's kernels for updates, which a program may place in the host tier; NULL for all
     * others, and where the backend has no host. */
    struct kernel **host_kernels;
    struct workspace_table workspace; /* of both; for other programs of the graph */
    struct program *program;
    bool proved; /* executable_prove has passed: else it is not to be executed */
    int threads; /* the recipe's: every thread that calls kernels sets it first */
};

/* Takes over `graph` (also on failure) and compiles it under the plan, without the proof: `ballast plan` and a search
 * for ranks' shapes compile programs that are never executed. `resident` (NULL: none) takes turns with it in one arena
 * (program_compile). The backend's threads must be set before. */
enum status executable_create(const struct backend *backend, struct graph *graph, const struct plan *plan,
                              const struct executable *resident, struct executable **out);
/* Another program of the executable's graph, with its kernels' workspaces: of a plan with the same recipe, not proved.
 * `resident` as above. The caller frees it, or has the executable take it. */
enum status executable_compile(const struct executable *executable, const struct plan *plan,
                               const struct program *resident, struct program **out);
/* Takes `program` in place of its own. */
void executable_take(struct executable *executable, struct program *program);
/* Proves the program (program_verify), once. FAILED where it is wrong. */
enum status executable_prove(struct executable *executable);
void executable_free(struct executable *executable);
