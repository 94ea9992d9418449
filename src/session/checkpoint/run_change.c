#include "session/checkpoint/run_change.h"

#include "base/json.h"
#include "plan/settings.h"
#include "session/train_options.h"

enum { NUMBER_MAX = SETTING_SIZE_MAX };

/* Fields in runs before RUN_FIRST_TERMS. */
static const struct json_renamed renamed_fields[] = {
    {"tensor", "tensor_parallel"}, {"sequence", "sequence_parallel"}, {"round_grains", "round_micro_batches"}};

void run_changes_free(struct run_changes *changes) { vec_free(&changes->items); }

static enum status add(struct run_changes *changes, int64_t step, const char *field, const char *from, const char *to) {
    struct run_change change = {.step = step};
    if (strcmp(from, to) == 0) return STATUS_OK;
    snprintf(change.field, sizeof change.field, "%s", field);
    snprintf(change.from, sizeof change.from, "%s", from);
    snprintf(change.to, sizeof change.to, "%s", to);
    return vec_push(&changes->items, change);
}

static enum status add_number(struct run_changes *changes, int64_t step, const char *field, int64_t from, int64_t to) {
    char before[RUN_CHANGE_BYTES], after[RUN_CHANGE_BYTES];
    snprintf(before, sizeof before, "%" PRId64, from);
    snprintf(after, sizeof after, "%" PRId64, to);
    return add(changes, step, field, before, after);
}

static const char *reduce_name(const struct recipe *recipe) {
    return recipe->reduce_dtype == DTYPE_BF16 ? "bf16" : "fp32";
}

enum status run_changes_add_recipe(struct run_changes *changes, int64_t step, const struct recipe *from,
                                   const struct recipe *to) {
    TRY(add(changes, step, "isa", from->isa, to->isa));
    TRY(add_number(changes, step, "kernels_version", from->kernels_version, to->kernels_version));
    char before[LANE_SHAPE_BYTES], after[LANE_SHAPE_BYTES];
    TRY(add(changes, step, "lanes", lane_shape_print(&from->lanes, before), lane_shape_print(&to->lanes, after)));
    TRY(add(changes, step, "reduce_dtype", reduce_name(from), reduce_name(to)));
    TRY(add_number(changes, step, "tensor_parallel", recipe_tensor_parallel(from), recipe_tensor_parallel(to)));
    TRY(add(changes, step, "sequence_parallel", from->sequence_parallel ? "on" : "off",
            to->sequence_parallel ? "on" : "off"));
    return add_number(changes, step, "round_micro_batches", from->round_micro_batches, to->round_micro_batches);
}

/* The number of threads was a part of recipes once: what was changed then is kept, and changes nothing now. */
static bool is_number(const char *field) {
    return strcmp(field, "threads") == 0 || strcmp(field, "kernels_version") == 0 ||
           strcmp(field, "round_micro_batches") == 0 || strcmp(field, "tensor_parallel") == 0;
}

static bool is_known(const char *field) {
    return is_number(field) || strcmp(field, "isa") == 0 || strcmp(field, "lanes") == 0 ||
           strcmp(field, "reduce_dtype") == 0 || strcmp(field, "sequence_parallel") == 0 || run_change_is_option(field);
}

static void apply(const struct run_change *change, struct recipe *recipe) {
    if (strcmp(change->field, "isa") == 0) {
        memcpy(recipe->isa, change->to, sizeof recipe->isa);
        recipe->products = NULL; /* they are the other's */
    }
    if (strcmp(change->field, "kernels_version") == 0) recipe->kernels_version = atoi(change->to);
    if (strcmp(change->field, "round_micro_batches") == 0) recipe->round_micro_batches = atoll(change->to);
    if (strcmp(change->field, "tensor_parallel") == 0) {
        recipe->tensor_parallel = atoi(change->to);
        recipe->strategies = NULL; /* they are of so many ranks */
    }
    if (strcmp(change->field, "sequence_parallel") == 0) recipe->sequence_parallel = strcmp(change->to, "on") == 0;
    if (strcmp(change->field, "reduce_dtype") == 0) recipe->reduce_dtype = dtype_find(change->to);
    if (strcmp(change->field, "lanes") == 0) (void)lane_shape_parse(change->to, &recipe->lanes); /* it was checked */
}

void run_changes_apply(struct run_changes *changes, int64_t step, struct recipe *recipe) {
    for (size_t i = 0; i < changes->items.count; i++) {
        if (changes->items.items[i].step < step) continue;
        changes->items.items[i].step = step;
        apply(&changes->items.items[i], recipe);
    }
}

bool run_change_is_option(const char *field) { return train_option_changes(field); }

void run_changes_drop_options(struct run_changes *changes, int64_t step) {
    size_t kept = 0;
    for (size_t i = 0; i < changes->items.count; i++) {
        const struct run_change change = changes->items.items[i];
        if (change.step < step || !run_change_is_option(change.field)) changes->items.items[kept++] = change;
    }
    changes->items.count = kept;
}

static const char *print_option(const json_t *value, char text[RUN_CHANGE_BYTES]) {
    if (json_is_null(value)) return "not given";
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    if (json_is_integer(value))
        snprintf(text, RUN_CHANGE_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        snprintf(text, RUN_CHANGE_BYTES, "%.9g", json_real_value(value));
    return text;
}

enum status run_changes_add_options(struct run_changes *changes, int64_t step, const json_t *from, const json_t *to) {
    const char *field;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)to, field, value) {
        const json_t *old = json_object_get(from, field);
        char before[RUN_CHANGE_BYTES], after[RUN_CHANGE_BYTES];
        if (!old || !run_change_is_option(field) || train_option_equal(value, old)) continue;
        TRY(add(changes, step, field, print_option(old, before), print_option(value, after)));
    }
    return STATUS_OK;
}

json_t *run_changes_to_json(const struct run_changes *changes) {
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < changes->items.count; i++) {
        const struct run_change *change = &changes->items.items[i];
        failed |=
            json_array_append_new(array, json_pack("{s:I, s:s, s:s, s:s}", "step", (json_int_t)change->step, "field",
                                                   change->field, "from", change->from, "to", change->to));
    }
    if (!failed) return array;
    json_decref(array);
    (void)status_no_memory(0, "the changes of a run");
    return NULL;
}

static enum status read_value(const char *where, const json_t *object, const char *key, const char *field,
                              char out[RUN_CHANGE_BYTES]) {
    TRY(json_require(where, object, key));
    TRY(json_read_text(where, object, key, RUN_CHANGE_BYTES, out));
    if (strcmp(field, "lanes") == 0) {
        enum status status = lane_shape_parse(out, &(struct lane_shape){0});
        return status == STATUS_OK ? status : status_prefix(status, "%s: %s", where, key);
    }
    if (strcmp(field, "reduce_dtype") == 0) {
        bool known = strcmp(out, "fp32") == 0 || strcmp(out, "bf16") == 0;
        return known ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: %s: '%s' is not legal", where, key, out);
    }
    bool number = is_number(field);
    int64_t min = strcmp(field, "round_micro_batches") != 0;
    char *end = out;
    long value = number ? strtol(out, &end, 10) : 1;
    bool good = number ? *out && !*end && value >= min && value <= NUMBER_MAX : *out != '\0';
    return good ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: %s: '%s' is not legal", where, key, out);
}

static enum status read_change(const char *where, const json_t *object, int64_t version, struct run_change *out) {
    struct run_change change = {0};
    const char *field = "";
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(json_require(where, object, "step"));
    TRY(json_read_int(where, object, "step", 0, INT64_MAX, &change.step));
    TRY(json_require(where, object, "field"));
    TRY(json_read_string(where, object, "field", &field));
    if (version < RUN_FIRST_TERMS)
        field = json_name_now(renamed_fields, sizeof renamed_fields / sizeof *renamed_fields, field);
    if (!is_known(field)) return status_set(STATUS_BAD_INPUT, "%s: field: a run cannot change '%s'", where, field);
    snprintf(change.field, sizeof change.field, "%s", field);
    TRY(read_value(where, object, "from", change.field, change.from));
    TRY(read_value(where, object, "to", change.field, change.to));
    *out = change;
    return STATUS_OK;
}

const char *run_changes_key(int64_t version) { return version < RUN_FIRST_CHANGES ? "recipe_changes" : "changes"; }

enum status run_changes_from_json(const char *file, const json_t *object, int64_t version, struct run_changes *out) {
    const char *key = run_changes_key(version);
    const json_t *array = json_object_get(object, key);
    if (!array) return STATUS_OK;
    if (!json_is_array(array)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array", file, key);
    for (size_t i = 0; i < json_array_size(array); i++) {
        char *where = mem_format("%s: %s: number %zu", file, key, i);
        struct run_change change;
        enum status status = where ? read_change(where, json_array_get(array, i), version, &change) : STATUS_FAILED;
        mem_free(where);
        TRY(status);
        TRY(vec_push(&out->items, change));
    }
    return STATUS_OK;
}
