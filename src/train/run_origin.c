#include "train/run_origin.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "train/run_changes.h"

enum status run_origin_find(const char *run_folder, struct run_settings *settings, struct run_origin *out) {
    out->state.plan = settings->plan;
    TRY(checkpoint_find_newest(run_folder, &out->checkpoint));
    if (!out->checkpoint) return run_changes_check_begun(run_folder, settings);
    enum status status = checkpoint_verify(out->checkpoint);
    if (status == STATUS_OK) status = checkpoint_read_state(out->checkpoint, &out->state);
    if (status == STATUS_BAD_INPUT) return checkpoint_hint_older(status, run_folder, out->checkpoint);
    TRY(status);
    recipe_changes_apply(&settings->changes, out->state.step, &out->state.plan.recipe);
    TRY(run_changes_check(run_folder, settings, out->checkpoint, &out->state));
    struct recipe *recipe = &out->state.plan.recipe; /* a change may have left it without products */
    if (!recipe->products) recipe->products = settings->plan.recipe.products;
    out->state.plan.policy = settings->plan.policy;
    return STATUS_OK;
}

/* For a recipe that was refused as it is: where it would be taken with changes, the option that allows them. */
static enum status hint_recipe_change(const struct plan_options *options, const struct backend *backend,
                                      const struct plan *base) {
    struct plan_options allowed = *options;
    struct plan plan;
    char *message = mem_string(status_message()), *hint = mem_string(status_hint_text());
    enum status status = message && hint ? STATUS_BAD_INPUT : STATUS_FAILED;
    allowed.allow_recipe_change = true;
    if (status == STATUS_BAD_INPUT) {
        bool helps = plan_options_resolve(&allowed, NULL, backend, NULL, base, "", &plan) == STATUS_OK;
        bool other_way = strstr(hint, "_ISA=") != NULL;
        (void)status_hint(status_set(status, "%s", message), "%s", hint);
        if (helps && !other_way)
            (void)status_hint(status,
                              "%s%s--allow-recipe-change goes on with what is here: the bits differ from there on, and "
                              "run.json says so",
                              hint, hint[0] ? "; or " : "");
    }
    mem_free(message);
    mem_free(hint);
    return status;
}

static void tell_change(const struct recipe_change *change) {
    log_warning("recipe: %s is %s from step %" PRId64
                " on, it was %s: the bits differ from those of a run without this "
                "change",
                change->field, change->to, change->step + 1, change->from);
}

enum status run_origin_resolve(const struct run_origin *origin, const char *run_folder,
                               const struct plan_options *options, struct run_settings *settings, struct plan *out) {
    const struct plan *base = &origin->state.plan;
    const struct backend *backend = plan_options_backend(options, &base->recipe);
    struct recipe_changes *changes = &settings->changes;
    size_t before = changes->items.count;
    enum status status = plan_options_resolve(options, NULL, backend, NULL, base, run_folder, out);
    if (status == STATUS_BAD_INPUT && !options->allow_recipe_change) return hint_recipe_change(options, backend, base);
    TRY(status);
    TRY(recipe_changes_add(changes, origin->state.step, &base->recipe, &out->recipe));
    for (size_t i = before; i < changes->items.count; i++)
        tell_change(&changes->items.items[i]);
    if (options->allow_recipe_change && before == changes->items.count)
        log_note("--allow-recipe-change: nothing had to change");
    return STATUS_OK;
}
