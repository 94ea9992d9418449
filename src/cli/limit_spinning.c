#include "cli/limit_spinning.h"
#include "base/base.h"

#include <sys/prctl.h>
#include <unistd.h>

/* As `ps` and `top` show the process: after the second start it would be that of the link, "exe". */
static void take_name(char **arguments) {
    if (!arguments[0]) return;
    const char *slash = strrchr(arguments[0], '/');
    (void)prctl(PR_SET_NAME, slash ? slash + 1 : arguments[0]);
}

/* The library reads it when it is loaded, before main, hence the second start. Where threads are to be bound to cores
 * it has by then bound this one, and all threads of the second start would share its core. */
void limit_spinning(char **arguments) {
    static const char *const settled[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES",
                                          "GOMP_CPU_AFFINITY"};
    take_name(arguments);
    for (size_t i = 0; i < sizeof settled / sizeof *settled; i++)
        if (getenv(settled[i])) return;
    if (setenv("GOMP_SPINCOUNT", "10000", 1) == 0 && setenv("OMP_WAIT_POLICY", "active", 1) == 0)
        execv("/proc/self/exe", arguments);
}
