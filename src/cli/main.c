#include <stdlib.h>
#include <unistd.h>

#include "cli/command.h"

/* How long OpenMP's threads spin at a barrier before they sleep, in turns of a loop. GNU's default of 300000 makes a
 * step on a machine that others use too wait for threads that are not running: a small model fell from 50000 to 600
 * tokens/s. 10000 turns lose nothing on an idle machine and kept 8000 there (bench/results/2026-11-21-openmp-spin.md).
 * The library reads it when it is loaded, before main, hence the second start. */
static void limit_spinning(char **arguments) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (setenv("GOMP_SPINCOUNT", "10000", 1) == 0) execv("/proc/self/exe", arguments);
}

int main(int count, char **arguments) {
    limit_spinning(arguments);
    return cli_run(count - 1, arguments + 1);
}
