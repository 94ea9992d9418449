#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "checkpoint/run_folder.h"

enum { STATE_LIMIT_BYTES = 1 << 24, NAME_DIGITS = 8 };
const char checkpoint_optimizer_name[] = "optimizer.safetensors", checkpoint_state_name[] = "state.json";
static const char name_prefix[] = "step-";

static bool is_checkpoint(const char *name) {
    size_t prefix = strlen(name_prefix), digits = strspn(name + (strlen(name) >= prefix ? prefix : 0), "0123456789");
    return strncmp(name, name_prefix, prefix) == 0 && digits >= NAME_DIGITS && name[prefix + digits] == '\0';
}

static int64_t step_of(const char *name) { return strtoll(name + strlen(name_prefix), NULL, 10); }

/* Names of checkpoints, by step. */
static enum status list_checkpoints(const char *folder, struct names *out) {
    *out = (struct names){0};
    if (!file_exists(folder)) return STATUS_OK;
    TRY(folder_list(folder, out));
    size_t kept = 0;
    for (size_t i = 0; i < out->count; i++) {
        if (!is_checkpoint(out->items[i])) {
            mem_free(out->items[i]);
            continue;
        }
        char *name = out->items[i];
        size_t at = kept++;
        for (; at > 0 && step_of(out->items[at - 1]) > step_of(name); at--)
            out->items[at] = out->items[at - 1];
        out->items[at] = name;
    }
    out->count = kept;
    return STATUS_OK;
}

enum status checkpoint_list(const char *run_folder, struct names *out) {
    char *folder = path_join(run_folder, "checkpoints");
    enum status status = folder ? list_checkpoints(folder, out) : STATUS_FAILED;
    mem_free(folder);
    return status;
}

static enum status write_optimizer(const struct engine *engine, const char *path, uint64_t *hashes,
                                   struct manifest *manifest) {
    struct weight_target *targets;
    struct file_sums *sums;
    int count;
    TRY(manifest_add(manifest, path, &sums));
    TRY(engine_list_tensors(engine, TENSOR_STATE, hashes, &targets, &count));
    struct safetensors_item *items = mem_array((size_t)count, sizeof *items);
    for (int i = 0; items && i < count; i++)
        items[i] = (struct safetensors_item){.name = targets[i].tensor->name,
                                             .shape = targets[i].tensor->shape,
                                             .data = targets[i].data,
                                             .store = targets[i].store,
                                             .key = targets[i].home,
                                             .hash = targets[i].hash};
    enum status status = items ? safetensors_write(path, items, (size_t)count, sums) : STATUS_FAILED;
    mem_free(items);
    mem_free(targets);
    return status;
}

static enum status write_weights(const struct engine *engine, const char *folder, uint64_t *hashes,
                                 struct manifest *manifest) {
    struct weight_target *targets;
    int count;
    TRY(engine_list_tensors(engine, TENSOR_PARAMETER, hashes, &targets, &count));
    enum status status = model_write(engine_model(engine), folder, targets, count, manifest);
    mem_free(targets);
    return status;
}

static void print_hash(uint64_t hash, char text[20]) { snprintf(text, 20, "%016" PRIx64, hash); }

static enum status write_state(const char *path, const struct checkpoint_state *state,
                               const struct train_options *options, struct manifest *manifest) {
    struct file_sums *sums;
    TRY(manifest_add(manifest, path, &sums));
    json_t *plan = plan_to_json(&state->plan), *settings = train_options_to_json(options);
    char data[20], hash[20], base[20];
    print_hash(state->base, base);
    print_hash(state->data, data);
    print_hash(state->bits, hash);
    json_t *object = NULL;
    if (plan && settings)
        object = json_pack("{s:i, s:I, s:I, s:f, s:s, s:s, s:{s:s}, s:O, s:O}", "version", CHECKPOINT_VERSION, "step",
                           (json_int_t)state->step, "tokens", (json_int_t)state->tokens, "loss", state->loss, "bits",
                           hash, "base", base, "data", "fingerprint", data, "options", settings, "plan", plan);
    enum status status = object ? json_write_summed(path, object, sums) : status_no_memory(0, "a checkpoint's state");
    json_decref(object);
    json_decref(settings);
    json_decref(plan);
    return status;
}

/* All that reads the arena comes first, once: what is written is checked and hashed on its way. */
static enum status write_arena(const struct checkpoint_source *source, const char *folder, struct manifest *manifest,
                               uint64_t *bits) {
    const struct engine *engine = source->engine;
    char *optimizer = path_join(folder, checkpoint_optimizer_name);
    uint64_t *hashes = mem_array(engine_graph(engine)->tensors.count, sizeof *hashes);
    enum status status;
    TRY_GOTO(status, optimizer && hashes ? write_weights(engine, folder, hashes, manifest) : STATUS_FAILED, done);
    TRY_GOTO(status, write_optimizer(engine, optimizer, hashes, manifest), done);
    status = engine_hash(engine, hashes, bits);
done:
    mem_free(hashes);
    mem_free(optimizer);
    if (source->released) source->released(source->payload);
    return status;
}

static enum status write_listed(const struct checkpoint_source *source, const char *folder,
                                const struct checkpoint_state *state, struct manifest *manifest) {
    struct checkpoint_state found = *state;
    TRY(write_arena(source, folder, manifest, &found.bits));
    TRY(checkpoint_hash_base(engine_model(source->engine), &found.base));
    found.data = dataset_fingerprint(source->dataset); /* the first time it may read all text: steps go on */
    char *json = path_join(folder, checkpoint_state_name);
    enum status status = json ? write_state(json, &found, source->options, manifest) : STATUS_FAILED;
    mem_free(json);
    TRY(status);
    return manifest_write(manifest, folder);
}

static enum status write_files(const struct checkpoint_source *source, const char *folder,
                               const struct checkpoint_state *state) {
    struct manifest manifest = {0};
    enum status status = write_listed(source, folder, state, &manifest);
    manifest_free(&manifest);
    if (status == STATUS_OK) return STATUS_OK;
    return status_prefix(status, "the checkpoint of step %" PRId64 " is not written", state->step);
}

static enum status remove_old(const char *folder, int64_t keep) {
    struct names names;
    if (keep == 0) return STATUS_OK;
    TRY(list_checkpoints(folder, &names));
    enum status status = STATUS_OK;
    for (size_t i = 0; i + (size_t)keep < names.count && status == STATUS_OK; i++)
        status = run_folder_drop(folder, names.items[i]);
    names_free(&names);
    return status;
}

enum status checkpoint_remove_old(const char *run_folder, int64_t keep) {
    char *folder = path_join(run_folder, "checkpoints");
    enum status status = folder ? remove_old(folder, keep) : STATUS_FAILED;
    mem_free(folder);
    return status;
}

/* The next checkpoint copies its tokenizer files from here: the folder that the model was read from may be an old
 * checkpoint that is about to go. */
static enum status move_model_home(struct model *model, const char *folder) {
    if (model->config.adapter.rank > 0) return STATUS_OK; /* an adapter stays with its base model */
    char *home = mem_string(folder);
    if (!home) return STATUS_FAILED;
    mem_free(model->folder);
    model->folder = home;
    return STATUS_OK;
}

static enum status write_and_publish(const struct checkpoint_source *source, const char *folder, const char *name,
                                     const struct checkpoint_state *state) {
    char *temporary;
    TRY(folder_create(folder));
    TRY(run_folder_begin(folder, name, &temporary));
    enum status status = write_files(source, temporary, state);
    if (status == STATUS_OK) return run_folder_publish(folder, name, temporary);
    run_folder_abandon(temporary);
    return STATUS_FAILED;
}

enum status checkpoint_write(const struct checkpoint_source *source, const struct checkpoint_state *state, char **out) {
    char *folder = path_join(source->run_folder, "checkpoints");
    char *name = mem_format("%s%0*" PRId64, name_prefix, NAME_DIGITS, state->step);
    char *path = folder && name ? path_join(folder, name) : NULL;
    enum status status;
    TRY_GOTO(status, path ? write_and_publish(source, folder, name, state) : STATUS_FAILED, done);
    TRY_GOTO(status, move_model_home(engine_model(source->engine), path), done);
    /* The new one is there: what is left of the old ones goes with the next, or when the run goes on. */
    if (remove_old(folder, source->options->keep) != STATUS_OK)
        log_warning("an old checkpoint could not be removed: %s", status_message());
    *out = path;
    path = NULL;
done:
    mem_free(folder);
    mem_free(name);
    mem_free(path);
    return status == STATUS_OK ? STATUS_OK : STATUS_FAILED;
}

/* The one with `newer` others after it. */
static enum status find_checkpoint(const char *run_folder, size_t newer, char **out) {
    char *folder = path_join(run_folder, "checkpoints");
    struct names names = {0};
    char *found = NULL;
    enum status status;
    TRY_GOTO(status, folder ? list_checkpoints(folder, &names) : STATUS_FAILED, done);
    if (names.count > newer) found = path_join(folder, names.items[names.count - 1 - newer]);
    if (names.count > newer && !found) TRY_GOTO(status, STATUS_FAILED, done);
    *out = found;
done:
    names_free(&names);
    mem_free(folder);
    return status;
}

enum status checkpoint_find_newest(const char *run_folder, char **out) { return find_checkpoint(run_folder, 0, out); }

enum status checkpoint_hint_older(enum status status, const char *run_folder, const char *newest) {
    char *older = NULL, *message = mem_string(status_message());
    if (message && find_checkpoint(run_folder, 1, &older) == STATUS_OK && older)
        status_hint(status_set(status, "%s", message), "to go on from %s, remove %s", older, newest);
    mem_free(older);
    mem_free(message);
    return status;
}

static enum status read_hash(const char *file, const json_t *object, const char *path, const char *name,
                             uint64_t *out) {
    const char *text = json_string_value(json_object_get(object, name));
    if (text && sscanf(text, "%16" SCNx64, out) == 1) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s%s: must be 16 hexadecimal digits", file, path, name);
}

enum { OLDEST_VERSION = 3 }; /* the same but for the manifest */

static enum status refuse_version(const char *file, int64_t version) {
    (void)status_set(STATUS_BAD_INPUT, "%s: version: %" PRId64 " is of %s Ballast, whose data come in another order",
                     file, version, version < OLDEST_VERSION ? "an older" : "a newer");
    return status_hint(STATUS_BAD_INPUT,
                       "its folder is a model: train on from it as a new run, or resume with that one");
}

static enum status state_from_json(const char *file, const json_t *object, struct checkpoint_state *out) {
    static const char *const required[] = {"version", "step", "tokens", "loss", "bits", "data", "plan"};
    struct checkpoint_state state = {0};
    int64_t version = 0;
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        TRY(json_require(file, object, required[i]));
    TRY(json_read_int(file, object, "version", 1, INT64_MAX, &version));
    if (version < OLDEST_VERSION || version > CHECKPOINT_VERSION) return refuse_version(file, version);
    state.version = version;
    TRY(json_read_int(file, object, "step", 0, INT64_MAX, &state.step));
    TRY(json_read_int(file, object, "tokens", 0, INT64_MAX, &state.tokens));
    TRY(json_read_double(file, object, "loss", -1e300, 1e300, &state.loss));
    const json_t *data = json_object_get(object, "data"), *plan = json_object_get(object, "plan");
    TRY(read_hash(file, object, "", "bits", &state.bits));
    if (version >= CHECKPOINT_FIRST_LISTED) TRY(read_hash(file, object, "", "base", &state.base));
    TRY(read_hash(file, data, "data.", "fingerprint", &state.data));
    if (!json_is_object(plan)) return status_set(STATUS_BAD_INPUT, "%s: plan: must be an object", file);
    TRY(plan_from_json(file, plan, &state.plan));
    *out = state;
    return STATUS_OK;
}

enum status checkpoint_read_state(const char *folder, struct checkpoint_state *out) {
    char *file = path_join(folder, checkpoint_state_name);
    json_t *object = NULL;
    enum status status = file ? json_read_object(file, STATE_LIMIT_BYTES, &object) : STATUS_FAILED;
    if (status == STATUS_OK) status = state_from_json(file, object, out);
    json_decref(object);
    mem_free(file);
    return status;
}

enum status checkpoint_write_model(const char *run_folder, const struct engine *engine) {
    char *temporary;
    TRY(run_folder_begin(run_folder, "model", &temporary));
    struct manifest manifest = {0};
    enum status status = write_weights(engine, temporary, NULL, &manifest);
    manifest_keep(&manifest, ".safetensors");
    if (status == STATUS_OK) status = manifest_write(&manifest, temporary);
    manifest_free(&manifest);
    if (status == STATUS_OK) return run_folder_publish(run_folder, "model", temporary);
    run_folder_abandon(temporary);
    return STATUS_FAILED;
}
