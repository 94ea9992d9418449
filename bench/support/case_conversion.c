/* Conversions between layouts: sections 1 and 2. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "support/case_layout.h"
#include "support/case_results.h"
#include "support/published_layouts.h"

/* --- section 1: how far apart the published walk takes two ways of cutting a dimension to be --- */

enum status solve_difference_cases(const char *name, const json_t *section, struct case_results *out) {
    const struct device_mesh mesh = {.axes = DEVICE_MESH_AXES_MAX, .sizes = {2, 2, 2}};
    const json_t *table;
    const char *key;
    json_t *value;
    int index = 0;
    TRY(case_object(name, section, "table", &table));
    json_object_foreach((json_t *)table, key, value) {
        struct case_result result = {.section = name, .index = index++};
        struct layout from = layout_replicated(), to = layout_replicated();
        char source[LAYOUT_TEXT] = "";
        const char *arrow = strstr(key, "->");
        snprintf(result.place, sizeof result.place, "table.%.32s", key);
        if (!arrow || arrow - key >= (ptrdiff_t)sizeof source)
            return status_set(STATUS_BAD_INPUT, "%s: %s: must be like \"S0->S01\"", name, result.place);
        memcpy(source, key, (size_t)(arrow - key));
        TRY(case_named(result.place, layout_parse_dimension(source, &mesh, 0, &from)));
        TRY(case_named(result.place, layout_parse_dimension(arrow + 2, &mesh, 0, &to)));
        result.objective = published_dimension_difference(layout_axes_of(&from, 0), layout_axes_of(&to, 0));
        if (json_is_number(value)) case_compare(&result, json_number_value(value), false);
        TRY(case_results_add(out, &result));
    }
    return STATUS_OK;
}

/* --- section 2: the cheapest way, by the published prices of steps --- */

static double local_elements(const struct conversions *c, const struct layout *layout) {
    return (double)layout_local_elements(layout, &c->mesh, &c->shape);
}

static struct step_price price_of(const struct conversions *c, const struct layout *at,
                                  const struct layout_step *step) {
    return c->pricer(&c->mesh, step, local_elements(c, at));
}

/* Of the published walk; INFINITY where it does not arrive. */
static double price_walk(const struct conversions *c, const struct layout *from, const struct layout *to) {
    struct layout_step steps[CONVERSION_STEPS_MAX];
    struct layout at = *from;
    double sum = 0;
    int count = published_walk(&c->mesh, &c->shape, from, to, steps);
    for (int i = 0; i < count; i++) {
        struct step_price price = price_of(c, &at, &steps[i]);
        sum += price.forward + price.backward;
        at = layout_after(&at, &steps[i]);
    }
    return count < 0 ? INFINITY : sum;
}

/* The step between two layouts; false where there is none. */
static bool find_step(const struct conversions *c, const struct layout *at, const struct layout *after,
                      struct layout_step *out) {
    struct layout_step steps[LAYOUT_STEPS_MAX];
    int count = layout_steps(at, &c->mesh, c->shape.rank, steps);
    for (int i = 0; i < count; i++) {
        struct layout reached = layout_after(at, &steps[i]);
        if (layout_equal(&reached, after)) {
            *out = steps[i];
            return true;
        }
    }
    return false;
}

/* Of the way that the file has, which may be empty. */
static enum status price_path(const struct conversions *c, const char *place, const json_t *path, double *out) {
    struct layout at, after;
    struct layout_step step;
    int rank = c->shape.rank;
    *out = 0;
    for (size_t i = 0; i < json_array_size(path); i++) {
        TRY(case_parse_layout(place, "path", json_array_get(path, i), &c->mesh, &rank, &after));
        if (i > 0) {
            if (!find_step(c, &at, &after, &step))
                return status_set(STATUS_BAD_INPUT, "%s: path[%zu]: is not one step from the one before", place, i);
            struct step_price price = price_of(c, &at, &step);
            *out += price.forward + price.backward;
        }
        at = after;
    }
    return STATUS_OK;
}

static json_t *path_to_json(const struct conversions *c, const struct layout *from, const struct layout *to,
                            double *forward, double *backward) {
    struct conversion_step path[CONVERSION_STEPS_MAX];
    struct layout at = *from;
    json_t *array = json_array();
    int count = conversions_path(c, from, to, path);
    *forward = *backward = 0;
    if (count > 0) (void)json_array_append_new(array, case_layout_to_json(&at, c->shape.rank));
    for (int i = 0; i < count; i++) {
        at = layout_after(&at, &path[i].step);
        *forward += path[i].price.forward, *backward += path[i].price.backward;
        (void)json_array_append_new(array, case_layout_to_json(&at, c->shape.rank));
    }
    return array;
}

/* The published way, by the file or by our walk, may not be cheaper. */
static enum status compare_way(const struct conversions *c, const json_t *object, const struct layout *from,
                               const struct layout *to, struct case_result *result) {
    const json_t *path = json_object_get(object, "path");
    double walk = price_walk(c, from, to), forward = 0, backward = 0, published;
    if (result->objective > walk * (1 + 1e-12))
        case_fail(result, "%.17g is more than the published walk's %.17g", result->objective, walk);
    if (path) {
        if (!json_is_array(path)) return status_set(STATUS_BAD_INPUT, "%s: path: must be an array", result->place);
        TRY(price_path(c, result->place, path, &published));
        case_compare(result, published, true);
    }
    if (!json_object_get(object, "true_sum_fwd") || !json_object_get(object, "true_sum_bwd")) return STATUS_OK;
    TRY(json_read_double(result->place, object, "true_sum_fwd", 0, INFINITY, &forward));
    TRY(json_read_double(result->place, object, "true_sum_bwd", 0, INFINITY, &backward));
    case_compare(result, forward + backward, true);
    return STATUS_OK;
}

static enum status add_way(const struct conversions *c, const json_t *object, struct case_result *result,
                           struct case_results *out) {
    struct layout from, to;
    double forward, backward;
    int rank = c->shape.rank;
    TRY(case_read_layout(result->place, object, "src", &c->mesh, &rank, &from));
    TRY(case_read_layout(result->place, object, "dst", &c->mesh, &rank, &to));
    result->objective = conversions_price(c, &from, &to);
    TRY(compare_way(c, object, &from, &to, result));
    json_t *path = path_to_json(c, &from, &to, &forward, &backward);
    result->more = json_pack("{s:f, s:f, s:o}", "forward", forward, "backward", backward, "path", path);
    return case_results_add(out, result);
}

static enum status add_grid(const char *name, const json_t *object, size_t index, struct case_results *out) {
    const json_t *cases, *one;
    struct device_mesh mesh;
    struct layout_shape shape;
    struct conversions c;
    char place[CASE_PLACE_BYTES];
    snprintf(place, sizeof place, "grids[%zu]", index);
    TRY(case_read_mesh(place, object, &mesh));
    TRY(case_read_shape(place, object, "tensor_shape", &shape));
    TRY(case_array(place, object, "cases", &cases));
    TRY(case_named(place, conversions_create(&mesh, &shape, 1, published_step_price, &c)));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < json_array_size(cases) && status == STATUS_OK; i++) {
        struct case_result result = {.section = name, .index = (int)i};
        snprintf(result.place, sizeof result.place, "grids[%zu].cases[%zu]", index, i);
        status = case_item_object(place, "cases", cases, i, &one);
        if (status == STATUS_OK) status = add_way(&c, one, &result, out);
    }
    conversions_free(&c);
    return status;
}

/* A shape that divides, where the file gives none. */
static enum status read_or_make_shape(const char *place, const json_t *object, const struct device_mesh *mesh, int rank,
                                      struct layout_shape *out) {
    int64_t devices = device_mesh_devices(mesh, device_mesh_all_axes(mesh));
    const char *field = json_object_get(object, "global_shape") ? "global_shape" : "shape";
    *out = (struct layout_shape){.rank = rank};
    for (int d = 0; d < rank; d++)
        out->dims[d] = devices;
    if (json_object_get(object, field)) TRY(case_read_shape(place, object, field, out));
    if (out->rank == rank) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: must hold %d sizes, as the layouts do", place, field, rank);
}

/* What upstream's tests assert of one way. */
static enum status add_asserted_way(const json_t *object, const struct device_mesh *mesh, struct case_result *result,
                                    struct case_results *out) {
    struct layout_shape shape;
    struct layout from;
    struct conversions c;
    int rank = -1;
    TRY(case_read_layout(result->place, object, "src", mesh, &rank, &from));
    TRY(read_or_make_shape(result->place, object, mesh, rank, &shape));
    TRY(case_named(result->place, conversions_create(mesh, &shape, 1, published_step_price, &c)));
    enum status status = add_way(&c, object, result, out);
    conversions_free(&c);
    return status;
}

/* What upstream's tests assert to be one step from a layout; ours may have more. */
static enum status check_steps(const json_t *object, const struct device_mesh *mesh, const char *field,
                               enum layout_action action, struct case_result *result) {
    const json_t *listed = json_object_get(object, field);
    struct layout from, after;
    struct layout_step steps[LAYOUT_STEPS_MAX];
    int rank = -1;
    TRY(case_read_layout(result->place, object, "one_step_from", mesh, &rank, &from));
    int count = layout_steps(&from, mesh, rank, steps);
    for (int i = 0; i < count; i++)
        result->objective += steps[i].action == action && listed ? 1 : 0;
    for (size_t i = 0; i < json_array_size(listed); i++) {
        bool found = false;
        TRY(case_parse_layout(result->place, field, json_array_get(listed, i), mesh, &rank, &after));
        for (int k = 0; k < count && !found; k++) {
            struct layout reached = layout_after(&from, &steps[k]);
            found = steps[k].action == action && layout_equal(&reached, &after);
        }
        if (!found) case_fail(result, "%s[%zu] is not one step away", field, i);
        result->answered = true;
    }
    return STATUS_OK;
}

static enum status add_asserted(const char *name, const json_t *object, size_t index, struct case_results *out) {
    struct case_result result = {.section = name, .index = (int)index};
    struct device_mesh mesh;
    snprintf(result.place, sizeof result.place, "asserted_by_upstream_tests[%zu]", index);
    TRY(case_read_mesh(result.place, object, &mesh));
    if (!json_object_get(object, "one_step_from")) return add_asserted_way(object, &mesh, &result, out);
    TRY(check_steps(object, &mesh, "all_gather", LAYOUT_GATHER, &result));
    TRY(check_steps(object, &mesh, "all_to_all", LAYOUT_ALL_TO_ALL, &result));
    TRY(check_steps(object, &mesh, "shard", LAYOUT_CUT, &result));
    return case_results_add(out, &result);
}

/* --- what ranks hold before and after --- */

enum { ELEMENTS_MAX = 1 << 16 };

struct holding {
    const struct device_mesh *mesh;
    const struct layout_shape *shape;
    double *value; /* of the whole tensor; NAN where no rank has told it yet */
};

/* One rank's part, nested arrays: writes what is not known yet, and compares what is. */
static enum status hold(const struct holding *holding, const char *place, const char *field, const json_t *part,
                        const int64_t *begin, const int64_t *size, int d, int64_t at, struct case_result *result) {
    if (d == holding->shape->rank) {
        double *known = &holding->value[at], value = json_number_value(part);
        if (!json_is_number(part)) return status_set(STATUS_BAD_INPUT, "%s: %s: must hold numbers", place, field);
        if (isnan(*known)) *known = value;
        if (*known != value) case_fail(result, "%s has %g where %g was put", field, value, *known);
        return STATUS_OK;
    }
    if (!json_is_array(part) || json_array_size(part) != (size_t)size[d])
        return status_set(STATUS_BAD_INPUT, "%s: %s: must hold %lld items in dimension %d", place, field,
                          (long long)size[d], d);
    for (int64_t i = 0; i < size[d]; i++)
        TRY(hold(holding, place, field, json_array_get(part, (size_t)i), begin, size, d + 1,
                 at * holding->shape->dims[d] + begin[d] + i, result));
    return STATUS_OK;
}

/* Fields "rank01_in": what ranks 0 and 1 hold, by the layout. */
static enum status hold_fields(const struct holding *holding, const json_t *object, const char *ending,
                               const struct layout *layout, struct case_result *result) {
    int64_t begin[LAYOUT_RANK_MAX], size[LAYOUT_RANK_MAX];
    int64_t devices = device_mesh_devices(holding->mesh, device_mesh_all_axes(holding->mesh));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        size_t digits = strncmp(key, "rank", 4) == 0 ? strspn(key + 4, "0123456789") : 0;
        if (digits == 0 || strcmp(key + 4 + digits, ending) != 0) continue;
        for (size_t i = 0; i < digits; i++) {
            int64_t device = key[4 + i] - '0';
            if (device >= devices)
                return status_set(STATUS_BAD_INPUT, "%s: %.32s: must name ranks below %lld", result->place, key,
                                  (long long)devices);
            layout_part(layout, holding->mesh, holding->shape, device, begin, size);
            TRY(hold(holding, result->place, key, value, begin, size, 0, 0, result));
            result->answered = true;
        }
    }
    return STATUS_OK;
}

/* "mesh": [[0, 1], [2, 3]], ranks in order. */
static enum status read_nested_mesh(const char *place, const json_t *object, struct device_mesh *out) {
    const json_t *rows, *row;
    TRY(case_array(place, object, "mesh", &rows));
    TRY(case_item_array(place, "mesh", rows, 0, &row));
    *out = (struct device_mesh){.axes = 2,
                                .sizes = {(int64_t)json_array_size(rows), (int64_t)json_array_size(row)},
                                .latency_s = {1, 1},
                                .s_per_byte = {1, 1}};
    return case_named(place, device_mesh_check(out));
}

static enum status check_holding(const json_t *object, const struct device_mesh *mesh, const struct layout_shape *shape,
                                 struct case_result *result) {
    struct holding holding = {mesh, shape, NULL};
    struct layout from, to;
    int rank = shape->rank;
    int64_t elements = 1;
    TRY(case_read_layout(result->place, object, "src", mesh, &rank, &from));
    TRY(case_read_layout(result->place, object, "dst", mesh, &rank, &to));
    for (int d = 0; d < rank && elements <= ELEMENTS_MAX; d++)
        elements *= shape->dims[d] <= ELEMENTS_MAX ? shape->dims[d] : ELEMENTS_MAX + 1;
    if (elements > ELEMENTS_MAX || !layout_fits(&from, mesh, shape) || !layout_fits(&to, mesh, shape))
        return status_set(STATUS_BAD_INPUT, "%s: global_shape: must divide, and have at most %d elements",
                          result->place, ELEMENTS_MAX);
    holding.value = mem_array((size_t)elements, sizeof *holding.value);
    if (!holding.value) return STATUS_FAILED;
    for (int64_t i = 0; i < elements; i++)
        holding.value[i] = NAN;
    enum status status = hold_fields(&holding, object, "_in", &from, result);
    if (status == STATUS_OK) status = hold_fields(&holding, object, "_out", &to, result);
    mem_free(holding.value);
    return status;
}

static enum status add_runtime(const char *name, const json_t *object, struct case_results *out) {
    struct case_result result = {.section = name, .place = "runtime_case"};
    struct device_mesh mesh;
    struct layout_shape shape;
    TRY(read_nested_mesh(result.place, object, &mesh));
    TRY(case_read_shape(result.place, object, "global_shape", &shape));
    TRY(check_holding(object, &mesh, &shape, &result));
    return add_asserted_way(object, &mesh, &result, out);
}

enum status solve_conversion_cases(const char *name, const json_t *section, struct case_results *out) {
    const json_t *grids, *asserted, *object;
    if (json_object_get(section, "asserted_by_upstream_tests")) {
        TRY(case_array(name, section, "asserted_by_upstream_tests", &asserted));
        for (size_t i = 0; i < json_array_size(asserted); i++) {
            TRY(case_item_object(name, "asserted_by_upstream_tests", asserted, i, &object));
            TRY(case_named(name, add_asserted(name, object, i, out)));
        }
    }
    if (json_object_get(section, "runtime_case")) {
        TRY(case_object(name, section, "runtime_case", &object));
        TRY(case_named(name, add_runtime(name, object, out)));
    }
    TRY(case_array(name, section, "grids", &grids));
    for (size_t i = 0; i < json_array_size(grids); i++) {
        TRY(case_item_object(name, "grids", grids, i, &object));
        TRY(case_named(name, add_grid(name, object, i, out)));
    }
    return STATUS_OK;
}
