#include "support/compile_proved.h"

enum status program_compile_proved(const struct graph *graph, const struct plan *plan,
                                   const struct workspace_table *workspace, struct program **out) {
    struct program *program;
    TRY(program_compile(graph, plan, workspace, NULL, &program));
    enum status status = program_verify(program);
    if (status == STATUS_OK)
        *out = program;
    else
        program_free(program);
    return status;
}
