#include <string.h>

#include "base/mem.h"
#include "cli/command.h"
#include "cli/ranks.h"
#include "cli/run_views.h"
#include "cli/step_options.h"
#include "train/run_continue.h"

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

static enum status run(const struct options *options) {
    struct train_options training;
    const char *folder = options_text(options, OPT_output);
    if (!folder) return status_set(STATUS_BAD_INPUT, "ballast train: --output (-o) RUN_DIR is missing");
    TRY(step_options_read_training(options, &training));
    training.data_paths = options->arguments.items + 1;
    training.data_path_count = options->arguments.count - 1;
    struct run_views views;
    enum status status = run_views_open(options, folder, &views);
    if (status == STATUS_OK) status = train(options, folder, &training, &views);
    if (views.console) status = run_views_put_out(options, &views, status);
    run_views_close(&views);
    return status;
}

const struct command command_train = {
    .bit = COMMAND_TRAIN,
    .name = "train",
    .arguments = "MODEL_DIR DATA... -o RUN_DIR",
    .min = 2,
    .max = -1,
    .summary = "train a model",
    .details =
        "MODEL_DIR is a Hugging Face directory; training starts from its weights. DATA is .txt, .jsonl or a "
        "token file (.bin), or a directory with train.* and valid.*. Lines of .jsonl hold documents ({\"text\": "
        "...}), supervised examples ({\"prompt\": ..., \"completion\": ...} or {\"messages\": [...]}, of which only "
        "completions and the assistant's turns are trained on), or preferences ({\"prompt\": ..., \"chosen\": "
        "..., \"rejected\": ...}; --loss dpo). Weights (a.txt:0.7 b.jsonl:0.3) set the exact proportions of "
        "sequences; without them, files count by size. Text is tokenized while steps run, and the tokens are "
        "cached for later runs. RUN_DIR gets metrics.jsonl, checkpoints and, at the end, the trained model in "
        "RUN_DIR/model. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 finish the step, write a checkpoint and "
        "exit with 130, 143, 129, 143 and 143. A second SIGINT or SIGTERM ends the run at once with 4. "
        "Training continues if its output is closed. `--config RUN_DIR/run.json -o DIR` repeats a run bit for "
        "bit, with the run's model, data and plan unless others are given. It refuses options that differ "
        "from the plan's recipe, and a run whose schedule `resume` changed.",
    .run = run,
};
