#include "support/plain_case.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "support/unit.h"

const struct op_case *plain_case_find(const char *name) {
    for (int i = 0; i < op_case_count; i++)
        if (strcmp(op_cases[i].name, name) == 0) return &op_cases[i];
    fail_msg("no case %s", name);
    return NULL;
}

struct op_instance plain_case_make(const char *name, enum dtype dtype) {
    const struct op_case *op_case = plain_case_find(name);
    struct op_instance instance;
    if (op_instance_create(op_case_build(op_case, dtype, &op_case->sizes), &instance) != STATUS_OK)
        fail_msg("%s: %s", name, status_message());
    op_instance_fill(&instance, 31);
    return instance;
}

double *plain_case_values(const struct op_instance *instance, const char *name) {
    const struct tensor *tensor = op_case_tensor(instance->graph, name);
    double *values = tensor ? op_instance_read(instance, tensor) : mem_array(1 << 20, sizeof *values);
    assert_non_null(values);
    return values;
}

void plain_case_expect(const char *what, const double *found, const double *expected, int64_t count, double max) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    if (!(sqrt(difference) <= max * sqrt(norm)))
        fail_msg("%s: off by %.2e, more than %.0e", what, sqrt(difference / norm), max);
}
