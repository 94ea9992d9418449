#include <stdlib.h>
#include <unistd.h>

#include "cli/command.h"

/* How long OpenMP's threads spin at a barrier before they sleep, in turns of a loop. GNU's default of 300000 makes a
 * step on a machine that others use too wait for threads that are not running: a small model fell from 50000 to 600
 * tokens/s. 10000 turns lose nothing on an idle machine and kept 8000 there (bench/results/2026-11-21-openmp-spin.md).
 * The library reads it when it is loaded, before main, hence the second start. Where threads are to be bound to cores
 * it has by then bound this one, and all threads of the second start would share its core. */
static void limit_spinning(char **arguments) {
    static const char *const settled[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES",
                                          "GOMP_CPU_AFFINITY"};
    for (size_t i = 0; i < sizeof settled / sizeof *settled; i++)
        if (getenv(settled[i])) return;
    if (setenv("GOMP_SPINCOUNT", "10000", 1) == 0) execv("/proc/self/exe", arguments);
}

int main(int count, char **arguments) {
    limit_spinning(arguments);
    return cli_run(count - 1, arguments + 1);
}
