#include <string.h>

#include "cli/command.h"
#include "cli/run_views.h"
#include "cli/step_options.h"
#include "train/train.h"

static enum status run(const struct options *options) {
    struct plan_options plan;
    TRY(step_options_read(options, true, &plan));
    plan.allow_recipe_change = options_flag(options, OPT_ALLOW_RECIPE_CHANGE);
    plan.base_folder = options_text(options, OPT_BASE);
    struct resume_options resume = {0};
    if (options_given(options, OPT_STEPS)) SETTINGS_GIVE(&resume, steps, options_whole(options, OPT_STEPS));
    if (options_given(options, OPT_EPOCHS)) SETTINGS_GIVE(&resume, epochs, options_real(options, OPT_EPOCHS));
    if (options_given(options, OPT_REPLAN))
        SETTINGS_GIVE(&resume, replan, strcmp(options_text(options, OPT_REPLAN), "auto") == 0);
    struct run_views views;
    enum status status = run_views_open(options, options->arguments.items[0], &views);
    if (status == STATUS_OK) status = train_resume(options->arguments.items[0], &plan, &resume, &views.events);
    if (views.console) status = run_views_put_out(options, &views, status);
    run_views_close(&views);
    return status;
}

const struct command command_resume = {
    .bit = COMMAND_RESUME,
    .name = "resume",
    .arguments = "RUN_DIR",
    .least = 1,
    .most = 1,
    .summary = "go on with a run from its newest checkpoint",
    .details = "Bit for bit as if it had not stopped. Plan options that are given must be those of the run, "
               "--device-memory, --host-memory, --disk, --partition, --collectives, --grains-per-pass and --replan "
               "apart, which change no result. Settings "
               "in RUN_DIR/run.json may be edited before (learning rate, steps, what is saved when); the recipe and "
               "what says which data come when may not. The checkpoint's files are compared with their checksums.",
    .run = run,
};
