#include "cli/run_views.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/option_effect.h"
#include "cli/ranks.h"
#include "cli/stop_signal.h"
#include "train/run_end.h"

enum status run_views_open(const struct options *options, const char *run_folder, struct run_views *out) {
    *out = (struct run_views){.console = console_create(stderr, options_flag(options, OPT_quiet) || !ranks_talk())};
    if (!out->console) return STATUS_FAILED;
    out->events = *console_events(out->console);
    out->events.opened = option_effects_warn_data;
    out->events.opened_payload = options;
    out->events.stop = stop_signal_poll;
    if (!options_given(options, OPT_serve) || !ranks_talk()) return STATUS_OK;
    TRY(server_open(options_text(options, OPT_serve), run_folder, options_text(options, OPT_compare), &out->server));
    fprintf(stderr, "page: %s\n", server_url(out->server)); /* with --quiet too: a free port is known from here alone */
    return STATUS_OK;
}

static json_t *number_or_null(bool known, double value) {
    return known && isfinite(value) ? json_real(value) : json_null();
}

/* The steps and losses of this process. */
static json_t *steps_to_json(const struct console_account *account) {
    bool stepped = account->steps > 0, validated = account->valid_step > 0;
    double seconds = (double)(clock_now_ns() - account->began_ns) * 1e-9;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "step",
        (json_int_t)(stepped ? account->last.step : account->begun_steps), "run_steps", (json_int_t)account->run_steps,
        "steps", (json_int_t)account->steps, "tokens", (json_int_t)account->tokens, "seconds", seconds, "tokens_per_s",
        number_or_null(stepped && seconds > 0, (double)account->tokens / seconds), "first_loss",
        number_or_null(stepped, account->first.loss), "loss", number_or_null(stepped, account->last.loss), "val_loss",
        number_or_null(validated, account->valid_loss), "best_val_loss", number_or_null(validated, account->best_loss),
        "best_val_step", validated ? json_integer(account->best_step) : json_null());
}

/* Paths that are not UTF-8 are null. */
static json_t *path_to_json(char *path) {
    json_t *text = path ? json_string(path) : NULL;
    mem_free(path);
    return text ? text : json_null();
}

/* The last error, which may name such a path: what is not UTF-8 is fixed. */
static json_t *message_to_json(void) {
    struct text_buffer text = {0};
    const char *message = status_message();
    json_t *copy = NULL;
    if (text_append_repaired(&text, message, strlen(message)) == STATUS_OK)
        copy = text.count > 0 ? json_stringn(text.items, text.count) : json_string("");
    vec_free(&text);
    return copy;
}

static json_t *outcome_to_json(const struct console_account *account, enum status status) {
    enum run_state state = run_state_of(status);
    const char *run = account->run_folder;
    json_t *object =
        json_pack("{s:i, s:o, s:s, s:o, s:o, s:o}", "version", 1, "run", path_to_json(mem_string(run)), "how",
                  run_state_name(state), "message", status == STATUS_OK ? json_string("") : message_to_json(), "model",
                  path_to_json(state == RUN_FINISHED ? path_join(run, "model") : NULL), "checkpoint",
                  path_to_json(account->checkpoint[0] ? mem_string(account->checkpoint) : NULL));
    json_t *steps = steps_to_json(account);
    int failed = !object || !steps || json_object_update(object, steps) != 0;
    json_decref(steps);
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

void run_views_report_complete(struct run_views *views, const char *run_folder, int64_t steps) {
    struct console_account *account = &views->complete;
    *account = (struct console_account){.begun_steps = steps, .run_steps = steps, .began_ns = clock_now_ns()};
    snprintf(account->run_folder, sizeof account->run_folder, "%s", run_folder);
    log_note("%s: complete: all %lld steps are done; a greater --steps makes the run longer", run_folder,
             (long long)steps);
}

enum status run_views_put_out(const struct options *options, const struct run_views *views, enum status status) {
    const struct console_account *done = &views->complete;
    const struct console_account *account = done->run_folder[0] ? done : console_account(views->console);
    if (!options_flag(options, OPT_json) || !account->run_folder[0]) return status;
    json_t *object = outcome_to_json(account, status);
    enum status printed = object ? cli_print_json(object) : status_no_memory(0, "the run's JSON");
    return status == STATUS_OK ? printed : status;
}

void run_views_close(struct run_views *views) {
    stop_signal_end();
    server_close(views->server);
    console_free(views->console);
    *views = (struct run_views){0};
}
