#include "train/eval_origin.h"

#include "base/file.h"
#include "base/log.h"
#include "data/source.h"

/* Whether all files are of pairs. */
static enum status hold_pairs(const struct eval_options *options, bool *out) {
    struct jsonl_columns columns = {0};
    struct sources sources = {0};
    enum status status = jsonl_columns_parse(options->columns ? options->columns : "", &columns);
    for (size_t i = 0; i < options->data_path_count && status == STATUS_OK; i++)
        status = sources_add_valid(options->data_paths[i], &columns, &sources);
    *out = sources.count > 0;
    for (size_t i = 0; i < sources.count; i++)
        *out = *out && source_is_of_pairs(sources.items[i].kind);
    sources_free(&sources);
    jsonl_columns_free(&columns);
    return status;
}

static enum status read_settings(const char *folder, struct eval_origin *origin) {
    char *path = path_join(folder, "run.json");
    if (!path) return STATUS_FAILED;
    bool there = file_exists(path);
    mem_free(path);
    if (!there) return STATUS_OK;
    TRY(run_folder_read(folder, &origin->settings));
    origin->has_settings = true;
    return STATUS_OK;
}

static void take(const struct run_settings *settings, struct eval_origin *origin) {
    const struct recipe *recipe = &settings->plan.recipe;
    struct plan_options *plan = &origin->plan;
    bool own = !origin->eval.reference;
    if (!plan->plan_path) {
        SETTINGS_GIVE(plan, loss, TRAINING_DPO);
        for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
            struct setting_value value;
            if (setting_table[id].only_with != SETTING_loss + 1 || plan->given.of[id]) continue;
            settings_load(&recipe_settings, recipe, id, &value);
            (void)settings_store(&plan_settings, plan, id, "", &value);
        }
    }
    if (own) origin->eval.reference = settings->model_folder;
    if (plan->comm && plan->comm->rank > 0) return;
    log_note("preferences are compared with %s%s", origin->eval.reference, own ? ", which the run began with" : "");
}

enum status eval_origin_find(const char *folder, const struct plan_options *plan, const struct eval_options *eval,
                             struct eval_origin *out) {
    bool given = SETTINGS_HAVE(plan, loss), pairs = given && plan->loss == TRAINING_DPO;
    out->plan = *plan, out->eval = *eval;
    TRY(read_settings(folder, out));
    if (!out->has_settings || out->settings.plan.recipe.loss != TRAINING_DPO) return STATUS_OK;
    if (!given) TRY(hold_pairs(eval, &pairs));
    if (pairs) take(&out->settings, out);
    return STATUS_OK;
}

void eval_origin_free(struct eval_origin *origin) {
    if (origin->has_settings) run_settings_free(&origin->settings);
}
