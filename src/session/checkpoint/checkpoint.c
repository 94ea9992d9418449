#include "session/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "session/checkpoint/run_folder.h"

enum { STATE_LIMIT_BYTES = 1 << 24, NAME_DIGITS = 8 };
const char checkpoint_optimizer_name[] = "optimizer.safetensors", checkpoint_state_name[] = "state.json";
static const char name_prefix[] = "step-";

static bool is_checkpoint(const char *name) {
    size_t prefix = strlen(name_prefix), digits = strspn(name + (strlen(name) >= prefix ? prefix : 0), "0123456789");
    return strncmp(name, name_prefix, prefix) == 0 && digits >= NAME_DIGITS && name[prefix + digits] == '\0';
}

static int64_t step_of(const char *name) { return strtoll(name + strlen(name_prefix), NULL, 10); }

void checkpoint_print_name(int64_t step, char name[CHECKPOINT_NAME_BYTES]) {
    snprintf(name, CHECKPOINT_NAME_BYTES, "%s%0*" PRId64, name_prefix, NAME_DIGITS, step);
}

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

enum { OLDEST_VERSION = 3 }; /* the same but for the manifest and the bits */

static enum status read_version(const char *file, const json_t *object, int64_t *out) {
    TRY(json_read_version(file, object, CHECKPOINT_VERSION, out));
    if (*out >= OLDEST_VERSION) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT,
                     "%s: version: %" PRId64 " is from before Ballast 0.1.0, which read the data in another order",
                     file, *out);
    return status_hint(STATUS_BAD_INPUT, "the directory is a model: start a new run from it with `ballast train`");
}

static enum status state_from_json(const char *file, const json_t *object, struct checkpoint_state *out) {
    static const char *const required[] = {"version", "step", "tokens", "loss", "bits", "data", "plan"};
    struct checkpoint_state state = {0};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        TRY(json_require(file, object, required[i]));
    TRY(read_version(file, object, &state.version));
    TRY(json_read_int(file, object, "step", 0, INT64_MAX, &state.step));
    TRY(json_read_int(file, object, "tokens", 0, INT64_MAX, &state.tokens));
    TRY(json_read_double(file, object, "loss", -1e300, 1e300, &state.loss));
    const json_t *data = json_object_get(object, "data"), *plan = json_object_get(object, "plan");
    TRY(read_hash(file, object, "", "bits", &state.bits));
    if (state.version >= CHECKPOINT_FIRST_LISTED) TRY(read_hash(file, object, "", "base", &state.base));
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
