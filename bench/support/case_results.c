#include "support/case_results.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum status case_results_add(struct case_results *results, const struct case_result *result) {
    enum status status = vec_push(results, *result);
    if (status != STATUS_OK) json_decref(result->more);
    return status;
}

void case_results_free(struct case_results *results) {
    for (size_t i = 0; i < results->count; i++)
        json_decref(results->items[i].more);
    vec_free(results);
}

void case_fail(struct case_result *result, const char *format, ...) {
    va_list arguments;
    if (result->fault[0] != '\0') return;
    va_start(arguments, format);
    (void)vsnprintf(result->fault, sizeof result->fault, format, arguments);
    va_end(arguments);
}

void case_skip(const struct case_results *results, const char *name, const char *place, const char *why) {
    if (results->skipped) fprintf(results->skipped, "%s: %s%sskipped, %s\n", name, place, place[0] ? ": " : "", why);
}

enum status case_named(const char *name, enum status status) {
    return status == STATUS_OK ? status : status_prefix(status, "%s", name);
}

void case_compare(struct case_result *result, double answer, bool may_be_better) {
    double own = result->objective;
    result->answered = true;
    if (own == answer) return;
    result->gap = isinf(own) || isinf(answer) ? INFINITY : (own - answer) / fmax(fabs(own), fabs(answer));
    if (isinf(answer)) {
        case_fail(result, "an objective of %.17g where the file has no solution", own);
    } else if (isinf(own)) {
        case_fail(result, "no solution where the file has an objective of %.17g", answer);
    } else if (result->gap > CASE_GAP_MAX || (result->gap < -CASE_GAP_MAX && !may_be_better)) {
        case_fail(result, "an objective of %.17g where the file has %.17g", own, answer);
    }
}

static const struct {
    const char *name;
    case_solver *solve;
} sections[] = {
    {"1_dim_difference_table", solve_difference_cases},
    {"2_shape_consistency", solve_conversion_cases},
    {"3_mesh_and_cost_model", solve_mesh_cases},
    {"4_reshape_mapping", solve_reshape_cases},
    {"5_strategy_lists", solve_strategy_cases},
    {"6_intra_op_ilp_colossal", solve_colossal_cases},
    {"8_alpa_ilp", solve_alpa_cases},
    {"9_alpa_interop_dp", solve_stage_cases},
    {"10_rotor_synthetic", solve_rotor_cases},
    {"11_rotor_real_models", solve_rotor_cases},
    {"13_other_asserted", solve_other_cases},
};
enum { SECTIONS = sizeof sections / sizeof sections[0] };

static case_solver *find_solver(const char *name) {
    for (int i = 0; i < SECTIONS; i++)
        if (strcmp(sections[i].name, name) == 0) return sections[i].solve;
    return NULL;
}

enum status case_results_solve(const json_t *file, FILE *skipped, struct case_results *out) {
    const char *name;
    json_t *section;
    *out = (struct case_results){.skipped = skipped};
    json_object_foreach((json_t *)file, name, section) {
        case_solver *solve = find_solver(name);
        if (name[0] == '_') continue;
        if (!solve) {
            case_skip(out, name, "", "no solver");
            continue;
        }
        if (!json_is_object(section)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", name);
        TRY(solve(name, section, out));
    }
    return STATUS_OK;
}
