#include <stdlib.h>
#include <unistd.h>

#include "cli/command.h"

/* How long OpenMP's threads spin at a barrier before they sleep, in turns of a loop. GNU's default spins for
 * milliseconds, which on a machine that others use too makes a step wait for threads that are not running: small models
 * train 5 to 10 times slower beside one busy process. 1000 turns cost at most a tenth on an idle machine
 * (bench/results/2026-11-21-openmp-spin.md). The library reads it when it is loaded, before main, hence the second
 * start. */
static void limit_spinning(char **arguments) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0) execv("/proc/self/exe", arguments);
}

int main(int count, char **arguments) {
    limit_spinning(arguments);
    return cli_run(count - 1, arguments + 1);
}
