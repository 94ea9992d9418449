/* Meshes and times of collectives: sections 3 and 13. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "plan/layout/sharding.h"
#include "support/case_layout.h"
#include "support/case_results.h"
#include "support/published_layouts.h"

enum { DEVICES_MAX = 1024 };

/* --- rows from measured pairs --- */

struct search {
    int64_t device[DEVICES_MAX]; /* their names */
    int count;
    struct device_pair *pairs;
    int pair_count;
};

static int position_of(const struct search *search, int64_t device) {
    for (int i = 0; i < search->count; i++)
        if (search->device[i] == device) return i;
    return -1;
}

static enum status read_devices(const char *place, const json_t *object, struct search *search) {
    const json_t *devices;
    TRY(case_array(place, object, "devices", &devices));
    if (json_array_size(devices) < 1 || json_array_size(devices) > DEVICES_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: devices: must hold 1 to %d", place, DEVICES_MAX);
    for (size_t i = 0; i < json_array_size(devices); i++) {
        int64_t device;
        TRY(case_item_int(place, "devices", devices, i, 0, INT64_MAX, &device));
        if (position_of(search, device) >= 0)
            return status_set(STATUS_BAD_INPUT, "%s: devices[%zu]: is there twice", place, i);
        search->device[search->count++] = device;
    }
    return STATUS_OK;
}

static enum status read_pair(const char *place, const json_t *pairs, size_t index, const struct search *search,
                             struct device_pair *out) {
    const json_t *pair;
    int end[2];
    TRY(case_item_array(place, "pairs", pairs, index, &pair));
    for (size_t i = 0; i < 2; i++) {
        int64_t device;
        TRY(case_item_int(place, "pairs[]", pair, i, 0, INT64_MAX, &device));
        end[i] = position_of(search, device);
        if (end[i] < 0)
            return status_set(STATUS_BAD_INPUT, "%s: pairs[%zu]: %lld is none of the devices", place, index,
                              (long long)device);
    }
    out->first = end[0] < end[1] ? end[0] : end[1], out->second = end[0] < end[1] ? end[1] : end[0];
    TRY(case_item_double(place, "pairs[]", pair, 2, 0, 1e9, &out->latency_s));
    return case_item_double(place, "pairs[]", pair, 3, 0, 1e9, &out->s_per_byte);
}

static enum status read_search(const char *place, const json_t *object, struct search *search) {
    const json_t *pairs;
    TRY(read_devices(place, object, search));
    TRY(case_array(place, object, "pairs", &pairs));
    search->pair_count = (int)json_array_size(pairs);
    search->pairs = mem_array((size_t)search->pair_count, sizeof *search->pairs);
    if (!search->pairs) return STATUS_FAILED;
    for (int i = 0; i < search->pair_count; i++)
        TRY(read_pair(place, pairs, (size_t)i, search, &search->pairs[i]));
    return STATUS_OK;
}

static enum status check_each(int count, const struct device_pair *pairs, int pair_count, bool *seen) {
    for (int i = 0; i < pair_count; i++) {
        const struct device_pair *pair = &pairs[i];
        if (pair->first < 0 || pair->second >= count || pair->first >= pair->second)
            return status_set(STATUS_BAD_INPUT, "pair %d: devices %d and %d: must be ascending and below %d", i,
                              pair->first, pair->second, count);
        if (!(pair->s_per_byte >= 0 && isfinite(pair->s_per_byte)))
            return status_set(STATUS_BAD_INPUT, "pair %d: %g s a byte: must be 0 or more", i, pair->s_per_byte);
        size_t at = (size_t)pair->first * (size_t)count + (size_t)pair->second;
        if (seen[at])
            return status_set(STATUS_BAD_INPUT, "pair %d: devices %d and %d are there twice", i, pair->first,
                              pair->second);
        seen[at] = true;
    }
    if ((int64_t)pair_count != (int64_t)count * (count - 1) / 2)
        return status_set(STATUS_BAD_INPUT, "%d pairs: %d devices have %lld", pair_count, count,
                          (long long)count * (count - 1) / 2);
    return STATUS_OK;
}

enum status case_check_pairs(int count, const struct device_pair *pairs, int pair_count) {
    bool *seen = mem_array((size_t)count * (size_t)count, sizeof *seen);
    if (!seen) return STATUS_FAILED;
    enum status status = check_each(count, pairs, pair_count, seen);
    mem_free(seen);
    return status;
}

static json_t *rows_to_json(const struct search *search, const struct mesh_rows *rows) {
    json_t *array = json_array();
    for (int r = 0; r < rows->rows; r++) {
        json_t *row = json_array();
        for (int c = 0; c < rows->columns; c++)
            (void)json_array_append_new(row,
                                        json_integer((json_int_t)search->device[rows->devices[r * rows->columns + c]]));
        (void)json_array_append_new(array, row);
    }
    return array;
}

static enum status add_rows(const json_t *object, const struct search *search, struct case_result *result,
                            struct case_results *out) {
    struct mesh_rows rows;
    const json_t *answer = json_object_get(object, "best_logical_mesh");
    TRY(case_named(result->place, case_check_pairs(search->count, search->pairs, search->pair_count)));
    TRY(case_named(result->place, mesh_rows_search(search->count, search->pairs, search->pair_count, &rows)));
    json_t *found = rows_to_json(search, &rows);
    result->objective = rows.rows;
    result->answered = answer != NULL;
    if (answer && !json_equal(answer, found)) case_fail(result, "other rows than the file's");
    result->more = json_pack("{s:o}", "best_logical_mesh", found);
    mesh_rows_free(&rows);
    return case_results_add(out, result);
}

static enum status add_search(const char *name, const json_t *object, size_t index, struct case_results *out) {
    struct case_result result = {.section = name, .index = (int)index};
    struct search *search = mem_array(1, sizeof *search);
    if (!search) return STATUS_FAILED;
    snprintf(result.place, sizeof result.place, "mesh_search[%zu]", index);
    enum status status = read_search(result.place, object, search);
    if (status == STATUS_OK) status = add_rows(object, search, &result, out);
    mem_free(search->pairs);
    mem_free(search);
    return status;
}

/* --- collectives --- */

/* One axis of so many devices; a flattened mesh has the worst of the alphas and betas that are given. */
static enum status read_axis(const char *place, const json_t *object, struct device_mesh *out) {
    static const char *const fields[] = {"flat_alpha", "flat_beta"};
    double worst[2] = {1, 1};
    const json_t *values;
    *out = (struct device_mesh){.axes = 1};
    TRY(case_int(place, object, "devices", 1, DEVICE_MESH_DEVICES_MAX, &out->sizes[0]));
    for (int i = 0; i < 2; i++) {
        if (!json_object_get(object, fields[i])) continue;
        TRY(case_array(place, object, fields[i], &values));
        for (size_t k = 0; k < json_array_size(values); k++) {
            double value;
            TRY(case_item_double(place, fields[i], values, k, 0, 1e15, &value));
            worst[i] = k == 0 ? value : fmax(worst[i], value);
        }
    }
    out->latency_s[0] = worst[0], out->s_per_byte[0] = worst[1];
    return STATUS_OK;
}

static const struct {
    const char *name;
    double (*cost)(const struct device_mesh *mesh, unsigned axes, double x);
} collectives[] = {
    {"all_gather", published_all_gather},
    {"all_reduce", published_all_reduce},
    {"reduce_scatter", published_reduce_scatter},
    {"all_to_all", published_all_to_all},
};
enum { COLLECTIVES = sizeof collectives / sizeof collectives[0] };

static enum status add_costs(const char *name, const json_t *object, size_t index, struct case_results *out) {
    struct case_result result = {.section = name, .index = (int)index};
    struct device_mesh mesh;
    double numel;
    snprintf(result.place, sizeof result.place, "comm_cost[%zu]", index);
    TRY(case_double(result.place, object, "numel", 0, 1e15, &numel));
    TRY(read_axis(result.place, object, &mesh));
    json_t *costs = json_object();
    for (int i = 0; i < COLLECTIVES; i++) {
        double answer = 0;
        result.objective = collectives[i].cost(&mesh, 1, numel);
        (void)json_object_set_new(costs, collectives[i].name, json_real(result.objective));
        if (!json_object_get(object, collectives[i].name)) continue;
        enum status status = json_read_double(result.place, object, collectives[i].name, 0, INFINITY, &answer);
        if (status != STATUS_OK) {
            json_decref(costs);
            return status;
        }
        case_compare(&result, answer, false);
    }
    result.objective = published_all_reduce(&mesh, 1, numel);
    result.more = costs;
    return case_results_add(out, &result);
}

enum status solve_mesh_cases(const char *name, const json_t *section, struct case_results *out) {
    const json_t *list, *object;
    if (json_object_get(section, "mesh_search")) {
        TRY(case_array(name, section, "mesh_search", &list));
        for (size_t i = 0; i < json_array_size(list); i++) {
            TRY(case_item_object(name, "mesh_search", list, i, &object));
            TRY(case_named(name, add_search(name, object, i, out)));
        }
    }
    if (json_object_get(section, "comm_cost")) {
        TRY(case_array(name, section, "comm_cost", &list));
        for (size_t i = 0; i < json_array_size(list); i++) {
            TRY(case_item_object(name, "comm_cost", list, i, &object));
            TRY(case_named(name, add_costs(name, object, i, out)));
        }
    }
    return STATUS_OK;
}

/* --- section 13: places on a mesh, "device_mesh_4x4": {"rank5_local": [1, 1], "axis1_group_of_rank2": [0, …]} --- */

/* "device_mesh_2x3x4" */
static bool parse_mesh(const char *key, struct device_mesh *out) {
    const char *at = key + strlen("device_mesh_");
    *out = (struct device_mesh){0};
    while (out->axes < DEVICE_MESH_AXES_MAX) {
        char *end;
        long size = strtol(at, &end, 10);
        if (end == at) return false;
        out->sizes[out->axes++] = size;
        if (*end == '\0') return device_mesh_check(out) == STATUS_OK;
        if (*end != 'x') return false;
        at = end + 1;
    }
    return false;
}

static json_t *place_to_json(const struct device_mesh *mesh, int64_t device) {
    int64_t place[DEVICE_MESH_AXES_MAX];
    json_t *array = json_array();
    device_mesh_place(mesh, device, place);
    for (int axis = 0; axis < mesh->axes; axis++)
        (void)json_array_append_new(array, json_integer((json_int_t)place[axis]));
    return array;
}

static json_t *group_to_json(const struct device_mesh *mesh, int64_t device, int axis) {
    json_t *array = json_array();
    for (int64_t i = 0; i < mesh->sizes[axis]; i++)
        (void)json_array_append_new(array, json_integer((json_int_t)device_mesh_neighbour(mesh, device, axis, i)));
    return array;
}

/* NULL where the key asks for something else. */
static json_t *answer_key(const struct device_mesh *mesh, const char *key) {
    int64_t devices = device_mesh_devices(mesh, device_mesh_all_axes(mesh));
    int axis, used = 0;
    long long device;
    if (sscanf(key, "rank%lld_local%n", &device, &used) == 1 && used > 0 && key[used] == '\0')
        return device >= 0 && device < devices ? place_to_json(mesh, device) : NULL;
    used = 0;
    if (sscanf(key, "axis%d_group_of_rank%lld%n", &axis, &device, &used) == 2 && used > 0 && key[used] == '\0')
        return device >= 0 && device < devices && axis >= 0 && axis < mesh->axes ? group_to_json(mesh, device, axis)
                                                                                 : NULL;
    return NULL;
}

static enum status add_places(const char *name, const char *mesh_key, const json_t *object,
                              const struct device_mesh *mesh, struct case_results *out) {
    const char *key;
    json_t *value;
    int index = 0;
    json_object_foreach((json_t *)object, key, value) {
        struct case_result result = {.section = name, .index = index++};
        snprintf(result.place, sizeof result.place, "%.32s.%.32s", mesh_key, key);
        json_t *found = answer_key(mesh, key);
        if (!found)
            return status_set(STATUS_BAD_INPUT, "%s: must be rankN_local or axisN_group_of_rankN of that mesh",
                              result.place);
        result.answered = json_is_array(value);
        if (result.answered && !json_equal(value, found)) case_fail(&result, "another place than the file's");
        result.objective = (double)json_array_size(found);
        result.more = json_pack("{s:o}", "answer", found);
        TRY(case_results_add(out, &result));
    }
    return STATUS_OK;
}

enum status solve_other_cases(const char *name, const json_t *section, struct case_results *out) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)section, key, value) {
        struct device_mesh mesh;
        if (strncmp(key, "device_mesh_", strlen("device_mesh_")) != 0 || !json_is_object(value)) {
            case_skip(out, name, key, "told in words, or of what Ballast has not");
            continue;
        }
        if (!parse_mesh(key, &mesh))
            return status_set(STATUS_BAD_INPUT, "%s: %s: must be like device_mesh_4x4", name, key);
        TRY(case_named(name, add_places(name, key, value, &mesh, out)));
    }
    return STATUS_OK;
}
