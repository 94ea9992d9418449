/* CBC (libCbcSolver), which solves integer programs. It is opened when the first one is solved, so that neither the
 * program nor libballast links a library under the Eclipse Public License. */
#pragma once

#include <Cbc_C_Interface.h>

#include "base/base.h"

#define CBC_FUNCTION_LIST(X)                                                                                           \
    X(newModel)                                                                                                        \
    X(deleteModel)                                                                                                     \
    X(setLogLevel)                                                                                                     \
    X(loadProblem)                                                                                                     \
    X(setInteger)                                                                                                      \
    X(setParameter)                                                                                                    \
    X(setAllowableGap)                                                                                                 \
    X(setAllowableFractionGap)                                                                                         \
    X(setMaximumNodes)                                                                                                 \
    X(solve)                                                                                                           \
    X(isAbandoned)                                                                                                     \
    X(isProvenOptimal)                                                                                                 \
    X(isProvenInfeasible)                                                                                              \
    X(bestSolution)

/* Its functions under their names without "Cbc_". */
struct cbc_library {
#define CBC_FUNCTION_FIELD(name) __typeof__(&Cbc_##name) name;
    CBC_FUNCTION_LIST(CBC_FUNCTION_FIELD)
#undef CBC_FUNCTION_FIELD
};

/* Opens libCbcSolver.so.3 where the system's loader finds it, or the file that BALLAST_CBC in the environment names.
 * Once in a process; later calls return the same. FAILED, with the package to install, where it is missing or lacks a
 * function: a search over layouts then ends, and does not refuse the one layout that needs CBC as BAD_INPUT. */
enum status cbc_library_open(const struct cbc_library **out);
