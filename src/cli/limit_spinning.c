#include "cli/limit_spinning.h"

#include <stdlib.h>
#include <unistd.h>

/* The library reads it when it is loaded, before main, hence the second start. Where threads are to be bound to cores
 * it has by then bound this one, and all threads of the second start would share its core. */
void limit_spinning(char **arguments) {
    static const char *const settled[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES",
                                          "GOMP_CPU_AFFINITY"};
    for (size_t i = 0; i < sizeof settled / sizeof *settled; i++)
        if (getenv(settled[i])) return;
    if (setenv("GOMP_SPINCOUNT", "10000", 1) == 0 && setenv("OMP_WAIT_POLICY", "active", 1) == 0)
        execv("/proc/self/exe", arguments);
}
