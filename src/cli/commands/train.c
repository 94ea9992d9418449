/* `ballast train` and `ballast resume`, with their console output and, with --serve, the page. */
#include <math.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands/command.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "cli/step_options.h"
#include "report/console/console.h"
#include "report/page/serve.h"
#include "train/run_state.h"
#include "train/train.h"

struct run_views {
    struct console *console;
    struct server *server;           /* NULL: no --serve */
    struct console_account complete; /* a run that was complete before; without a directory if there were steps to do */
    struct train_events events;      /* those of the console, warnings about options without an effect, stop signals */
};

/* Opens the server before any other work, so that a port in use is reported at once. The caller calls
 * run_views_close, also after a failure. */
static enum status run_views_open(const struct options *options, const char *run_folder, struct run_views *out) {
    *out = (struct run_views){.console = console_create(stderr, options_flag(options, OPT_quiet) || !ranks_talk())};
    if (!out->console) return STATUS_FAILED;
    out->events = *console_events(out->console);
    out->events.opened = option_effects_warn_data;
    out->events.opened_payload = options;
    out->events.stop = stop_signal_poll;
    if (!options_given(options, OPT_serve) || !ranks_talk()) return STATUS_OK;
    TRY(server_open(options_text(options, OPT_serve), run_folder, options_text(options, OPT_compare), &out->server));
    fprintf(stderr, "page: %s\n", server_url(out->server)); /* with --quiet too: it shows the chosen port */
    return STATUS_OK;
}

static json_t *number_or_null(bool known, double value) {
    return known && isfinite(value) ? json_real(value) : json_null();
}

/* Returns the steps and losses of this process. */
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

/* Frees the path. A path that is not UTF-8 becomes null. */
static json_t *path_to_json(char *path) {
    json_t *text = path ? json_string(path) : NULL;
    mem_free(path);
    return text ? text : json_null();
}

/* Returns the last error. It may contain a path that is not UTF-8, whose invalid bytes are replaced. */
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
    json_auto_t *steps = steps_to_json(account);
    return json_unless(!steps || json_object_update(object, steps) != 0, object);
}

/* Reports that `train --continue` found a complete run. */
static void run_views_report_complete(struct run_views *views, const char *run_folder, int64_t steps) {
    struct console_account *account = &views->complete;
    *account = (struct console_account){.begun_steps = steps, .run_steps = steps, .began_ns = clock_now_ns()};
    snprintf(account->run_folder, sizeof account->run_folder, "%s", run_folder);
    log_note("%s: complete: all %lld steps are done; a greater --steps makes the run longer", run_folder,
             (long long)steps);
}

/* With --json, prints the result of the run on stdout: finished, stopped or failed. Prints nothing if the run did
 * not begin. Returns `status` with its message, or the failure of printing. */
static enum status run_views_put_out(const struct options *options, const struct run_views *views, enum status status) {
    const struct console_account *done = &views->complete;
    const struct console_account *account = done->run_folder[0] ? done : console_account(views->console);
    if (!options_flag(options, OPT_json) || !account->run_folder[0]) return status;
    json_t *object = outcome_to_json(account, status);
    enum status printed = object ? cli_print_json(object) : status_no_memory(0, "the run's JSON");
    return status == STATUS_OK ? printed : status;
}

static void run_views_close(struct run_views *views) {
    stop_signal_end();
    server_close(views->server);
    console_free(views->console);
    *views = (struct run_views){0};
}

static enum status begin(const struct options *options, const char *folder, const struct train_options *training,
                         const struct train_events *events) {
    struct plan_options plan;
    TRY(step_options_read(options, false, &plan));
    return train_begin(options->arguments.items[0], folder, &plan, training, events);
}

static enum status go_on(const struct options *options, const char *folder, const struct train_options *training,
                         const struct run_continue *there, struct run_views *views) {
    struct plan_options plan;
    struct train_options changes;
    TRY(step_options_read(options, true, &plan));
    TRY(run_continue_check(options->arguments.items[0], folder, &plan, training, &changes));
    if (there->found == RUN_FOUND_PART) return train_resume(folder, &plan, &changes, &views->events);
    run_views_report_complete(views, folder, there->steps);
    return STATUS_OK;
}

static enum status train(const struct options *options, const char *folder, const struct train_options *training,
                         struct run_views *views) {
    struct run_continue there = {.found = RUN_FOUND_NONE};
    if (options_flag(options, OPT_continue)) TRY(run_continue_find(folder, training, ranks_comm(), &there));
    if (there.found != RUN_FOUND_NONE) return go_on(options, folder, training, &there, views);
    return begin(options, folder, training, &views->events);
}

static enum status run_train(const struct options *options) {
    struct train_options training;
    const char *folder = options_text(options, OPT_output);
    TRY(step_options_read_training(options, &training));
    training.data_paths = options->arguments.items + 1;
    training.data_path_count = options->arguments.count - 1;
    AUTO(run_views_close) struct run_views views = {0};
    enum status status = run_views_open(options, folder, &views);
    if (status == STATUS_OK) status = train(options, folder, &training, &views);
    if (views.console) status = run_views_put_out(options, &views, status);
    return status;
}

const struct command command_train = {
    .bit = COMMAND_TRAIN,
    .name = "train",
    .arguments = "MODEL_DIR DATA... -o RUN_DIR",
    .min = 2,
    .max = -1,
    .summary = "train a model",
    .details = "MODEL_DIR is a Hugging Face directory; training starts from its weights. DATA is .txt, .jsonl or a "
               "token file (.bin), or a directory with train.* and valid.*. RUN_DIR gets metrics.jsonl, checkpoints "
               "and the trained model (RUN_DIR/model).",
    .notes =
        "Lines of .jsonl hold documents ({\"text\": ...}), supervised examples ({\"prompt\": ..., \"completion\": ...} "
        "or {\"messages\": [...]}) or preferences ({\"prompt\": ..., \"chosen\": ..., \"rejected\": ...}, with --loss "
        "dpo). In supervised examples, only completions and the assistant's turns count in the loss. Weights "
        "(a.txt:0.7 b.jsonl:0.3) set the exact proportions of sequences; without them, files count by size. Text is "
        "tokenized while steps run, and the tokens are cached for later runs. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and "
        "SIGUSR2 finish the step, write a checkpoint and exit with 130, 143, 129, 143 and 143. A second SIGINT or "
        "SIGTERM ends the run at once with 4. Training continues if its output is closed. `--config RUN_DIR/run.json "
        "-o DIR` repeats a run bit for bit, with the run's model, data and plan unless others are given. It refuses "
        "options that differ from the plan's recipe, and a run whose schedule `resume` changed.",
    .example = "ballast train gpt2 notes.txt -o run --steps 500",
    .run = run_train,
};

static enum status run_resume(const struct options *options) {
    struct plan_options plan;
    TRY(step_options_read(options, true, &plan));
    plan.allow_recipe_change = options_flag(options, OPT_allow_recipe_change);
    plan.base_folder = options_text(options, OPT_base);
    struct train_options changes = {.steps = 0};
    TRY(options_take(options, &train_settings, &changes));
    AUTO(run_views_close) struct run_views views = {0};
    enum status status = run_views_open(options, options->arguments.items[0], &views);
    if (status == STATUS_OK) status = train_resume(options->arguments.items[0], &plan, &changes, &views.events);
    if (views.console) status = run_views_put_out(options, &views, status);
    return status;
}

const struct command command_resume = {
    .bit = COMMAND_RESUME,
    .name = "resume",
    .arguments = "RUN_DIR",
    .min = 1,
    .max = 1,
    .summary = "continue a run from its newest checkpoint",
    .details = "Without options, the result is bit for bit that of a run that never stopped. Options change the run "
               "from its next step on. The recipe and the data stay as they are.",
    .notes =
        "The run keeps new values for later resumes. RUN_DIR/run.json keeps their history, which `ballast inspect` and "
        "the page show. --lr sets the schedule's peak: warm-up and decay keep their steps, and every later learning "
        "rate is multiplied by the new peak over the old one. A schedule without --schedule-steps stretches to the new "
        "--steps. --device-memory, --host-memory, --disk, --partition, --collectives, --micro-batches-per-wave and "
        "--replan never change a result. Ballast compares the checkpoint's files with their checksums.",
    .example = "ballast resume run --steps 1000",
    .run = run_resume,
};
