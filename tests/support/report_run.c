#include "support/report_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/unit.h"

void report_run_unpack(const char *name, const char *folder, char path[512]) {
    char command[1200];
    snprintf(command, sizeof command, "tar -xzf '%s/report/%s.tar.gz' -C '%s'", BALLAST_FIXTURES, name, folder);
    if (system(command) != 0) fail_msg("%s failed", command);
    snprintf(path, 512, "%s/%s", folder, name);
}
