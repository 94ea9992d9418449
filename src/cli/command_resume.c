#include <string.h>

#include "cli/command.h"
#include "cli/run_views.h"
#include "cli/step_options.h"
#include "train/train.h"

static enum status run(const struct options *options) {
    struct plan_options plan;
    TRY(step_options_read(options, true, &plan));
    plan.allow_recipe_change = options_flag(options, OPT_allow_recipe_change);
    plan.base_folder = options_text(options, OPT_base);
    struct train_options changes = {.steps = 0};
    TRY(options_take(options, &train_settings, &changes));
    struct run_views views;
    enum status status = run_views_open(options, options->arguments.items[0], &views);
    if (status == STATUS_OK) status = train_resume(options->arguments.items[0], &plan, &changes, &views.events);
    if (views.console) status = run_views_put_out(options, &views, status);
    run_views_close(&views);
    return status;
}

const struct command command_resume = {
    .bit = COMMAND_RESUME,
    .name = "resume",
    .arguments = "RUN_DIR",
    .min = 1,
    .max = 1,
    .summary = "continue a run from its newest checkpoint",
    .details =
        "Without options the result is bit for bit that of a run that never stopped. The run's length, schedule and "
        "intervals may change: --steps, --epochs, --lr, --schedule, --save-every, --valid-every and others. New "
        "values count from the next step on. The run keeps them for later resumes, and RUN_DIR/run.json keeps their "
        "history, which `ballast inspect` and the page show. --lr sets the schedule's peak: warm-up and decay keep "
        "their steps, and every later learning rate is multiplied by the new peak over the old one. A schedule "
        "without --schedule-steps stretches to the new --steps. The recipe and the data stay as they are. "
        "--device-memory, --host-memory, --disk, --partition, --collectives, --micro-batches-per-wave and --replan "
        "never "
        "change a result. The checkpoint's files are compared with their checksums.",
    .run = run,
};
