#include "train/run_end.h"

#include "base/file.h"
#include "base/json.h"
#include "session/checkpoint/run_folder.h"

enum { RUN_END_VERSION = 1, RUN_END_LIMIT_BYTES = 1 << 16 };
static const char file_name[] = "end.json";

const char *run_state_name(enum run_state state) {
    static const char *const names[] = {[RUN_GOES_ON] = "goes on",
                                        [RUN_FINISHED] = "finished",
                                        [RUN_STOPPED] = "stopped",
                                        [RUN_FAILED] = "failed",
                                        [RUN_INTERRUPTED] = "interrupted"};
    return names[state];
}

enum run_state run_state_of(enum status status) {
    if (status == STATUS_OK) return RUN_FINISHED;
    return status_is_stop(status) ? RUN_STOPPED : RUN_FAILED;
}

static enum status write_end(const char *run_folder, enum run_state state, int64_t step, const char *message) {
    char *path = path_join(run_folder, file_name);
    json_t *object = json_pack("{s:i, s:s, s:I, s:s}", "version", RUN_END_VERSION, "how", run_state_name(state), "step",
                               (json_int_t)step, "message", message);
    enum status status = path && object ? json_write(path, object) : status_no_memory(0, "how a run ended");
    json_decref(object);
    mem_free(path);
    return status;
}

enum status run_end_write(const char *run_folder, enum status status, int64_t step) {
    if (status == STATUS_OK) return write_end(run_folder, RUN_FINISHED, step, "");
    char *message = mem_string(status_message()), *hint = mem_string(status_hint_text());
    if (message && hint) {
        (void)write_end(run_folder, run_state_of(status), step, message);
        (void)status_hint(status_set(status, "%s", message), "%s", hint);
    }
    mem_free(message);
    mem_free(hint);
    return status;
}

enum status run_end_clear(const char *run_folder) {
    char *path = path_join(run_folder, file_name);
    enum status status = path ? STATUS_OK : STATUS_FAILED;
    if (path && file_exists(path) && remove(path) != 0)
        status = status_set(STATUS_FAILED, "%s: cannot be removed", path);
    mem_free(path);
    return status;
}

static enum status read_end(const char *path, enum run_state *state, char **message) {
    json_t *object;
    int64_t version = 0;
    const char *how = NULL, *text_read = "";
    TRY(json_read_object(path, RUN_END_LIMIT_BYTES, &object));
    enum status status;
    enum run_state found = RUN_FINISHED;
    TRY_GOTO(status, json_require(path, object, "how"), done);
    TRY_GOTO(status, json_read_version(path, object, RUN_END_VERSION, &version), done);
    TRY_GOTO(status, json_read_string(path, object, "how", &how), done);
    TRY_GOTO(status, json_read_string(path, object, "message", &text_read), done);
    while (found < RUN_INTERRUPTED && strcmp(run_state_name(found), how) != 0)
        found++;
    if (found == RUN_INTERRUPTED)
        TRY_GOTO(status, status_set(STATUS_BAD_INPUT, "%s: how: '%s' is not known", path, how), done);
    *message = mem_string(text_read);
    TRY_GOTO(status, *message ? STATUS_OK : STATUS_FAILED, done);
    *state = found;
done:
    json_decref(object);
    return status;
}

enum status run_end_read(const char *run_folder, enum run_state *state, char **message) {
    bool held;
    TRY(run_folder_is_held(run_folder, &held));
    char *path = path_join(run_folder, file_name);
    enum status status = path ? STATUS_OK : STATUS_FAILED;
    if (path && !held && file_exists(path))
        status = read_end(path, state, message);
    else if (path && !(*message = mem_string("")))
        status = STATUS_FAILED;
    else
        *state = held ? RUN_GOES_ON : RUN_INTERRUPTED;
    mem_free(path);
    return status;
}
