/* Finds where a resumed run starts, and which settings have changed since. */
#include "train/run_origin.h"

#include "base/json.h"
#include "base/terminal.h"
#include "data/source.h"

/* Hashes of a rank's part of the model's files, and of the next rank's part, in this rank's files. */
struct file_parts {
    uint64_t mine, next;
};

static enum status hash_parts(const struct engine *engine, struct file_parts *out) {
    int ranks = mesh_ranks(&engine_comm(engine)->mesh), rank = engine_comm(engine)->rank;
    TRY(model_hash_files(engine_model(engine), rank, ranks, &out->mine));
    return model_hash_files(engine_model(engine), (rank + 1) % ranks, ranks, &out->next);
}

/* If no rank has read all files, each also checks the next rank's part, so that neighbors detect a differing model. */
static enum status require_same_files(const struct engine *engine) {
    struct comm *comm = engine_comm(engine);
    struct file_parts mine;
    enum status status = hash_parts(engine, &mine);
    AUTO_FREE struct file_parts *each = ranks_gather(comm, &mine, sizeof mine, &status);
    int ranks = mesh_ranks(&comm->mesh);
    for (int rank = 0; each && rank < ranks && status == STATUS_OK; rank++) {
        int next = (rank + 1) % ranks;
        if (each[rank].next == each[next].mine) continue;
        comm->agreed_failure = true;
        status = status_set(STATUS_BAD_INPUT,
                            "ranks differ in the model's weights: rank %d on %s has others than rank "
                            "%d on %s",
                            next, comm->host[next], rank, comm->host[rank]);
    }
    return status;
}

enum status same_weights_require(const struct engine *engine) {
    uint64_t hash;
    if (mesh_ranks(&engine_comm(engine)->mesh) == 1) return STATUS_OK;
    if (engine_is_cut(engine, TENSOR_PARAMETER)) return require_same_files(engine);
    TRY(comm_agree(engine_comm(engine), engine_hash(engine, &hash)));
    return comm_check_same(engine_comm(engine), "the model's weights", &hash, sizeof hash);
}

enum { STATE_LIMIT_BYTES = 1 << 24, VALUE_BYTES = 200 };

/* Objects to compare. */
struct comparison {
    const char *run_folder, *checkpoint;
    int64_t step;
    const char *part; /* "options.", before the fields' names */
    bool (*is_fixed)(const char *field, const json_t *now, const json_t *before); /* NULL: no field is fixed */
};

static const char *print_value(const json_t *value, char text[VALUE_BYTES]) {
    if (json_is_real(value)) {
        snprintf(text, VALUE_BYTES, "%.9g", json_real_value(value));
        return text;
    }
    AUTO_FREE char *dump = json_text(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(text, VALUE_BYTES, "%s", dump ? dump : "?");
    return text;
}

static enum status refuse(const struct comparison *comparison, const char *field, const char *now, const char *before) {
    (void)status_set(STATUS_BAD_INPUT, "%s/run.json: %s%s: is %s, and %s was made with %s", comparison->run_folder,
                     comparison->part, field, now, comparison->checkpoint, before);
    return status_hint(STATUS_BAD_INPUT, "the bits of the run depend on it: put %s back, or train anew", before);
}

/* A field that only one object has is from another version. */
static enum status compare(const struct comparison *comparison, const json_t *now, const json_t *before) {
    const char *field;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, field, value) {
        const json_t *old = json_object_get(before, field);
        char text[VALUE_BYTES], old_text[VALUE_BYTES];
        if (!old || train_option_equal(value, old) || train_option_changes(field)) continue;
        (void)print_value(value, text), (void)print_value(old, old_text);
        if (comparison->is_fixed && comparison->is_fixed(field, value, old))
            return refuse(comparison, field, text, old_text);
        log_note("%s/run.json: %s%s is %s, was %s up to step %" PRId64, comparison->run_folder, comparison->part, field,
                 text, old_text, comparison->step);
    }
    return STATUS_OK;
}

/* A run may add GEMMs later, but the algorithm of a GEMM may not change. */
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

/* Files may have moved; their contents are compared elsewhere. Their number and weights may not change. */
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
    json_auto_t *now = train_options_to_json(&settings->options);
    comparison.part = "options.";
    comparison.is_fixed = option_is_fixed;
    return now ? compare(&comparison, now, json_object_get(state, "options")) : STATUS_FAILED;
}

static enum status compare_plans(struct comparison comparison, const struct plan *now, const struct plan *before) {
    json_auto_t *new_plan = plan_to_json(now), *old_plan = plan_to_json(before);
    TRY(new_plan && old_plan ? STATUS_OK : STATUS_FAILED);
    comparison.part = "plan.recipe.";
    comparison.is_fixed = recipe_is_fixed;
    TRY(compare(&comparison, json_object_get(new_plan, "recipe"), json_object_get(old_plan, "recipe")));
    comparison.part = "plan.policy.";
    comparison.is_fixed = NULL;
    TRY(compare(&comparison, json_object_get(new_plan, "policy"), json_object_get(old_plan, "policy")));
    (void)json_object_del(new_plan, "policy"), (void)json_object_del(new_plan, "recipe");
    comparison.part = "plan.";
    return compare(&comparison, new_plan, old_plan);
}

/* BAD_INPUT, by name, if the recipe differs from the checkpoint's, or if other settings that determine the order of
 * data do. Notes other paths. `state` is the checkpoint's, with the recipe changes that run.json records. `options`
 * receives the checkpoint's options. */
static enum status check_changes(const char *run_folder, const struct run_settings *settings, const char *checkpoint,
                                 const struct checkpoint_state *state, json_t **options) {
    struct comparison comparison = {.run_folder = run_folder, .checkpoint = checkpoint, .step = state->step};
    char file[RUN_PATH_BYTES];
    json_auto_t *object = NULL;
    TRY(run_path(checkpoint, checkpoint_state_name, file));
    TRY(json_read_object(file, STATE_LIMIT_BYTES, &object));
    *options = json_incref(json_object_get(object, "options"));
    TRY(compare_plans(comparison, &settings->plan, &state->plan));
    return compare_options(comparison, settings, object);
}

/* Checks a run without a checkpoint likewise: its plan against RUN/plan.json, if that is readable. */
static enum status check_changes_begun(const char *run_folder, struct run_settings *settings) {
    char file[RUN_PATH_BYTES];
    struct plan begun;
    TRY(run_path(run_folder, "plan.json", file));
    if (!file_exists(file) || plan_read(file, &begun) != STATUS_OK) return STATUS_OK;
    const struct comparison comparison = {.run_folder = run_folder, .checkpoint = file};
    run_changes_apply(&settings->changes, 0, &begun.recipe);
    return compare_plans(comparison, &settings->plan, &begun);
}

/* Takes the checkpoint that rank 0 sees, since a network file system may show others an older directory. */
static enum status find_newest(struct comm *comm, const char *run_folder, char **out) {
    AUTO_FREE char *found = NULL;
    bool leads = !comm || comm->rank == 0;
    enum status status = leads ? checkpoint_find_newest(run_folder, &found) : STATUS_OK;
    if (status == STATUS_OK && leads && !found && !(found = mem_string(""))) status = STATUS_FAILED;
    TRY(comm_agree(comm, status));
    TRY(comm_share_text(comm, &found));
    if (found[0]) *out = TAKE(found);
    return STATUS_OK;
}

enum status run_origin_find(struct comm *comm, const char *run_folder, struct run_settings *settings,
                            struct run_origin *out) {
    out->state.plan = settings->plan;
    TRY(find_newest(comm, run_folder, &out->checkpoint));
    out->valid_every = settings->options.valid_every;
    if (!out->checkpoint) {
        out->options = train_options_to_json(&settings->options);
        enum status begun = out->options ? check_changes_begun(run_folder, settings) : STATUS_FAILED;
        return comm_agree(comm, begun);
    }
    enum status status = checkpoint_verify(comm, out->checkpoint);
    if (status == STATUS_OK) status = comm_agree(comm, checkpoint_read_state(out->checkpoint, &out->state));
    if (status == STATUS_BAD_INPUT) return checkpoint_hint_older(status, run_folder, out->checkpoint);
    TRY(status);
    run_changes_apply(&settings->changes, out->state.step, &out->state.plan.recipe);
    TRY(comm_agree(comm, check_changes(run_folder, settings, out->checkpoint, &out->state, &out->options)));
    const json_t *every = json_object_get(out->options, "valid_every");
    if (json_is_integer(every)) out->valid_every = json_integer_value(every);
    struct recipe *recipe = &out->state.plan.recipe; /* a change may have removed its lines */
    if (!recipe->products) recipe->products = settings->plan.recipe.products;
    if (!recipe->strategies) recipe->strategies = settings->plan.recipe.strategies;
    out->state.plan.policy = settings->plan.policy;
    out->state.plan.place = settings->plan.place;
    out->state.plan.threads = settings->plan.threads;
    return STATUS_OK;
}

/* If a rejected recipe would be accepted with changes, hints at the option that allows them. */
static enum status hint_recipe_change(const struct plan_options *options, const struct backend *backend,
                                      const struct plan *base) {
    struct plan_options allowed = *options;
    struct plan plan;
    struct status_copy refused;
    status_save(STATUS_BAD_INPUT, &refused);
    allowed.allow_recipe_change = true;
    bool helps = plan_options_resolve(&allowed, NULL, backend, NULL, base, "", &plan) == STATUS_OK;
    bool other_way = strstr(refused.hint, "_ISA=") != NULL;
    (void)status_restore(&refused);
    if (!helps || other_way) return STATUS_BAD_INPUT;
    return status_hint(STATUS_BAD_INPUT,
                       "%s%s--allow-recipe-change continues here; results differ from that step on, and run.json "
                       "records the change",
                       refused.hint, refused.hint[0] ? "; or " : "");
}

static void report_change(const struct run_change *change) {
    log_warning("recipe: %s is %s from step %" PRId64
                " on, it was %s: the bits differ from those of a run without this "
                "change",
                change->field, change->to, change->step + 1, change->from);
}

/* A policy is for one number of ranks. With another number, the search starts from the plain policy. */
static void forget_policy(const struct plan_options *options, struct plan *base) {
    int were = rank_place_ranks(&base->place), are = options->comm ? mesh_ranks(&options->comm->mesh) : 1;
    if (were != are)
        base->policy =
            (struct policy){.micro_batches_per_wave = setting_table[SETTING_micro_batches_per_wave].int_value};
}

static void report_ranks(const struct plan *base, const struct plan *now) {
    int were = rank_place_ranks(&base->place), are = rank_place_ranks(&now->place);
    if (were != are) log_note("on %d rank%s, it was %d: the policy is chosen anew", are, are == 1 ? "" : "s", were);
}

enum status run_origin_resolve(struct run_origin *origin, const char *run_folder, const struct plan_options *options,
                               struct run_settings *settings, struct plan *out) {
    char file[RUN_PATH_BYTES];
    struct plan *base = &origin->state.plan;
    const struct backend *backend = plan_options_backend(options, &base->recipe);
    forget_policy(options, base);
    struct run_changes *changes = &settings->changes;
    size_t before = changes->items.count;
    TRY(run_path(run_folder, "run.json", file));
    enum status status = plan_options_resolve(options, NULL, backend, NULL, base, file, out);
    if (status == STATUS_BAD_INPUT && !options->allow_recipe_change) return hint_recipe_change(options, backend, base);
    TRY(status);
    report_ranks(base, out);
    TRY(run_changes_add_recipe(changes, origin->state.step, &base->recipe, &out->recipe));
    for (size_t i = before; i < changes->items.count; i++)
        report_change(&changes->items.items[i]);
    if (options->allow_recipe_change && before == changes->items.count)
        log_note("--allow-recipe-change: nothing had to change");
    return STATUS_OK;
}

static void note_change(const struct run_change *change) {
    log_note("%s is %s from step %" PRId64 " on, it was %s", change->field, change->to, change->step + 1, change->from);
}

enum status run_origin_record_options(const struct run_origin *origin, struct run_settings *settings) {
    struct run_changes *changes = &settings->changes;
    json_auto_t *now = train_options_to_json(&settings->options);
    if (!now) return STATUS_FAILED;
    if (origin->state.version > 0) run_changes_drop_options(changes, origin->state.step); /* of a checkpoint */
    TRY(run_changes_add_options(changes, origin->state.step, origin->options, now));
    for (size_t i = 0; i < changes->items.count; i++) {
        const struct run_change *change = &changes->items.items[i];
        if (change->step == origin->state.step && train_option_changes(change->field)) note_change(change);
    }
    return STATUS_OK;
}

void run_origin_free(struct run_origin *origin) {
    mem_free(origin->checkpoint);
    json_decref(origin->options);
    *origin = (struct run_origin){0};
}
