/* Stages of pipelines: section 9. */
#include <math.h>

#include "base/json.h"
#include "plan/layout/pipeline.h"
#include "support/case_results.h"

#define COSTS "compute_cost[i][j][submesh]"

/* A problem with its arrays. */
struct problem {
    struct stage_problem problem;
    int submesh_devices[STAGE_SUBMESHES_MAX];
    struct stage_cost *costs;
};

static enum status read_submeshes(const char *place, const json_t *object, struct problem *out) {
    const json_t *choices, *one;
    TRY(case_array(place, object, "submesh_choices", &choices));
    size_t count = json_array_size(choices);
    if (count < 1 || count > STAGE_SUBMESHES_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: submesh_choices: must hold 1 to %d", place, STAGE_SUBMESHES_MAX);
    for (size_t m = 0; m < count; m++) {
        int64_t rows, columns;
        TRY(case_item_array(place, "submesh_choices", choices, m, &one));
        TRY(case_item_int(place, "submesh_choices[]", one, 0, 1, STAGE_DEVICES_MAX, &rows));
        TRY(case_item_int(place, "submesh_choices[]", one, 1, 1, STAGE_DEVICES_MAX, &columns));
        out->submesh_devices[m] = (int)(rows * columns);
    }
    out->problem.submesh_count = (int)count;
    out->problem.submesh_devices = out->submesh_devices;
    return STATUS_OK;
}

/* Of layers `first` to `last`; null: cannot be. */
static enum status read_times(const char *place, const json_t *times, struct stage_cost *costs, int count) {
    for (int m = 0; m < count; m++) {
        costs[m] = (struct stage_cost){.seconds = INFINITY};
        if (!json_is_null(json_array_get(times, (size_t)m)))
            TRY(case_item_double(place, COSTS, times, (size_t)m, 0, 1e30, &costs[m].seconds));
    }
    return STATUS_OK;
}

static enum status read_costs(const char *place, const json_t *object, struct problem *out) {
    const struct stage_problem *problem = &out->problem;
    const json_t *rows, *columns, *times;
    size_t layers = (size_t)problem->layers, submeshes = (size_t)problem->submesh_count;
    TRY(case_array_of(place, object, COSTS, layers, &rows));
    out->costs = mem_array(layers * layers * submeshes, sizeof *out->costs);
    if (!out->costs) return STATUS_FAILED;
    out->problem.costs = out->costs;
    for (size_t first = 0; first < layers; first++) {
        TRY(case_item_array(place, COSTS, rows, first, &columns));
        for (size_t last = first; last < layers; last++) {
            TRY(case_item_array(place, COSTS, columns, last, &times));
            TRY(read_times(place, times, out->costs + (first * layers + last) * submeshes, (int)submeshes));
        }
    }
    return STATUS_OK;
}

static enum status read_problem(const char *place, const json_t *object, struct problem *out) {
    int64_t layers, devices;
    TRY(case_int(place, object, "num_layers", 1, 64, &layers));
    TRY(case_int(place, object, "num_devices", 1, 1024, &devices));
    TRY(case_int(place, object, "num_microbatches", 1, 1 << 20, &out->problem.waves));
    out->problem.layers = (int)layers, out->problem.devices = (int)devices, out->problem.device_bytes = INT64_MAX;
    TRY(read_submeshes(place, object, out));
    return read_costs(place, object, out);
}

/* [[[first, end], submesh], …] */
static json_t *cut_to_json(const struct stage_cut *cut) {
    json_t *array = json_array();
    for (int i = 0; i < cut->count; i++)
        (void)json_array_append_new(
            array, json_pack("[[i,i],i]", cut->stages[i].first, cut->stages[i].last + 1, cut->stages[i].submesh));
    return array;
}

static enum status compare(const char *place, const json_t *object, struct case_result *result) {
    double answer = INFINITY;
    if (json_object_get(object, "alpa_dp_cost")) {
        TRY(json_read_double(place, object, "alpa_dp_cost", 0, INFINITY, &answer));
        case_compare(result, answer, false);
    }
    if (json_object_get(object, "brute_force_cost")) {
        answer = INFINITY;
        TRY(json_read_double(place, object, "brute_force_cost", 0, INFINITY, &answer));
        case_compare(result, answer, false);
    }
    return STATUS_OK;
}

static enum status add(const char *name, const json_t *object, const struct problem *problem,
                       struct case_result *result, struct case_results *out) {
    struct stage_cut cut = {0};
    enum status status = stage_cut_find(&problem->problem, &cut);
    result->section = name;
    result->objective = status == STATUS_OK ? cut.seconds : INFINITY;
    if (status != STATUS_OK && status != STATUS_NO_FIT) return status_prefix(status, "%s", result->place);
    status = compare(result->place, object, result);
    if (status == STATUS_OK) {
        result->more = json_pack("{s:o}", "solution", cut_to_json(&cut));
        status = case_results_add(out, result);
    }
    stage_cut_free(&cut);
    return status;
}

enum status solve_stage_cases(const char *name, const json_t *section, struct case_results *out) {
    const json_t *cases, *object;
    TRY(case_array(name, section, "cases", &cases));
    for (size_t i = 0; i < json_array_size(cases); i++) {
        struct problem problem = {0};
        struct case_result result = {.index = (int)i};
        snprintf(result.place, sizeof result.place, "cases[%zu]", i);
        TRY(case_item_object(name, "cases", cases, i, &object));
        enum status status = read_problem(result.place, object, &problem);
        if (status == STATUS_OK) status = add(name, object, &problem, &result, out);
        mem_free(problem.costs);
        TRY(case_named(name, status));
    }
    return STATUS_OK;
}
