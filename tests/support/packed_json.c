#include "support/packed_json.h"

#include <stdio.h>

#include "support/unit.h"

json_t *packed_json_read(const char *name) {
    char command[512];
    json_error_t error;
    snprintf(command, sizeof command, "gzip -dc '%s/%s'", BALLAST_FIXTURES, name);
    FILE *text = popen(command, "r");
    if (!text) fail_msg("cannot run %s", command);
    json_t *value = json_loadf(text, 0, &error);
    if (!value) fail_msg("%s: line %d: %s", name, error.line, error.text);
    if (pclose(text) != 0) fail_msg("%s failed", command);
    return value;
}
