#include <signal.h>

#include "base/file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands/command.h"
#include "cli/commands/simulate.h"
#include "cli/new_output.h"
#include "report/page/page.h"
#include "report/page/serve.h"

static enum status read_run(const char *folder, const char *beside, json_t **out) {
    struct page_run *run;
    TRY(page_run_open(folder, beside, &run));
    enum status status = page_run_data(run, out);
    if (status == STATUS_OK) status = page_run_end(folder, *out);
    page_run_close(run);
    return status;
}

/* Adds the simulated step of the plan. If that is not possible, because the model has moved or --disk is missing,
 * the page shows no prediction. */
static enum status predict(const struct options *options, json_t *document) {
    struct prediction prediction;
    json_t *timeline = NULL;
    enum status status;
    TRY_GOTO(status, prediction_make(options, &prediction), done);
    timeline = timeline_to_json(prediction.timeline);
    status = timeline ? page_data_predict(document, timeline) : STATUS_FAILED;
done:
    json_decref(timeline);
    prediction_free(&prediction);
    if (status != STATUS_BAD_INPUT) return status;
    log_note("without a prediction: %s%s%s", status_message(), status_hint_text()[0] ? "; " : "", status_hint_text());
    return STATUS_OK;
}

static enum status write_page(const char *path, const json_t *document) {
    size_t bytes;
    char *page = page_make(document, &bytes), size[SIZE_TEXT];
    if (!page) return STATUS_FAILED;
    enum status status = new_file_write(path, page, bytes);
    mem_free(page);
    if (status == STATUS_OK) log_note("wrote %s (%s): open it in any browser", path, size_print((int64_t)bytes, size));
    return status;
}

/* Returns the default path: RUN_DIR/report.html, or plan.html for plan.json. */
static char *default_output(const char *source, bool folder) {
    if (folder) return path_join(source, "report.html");
    size_t length = strlen(source);
    if (length > 5 && strcmp(source + length - 5, ".json") == 0) length -= 5;
    return mem_format("%.*s.html", (int)length, source);
}

/* Returns OK if an existing file is a page, which may be replaced. */
static enum status read_page(const char *path) { return file_check_start(path, "<!doctype html>", "page"); }

/* Serves the page until SIGINT, SIGTERM or SIGHUP. */
static enum status serve_run(const char *address, const char *run_folder, const char *beside) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t stops, before;
    struct server *server;
    int number;
    sigemptyset(&stops);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&stops, numbers[i]);
    sigprocmask(SIG_BLOCK, &stops, &before);
    enum status status = server_open(address, run_folder, beside, &server);
    if (status == STATUS_OK) {
        fprintf(stderr, "page: %s\n", server_url(server)); /* with --quiet too: it shows the chosen port */
        sigwait(&stops, &number);
        server_close(server);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* Refuses a directory without a run, for which the server would only ever answer 503. */
static enum status serve_existing(const char *address, const char *run_folder, const char *beside) {
    json_auto_t *document = NULL;
    TRY(read_run(run_folder, beside, &document));
    return serve_run(address, run_folder, beside);
}

static enum status run(const struct options *options) {
    const char *source = options->arguments.items[0], *output = options_text(options, OPT_output);
    if (!file_exists(source))
        return status_set(STATUS_BAD_INPUT,
                          "%s: no such file or directory" HINT "name a run's directory or a plan file", source);
    bool folder = file_is_folder(source);
    const char *beside = options_text(options, OPT_compare), *address = options_text(options, OPT_serve);
    if (beside && !folder)
        return status_set(STATUS_BAD_INPUT,
                          "--compare %s: %s is a plan, which has no curves" HINT "leave out --compare", beside, source);
    if (address && !folder)
        return status_set(
            STATUS_BAD_INPUT,
            "--serve: %s is a plan; only a run is served" HINT "leave out --serve: the page becomes a file", source);
    if (address && output) return status_set(STATUS_BAD_INPUT, "--serve writes no file" HINT "leave out -o %s", output);
    if (address) return serve_existing(address, source, beside);
    AUTO_FREE char *path = output ? mem_string(output) : default_output(source, folder);
    json_auto_t *document = NULL;
    TRY(path ? new_file_check(path, "a page", read_page) : STATUS_FAILED);
    enum status status = folder ? read_run(source, beside, &document) : page_data_of_plan(source, &document);
    TRY(status_hint_else(status, "name a run's directory or a plan file"));
    if (!folder) TRY(predict(options, document));
    return write_page(path, document);
}

const struct command command_report = {
    .bit = COMMAND_REPORT,
    .name = "report",
    .arguments = "RUN_DIR|plan.json",
    .min = 1,
    .max = 1,
    .summary = "write a run or a plan as one HTML page",
    .details = "Writes one HTML file that needs no network and no other file: the plan, memory over a step, the "
               "timeline of each stream, training curves and samples.",
    .notes = "The run may still be going on. A plan's step is simulated; a run's prediction is the one that `ballast "
             "simulate RUN_DIR` wrote. --serve PORT serves the page of a run, finished or not, until Ctrl-C.",
    .example = "ballast report run -o run.html",
    .run = run,
};
