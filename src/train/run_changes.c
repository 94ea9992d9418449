#include "train/run_changes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "data/source.h"

enum { STATE_LIMIT_BYTES = 1 << 24, VALUE_BYTES = 200 };

/* What is compared, and with what. */
struct comparison {
    const char *run_folder, *checkpoint;
    int64_t step;
    const char *part; /* "options.", before the fields' names */
    bool (*is_fixed)(const char *field, const json_t *now, const json_t *before);
};

static const char *print_value(const json_t *value, char text[VALUE_BYTES]) {
    if (json_is_real(value)) {
        snprintf(text, VALUE_BYTES, "%.9g", json_real_value(value));
        return text;
    }
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(text, VALUE_BYTES, "%s", dump ? dump : "?");
    json_text_free(dump);
    return text;
}

static enum status refuse(const struct comparison *comparison, const char *field, const char *now, const char *before) {
    (void)status_set(STATUS_BAD_INPUT, "%s/run.json: %s%s: is %s, and %s was made with %s", comparison->run_folder,
                     comparison->part, field, now, comparison->checkpoint, before);
    return status_hint(STATUS_BAD_INPUT, "the bits of the run depend on it: put %s back, or train anew", before);
}

/* A field that only one of the two has is of another version. */
static enum status compare(const struct comparison *comparison, const json_t *now, const json_t *before) {
    const char *field;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, field, value) {
        const json_t *old = json_object_get(before, field);
        char text[VALUE_BYTES], old_text[VALUE_BYTES];
        if (!old || json_equal(value, old)) continue;
        (void)print_value(value, text), (void)print_value(old, old_text);
        if (comparison->is_fixed(field, value, old)) return refuse(comparison, field, text, old_text);
        log_note("%s/run.json: %s%s is %s, was %s up to step %" PRId64, comparison->run_folder, comparison->part, field,
                 text, old_text, comparison->step);
    }
    return STATUS_OK;
}

/* A run may have more products after a while, but no other algorithm for one. */
static bool products_differ(const json_t *now, const json_t *before) {
    const char *product;
    json_t *algorithm;
    json_object_foreach((json_t *)(uintptr_t)now, product, algorithm) {
        const json_t *old = json_object_get(before, product);
        if (old && !json_equal(algorithm, old)) return true;
    }
    return false;
}

static bool recipe_is_fixed(const char *field, const json_t *now, const json_t *before) {
    return strcmp(field, "products") != 0 || products_differ(now, before);
}

static bool never_fixed(const char *field, const json_t *now, const json_t *before) {
    (void)field, (void)now, (void)before;
    return false;
}

/* Files may have moved, their contents are compared elsewhere; how many there are and their weights may not change. */
static bool sources_differ(const json_t *now, const json_t *before) {
    size_t bytes;
    if (json_array_size(now) != json_array_size(before)) return true;
    for (size_t i = 0; i < json_array_size(now); i++) {
        int64_t weight, old_weight;
        const char *path = json_string_value(json_array_get(now, i));
        const char *old = json_string_value(json_array_get(before, i));
        bool good = path && old && source_split_argument(path, &bytes, &weight) == STATUS_OK &&
                    source_split_argument(old, &bytes, &old_weight) == STATUS_OK;
        if (!good || weight != old_weight) return true;
    }
    return false;
}

static bool option_is_fixed(const char *field, const json_t *now, const json_t *before) {
    static const char *const of_data[] = {"chat_time_s", "columns", "loss_on_all", "valid_fraction"};
    for (size_t i = 0; i < sizeof of_data / sizeof *of_data; i++)
        if (strcmp(field, of_data[i]) == 0) return true;
    return strcmp(field, "data") == 0 && sources_differ(now, before);
}

static enum status compare_options(struct comparison comparison, const struct run_settings *settings,
                                   const json_t *state) {
    json_t *now = train_options_to_json(&settings->options);
    comparison.part = "options.";
    comparison.is_fixed = option_is_fixed;
    enum status status = now ? compare(&comparison, now, json_object_get(state, "options")) : STATUS_FAILED;
    json_decref(now);
    return status;
}

static enum status compare_plans(struct comparison comparison, const struct plan *now, const struct plan *before) {
    json_t *new_plan = plan_to_json(now), *old_plan = plan_to_json(before);
    enum status status = new_plan && old_plan ? STATUS_OK : STATUS_FAILED;
    comparison.part = "plan.recipe.";
    comparison.is_fixed = recipe_is_fixed;
    if (status == STATUS_OK)
        status = compare(&comparison, json_object_get(new_plan, "recipe"), json_object_get(old_plan, "recipe"));
    comparison.part = "plan.policy.";
    comparison.is_fixed = never_fixed;
    if (status == STATUS_OK)
        status = compare(&comparison, json_object_get(new_plan, "policy"), json_object_get(old_plan, "policy"));
    json_decref(new_plan);
    json_decref(old_plan);
    return status;
}

enum status run_changes_check(const char *run_folder, const struct run_settings *settings, const char *checkpoint,
                              const struct checkpoint_state *state) {
    struct comparison comparison = {.run_folder = run_folder, .checkpoint = checkpoint, .step = state->step};
    char *file = path_join(checkpoint, checkpoint_state_name);
    json_t *object = NULL;
    enum status status = file ? json_read_object(file, STATE_LIMIT_BYTES, &object) : STATUS_FAILED;
    if (status == STATUS_OK) status = compare_plans(comparison, &settings->plan, &state->plan);
    if (status == STATUS_OK) status = compare_options(comparison, settings, object);
    json_decref(object);
    mem_free(file);
    return status;
}

enum status run_changes_check_begun(const char *run_folder, struct run_settings *settings) {
    char *file = path_join(run_folder, "plan.json");
    struct plan begun;
    enum status status = file ? STATUS_OK : STATUS_FAILED;
    if (file && file_exists(file) && plan_read(file, &begun) == STATUS_OK) {
        struct comparison comparison = {.run_folder = run_folder, .checkpoint = file};
        recipe_changes_apply(&settings->changes, 0, &begun.recipe);
        status = compare_plans(comparison, &settings->plan, &begun);
    }
    mem_free(file);
    return status;
}
