#include "train/plan_document.h"

#include "base/folder.h"
#include "base/json.h"
#include "base/mem.h"

static json_t *kinds_to_json(const struct memory_report *memory) {
    json_t *kinds = json_object();
    int failed = !kinds;
    for (int kind = 0; kind < BUFFER_KIND_COUNT; kind++)
        failed |= json_object_set_new(kinds, buffer_kind_name((enum buffer_kind)kind),
                                      json_integer((json_int_t)memory->by_kind[kind]));
    failed |= json_object_set_new(kinds, "unused", json_integer((json_int_t)memory->unused));
    if (!failed) return kinds;
    json_decref(kinds);
    return NULL;
}

static json_t *tiers_to_json(const struct train_setup *setup) {
    json_t *tiers = json_array();
    int failed = !tiers;
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        if (setup->capacity_bytes[tier] == 0 && setup->program_bytes[tier] == 0) continue;
        failed |= json_array_append_new(tiers, json_pack("{s:s, s:I, s:I, s:o}", "name", tier_name((enum tier)tier),
                                                         "program_bytes", (json_int_t)setup->program_bytes[tier],
                                                         "capacity_bytes", (json_int_t)setup->capacity_bytes[tier],
                                                         "by_kind", kinds_to_json(&setup->memory[tier])));
    }
    if (!failed) return tiers;
    json_decref(tiers);
    return NULL;
}

/* A plan file with what is known of it. Times are not predicted yet, so step_s is null and nothing was compared. */
static json_t *document(const struct train_setup *setup) {
    json_t *object = plan_to_json(&setup->plan);
    json_t *tiers = object ? tiers_to_json(setup) : NULL;
    int failed = !object || !tiers;
    if (!failed) {
        failed |= json_object_set_new(object, "step_s", json_null());
        failed |= json_object_set_new(object, "tiers", tiers);
        failed |= json_object_set_new(object, "streams", json_array());
        failed |= json_object_set_new(object, "runners_up", json_array());
        failed |= json_object_set_new(object, "binds", json_null());
    }
    if (!failed) return object;
    json_decref(object);
    (void)status_no_memory(0, "the plan's JSON");
    return NULL;
}

enum status plan_document_make(const struct train_setup *setup, const char *model_folder, json_t **out) {
    json_t *object = document(setup);
    if (!object) return STATUS_FAILED;
    enum status status = plan_set_model(object, model_folder);
    if (status == STATUS_OK)
        *out = object;
    else
        json_decref(object);
    return status;
}

enum status plan_document_write(const char *run_folder, const struct train_setup *setup, const char *model_folder) {
    json_t *object;
    TRY(plan_document_make(setup, model_folder, &object));
    char *path = path_join(run_folder, "plan.json");
    enum status status = path ? json_write(path, object) : STATUS_FAILED;
    mem_free(path);
    json_decref(object);
    return status;
}
