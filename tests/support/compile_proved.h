/* Compiles a program and proves it. */
#pragma once

#include "compiler/program.h"

/* program_compile without a resident program, then program_verify. The caller frees. */
enum status program_compile_proved(const struct graph *graph, const struct plan *plan,
                                   const struct workspace_table *workspace, struct program **out);
