/* Any file of cases is refused with a message or solved. Solvers check their results themselves. */
#include "base/json.h"
#include "support/case_results.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *file;
    struct case_results results;
    status_clear();
    if (json_parse_object("fuzz", (const char *)data, bytes, &file) != STATUS_OK) return 0;
    enum status status = case_results_solve(file, NULL, &results);
    BUG_IF(status != STATUS_OK && status_message()[0] == '\0', "no message");
    case_results_free(&results);
    json_decref(file);
    return 0;
}
