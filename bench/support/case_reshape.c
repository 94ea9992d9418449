/* Reshapes: section 4. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "support/case_layout.h"
#include "support/case_results.h"

/* --- which dimension a cut goes to --- */

/* Least factor of `size` from `min` on that a mesh may have; 0 where there is none. */
static int64_t factor_from(int64_t size, int64_t min) {
    for (int64_t factor = min; factor <= size && factor <= DEVICE_MESH_DEVICES_MAX; factor++)
        if (size % factor == 0) return factor;
    return 0;
}

/* Where a cut of dimension `d` goes, by any number of devices that keeps it; -1 where none does. A dimension of one
 * element is cut by one device. */
static int kept_dimension(const struct layout_shape *from, const struct layout_shape *to, int d) {
    struct device_mesh mesh = {.axes = 1, .sizes = {1}};
    struct layout layout = layout_replicated(), kept;
    int64_t left = from->dims[d];
    layout.dimension[0] = (int8_t)d;
    if (left == 1) return layout_reshape(&layout, &mesh, from, to, &kept) ? kept.dimension[0] : -1;
    for (int64_t factor = 2; (factor = factor_from(left, factor)) > 1; factor++) {
        mesh.sizes[0] = factor;
        if (layout_reshape(&layout, &mesh, from, to, &kept)) return kept.dimension[0];
        while (left % factor == 0)
            left /= factor;
    }
    return -1;
}

/* {"1": [0]}: axis 0 cuts dimension 1. An answer that cuts two dimensions by one axis, or none ("CRASH …"), is
 * upstream's error. */
static bool same_partition(const json_t *answer, int kept) {
    char key[16];
    snprintf(key, sizeof key, "%d", kept);
    if (!json_is_object(answer) || json_object_size(answer) != 1) return true;
    return json_object_get(answer, key) != NULL;
}

static enum status check_shard(const json_t *shard, const struct layout_shape *from, const struct layout_shape *to,
                               struct case_result *result) {
    int64_t d;
    TRY(case_int(result->place, shard, "input_dim", 0, from->rank - 1, &d));
    const json_t *keeps = json_object_get(shard, "keeps"), *answer = json_object_get(shard, "output_partition");
    int kept = kept_dimension(from, to, (int)d);
    if (!keeps || from->dims[d] == 1) return STATUS_OK; /* which no mesh cuts */
    result->answered = true;
    if (json_is_true(keeps) != (kept >= 0))
        case_fail(result, "a cut of dimension %d is %s", (int)d, kept >= 0 ? "kept" : "not kept");
    if (kept >= 0 && answer && !same_partition(answer, kept))
        case_fail(result, "a cut of dimension %d goes to dimension %d", (int)d, kept);
    return STATUS_OK;
}

/* --- which dimensions share elements --- */

/* Runs of elements that a dimension goes through: from its stride to that times its size. */
struct interval {
    int64_t stride, run;
};
static struct interval interval_of(const struct layout_shape *shape, int d) {
    int64_t stride = 1;
    for (int later = d + 1; later < shape->rank; later++)
        stride *= shape->dims[later];
    return (struct interval){stride, stride * shape->dims[d]};
}
static bool intervals_meet(const struct layout_shape *from, int d, const struct layout_shape *to, int e) {
    struct interval a = interval_of(from, d), b = interval_of(to, e);
    return a.stride < b.run && b.stride < a.run && a.run > a.stride && b.run > b.stride;
}

static bool holds(const json_t *array, int number) {
    for (size_t i = 0; i < json_array_size(array); i++)
        if (json_integer_value(json_array_get(array, i)) == number) return true;
    return false;
}

/* Whether an entry [[input dimensions], [output dimensions]] has both. */
static bool mapped(const json_t *mapping, int d, int e) {
    for (size_t i = 0; i < json_array_size(mapping); i++) {
        const json_t *entry = json_array_get(mapping, i);
        if (holds(json_array_get(entry, 0), d) && holds(json_array_get(entry, 1), e)) return true;
    }
    return false;
}

/* Dimensions of one element share nothing, and are not looked at. */
static void check_mapping(const json_t *mapping, const struct layout_shape *from, const struct layout_shape *to,
                          struct case_result *result) {
    for (int d = 0; d < from->rank; d++) {
        for (int e = 0; e < to->rank; e++) {
            if (from->dims[d] == 1 || to->dims[e] == 1) continue;
            result->answered = true;
            if (mapped(mapping, d, e) != intervals_meet(from, d, to, e))
                case_fail(result, "dimensions %d and %d of the two shapes %s elements", d, e,
                          intervals_meet(from, d, to, e) ? "share" : "do not share");
        }
    }
}

static json_t *shards_to_json(const struct layout_shape *from, const struct layout_shape *to, double *kept_count) {
    json_t *array = json_array();
    for (int d = 0; d < from->rank; d++) {
        int kept = kept_dimension(from, to, d);
        char key[16];
        snprintf(key, sizeof key, "%d", kept);
        json_t *partition = kept >= 0 ? json_pack("{s:[i]}", key, 0) : json_null();
        *kept_count += kept >= 0;
        (void)json_array_append_new(
            array, json_pack("{s:i, s:b, s:o}", "input_dim", d, "keeps", kept >= 0, "output_partition", partition));
    }
    return array;
}

static int64_t elements_of(const struct layout_shape *shape) {
    int64_t elements = 1;
    for (int d = 0; d < shape->rank; d++)
        elements *= shape->dims[d];
    return elements;
}

static enum status add(const char *name, const json_t *object, size_t index, struct case_results *out) {
    struct case_result result = {.section = name, .index = (int)index};
    struct layout_shape from, to;
    const json_t *shards, *shard, *mapping;
    snprintf(result.place, sizeof result.place, "cases[%zu]", index);
    TRY(case_read_shape(result.place, object, "from", &from));
    TRY(case_read_shape(result.place, object, "to", &to));
    if (elements_of(&from) != elements_of(&to))
        return status_set(STATUS_BAD_INPUT, "%s: to: must hold as many elements as from", result.place);
    if (json_object_get(object, "shard")) {
        TRY(case_array(result.place, object, "shard", &shards));
        for (size_t i = 0; i < json_array_size(shards); i++) {
            TRY(case_item_object(result.place, "shard", shards, i, &shard));
            TRY(check_shard(shard, &from, &to, &result));
        }
    }
    if (json_object_get(object, "mapping")) {
        TRY(case_array(result.place, object, "mapping", &mapping));
        check_mapping(mapping, &from, &to, &result);
    }
    json_t *kept = shards_to_json(&from, &to, &result.objective);
    result.more = json_pack("{s:o}", "shard", kept);
    return case_results_add(out, &result);
}

/* --- all layouts that use some axes --- */

/* The number after the text, at its end or before an underscore. */
static bool number_after(const char *key, const char *text, long *out) {
    const char *at = strstr(key, text);
    char *end;
    if (!at) return false;
    *out = strtol(at + strlen(text), &end, 10);
    return end > at + strlen(text) && *out >= 0;
}

/* {"0": [0, 1]} as a layout. */
static bool partition_is(const json_t *partition, const struct layout *layout, int axes) {
    for (int axis = 0; axis < axes; axis++) {
        char key[16];
        snprintf(key, sizeof key, "%d", layout->dimension[axis]);
        if (!holds(json_object_get(partition, key), axis)) return false;
    }
    return true;
}

/* "2d_dims3_axes01": layouts of three dimensions that use both of two axes. */
static enum status add_enumeration(const char *name, const char *key, const json_t *listed, int index,
                                   struct case_results *out) {
    struct case_result result = {.section = name, .index = index};
    struct device_mesh mesh = {.axes = strstr(key, "axes012") ? 3 : strstr(key, "axes01") ? 2 : 1, .sizes = {1, 1, 1}};
    long dims = 0;
    int count = 0;
    snprintf(result.place, sizeof result.place, "enumerations.%.32s", key);
    if (!json_is_array(listed) || !number_after(key, "dims", &dims) || dims < 1 || dims > LAYOUT_RANK_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: must be an array for \"…dims1_…\" to %d", result.place,
                          LAYOUT_RANK_MAX);
    for (int number = 0; number < layout_count(&mesh, (int)dims); number++) {
        struct layout layout = layout_of_number(number, &mesh, (int)dims);
        bool all = true, found = false;
        for (int axis = 0; axis < mesh.axes; axis++)
            all = all && layout.dimension[axis] != LAYOUT_REPLICATED;
        if (!all) continue;
        count++;
        for (size_t i = 0; i < json_array_size(listed) && !found; i++)
            found = partition_is(json_array_get(listed, i), &layout, mesh.axes);
        if (!found && json_array_size(listed) > 0) case_fail(&result, "the file lacks layout %d", number);
    }
    result.objective = count;
    if (json_array_size(listed) > 0) case_compare(&result, (double)json_array_size(listed), false);
    return case_results_add(out, &result);
}

enum status solve_reshape_cases(const char *name, const json_t *section, struct case_results *out) {
    const json_t *cases, *object;
    const char *key;
    json_t *value;
    int index = 0;
    TRY(case_array(name, section, "cases", &cases));
    for (size_t i = 0; i < json_array_size(cases); i++) {
        TRY(case_item_object(name, "cases", cases, i, &object));
        TRY(case_named(name, add(name, object, i, out)));
    }
    if (!json_object_get(section, "enumerations")) return STATUS_OK;
    TRY(case_object(name, section, "enumerations", &object));
    json_object_foreach((json_t *)object, key, value)
        TRY(case_named(name, add_enumeration(name, key, value, index++, out)));
    return STATUS_OK;
}
