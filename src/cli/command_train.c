#include <string.h>

#include "base/mem.h"
#include "cli/command.h"
#include "cli/run_views.h"
#include "cli/step_options.h"
#include "train/train.h"

static void read_training(const struct options *options, struct train_options *out) {
    step_options_read_optimizer(options, out);
    out->steps = options_whole(options, OPT_STEPS);
    TAKE(REAL, EPOCHS, epochs);
    out->learning_rate = options_real(options, OPT_LR);
    out->schedule = lr_schedule_find(options_text(options, OPT_SCHEDULE));
    TAKE(WHOLE, SCHEDULE_STEPS, schedule_steps);
    TAKE(WHOLE, WARMUP_STEPS, warmup_steps);
    out->min_lr_fraction = options_real(options, OPT_MIN_LR_FRACTION);
    out->wsd_decay_fraction = options_real(options, OPT_WSD_DECAY_FRACTION);
    out->save_every = options_whole(options, OPT_SAVE_EVERY);
    out->keep = options_whole(options, OPT_KEEP);
    out->valid_every = options_whole(options, OPT_VALID_EVERY);
    out->valid_batches = options_whole(options, OPT_VALID_BATCHES);
    out->valid_fraction = options_real(options, OPT_VALID_FRACTION);
    out->sample_every = options_whole(options, OPT_SAMPLE_EVERY);
    out->sample_tokens = options_whole(options, OPT_SAMPLE_TOKENS);
    if (options_given(options, OPT_SAMPLE_PROMPT)) out->sample_prompt = options_text(options, OPT_SAMPLE_PROMPT);
    out->loss_on_all = strcmp(options_text(options, OPT_LOSS_ON), "all") == 0;
    out->valid_paths = options->values[OPT_VALID].texts.items;
    out->valid_path_count = options->values[OPT_VALID].texts.count;
    out->data_paths = options->arguments.items + 1;
    out->data_path_count = options->arguments.count - 1;
}

static enum status run(const struct options *options) {
    struct plan_options plan;
    struct train_options training;
    const char *folder = options_text(options, OPT_OUTPUT);
    if (!folder) return status_set(STATUS_BAD_INPUT, "ballast train: --output (-o) RUN_DIR is missing");
    TRY(step_options_read(options, false, &plan));
    read_training(options, &training);
    if (options_given(options, OPT_CHAT_DATE)) training.given |= SETTING_BIT(chat_time_s);
    TRY(step_options_read_chat_date(options, &training.chat_time_s));
    if (options_given(options, OPT_COLUMNS)) training.columns = options_text(options, OPT_COLUMNS);
    struct run_views views;
    enum status status = run_views_open(options, folder, &views);
    if (status == STATUS_OK) status = train_begin(options->arguments.items[0], folder, &plan, &training, &views.events);
    if (views.console) status = run_views_put_out(options, &views, status);
    run_views_close(&views);
    return status;
}

const struct command command_train = {
    .bit = COMMAND_TRAIN,
    .name = "train",
    .arguments = "MODEL_DIR DATA... -o RUN_DIR",
    .least = 2,
    .most = -1,
    .summary = "train a model on text",
    .details =
        "MODEL_DIR is a Hugging Face directory; its weights are where training starts. DATA is .txt, .jsonl or a token "
        "file (.bin), or a folder with train.* and valid.*. A .jsonl file has documents ({\"text\": ...}) or "
        "supervised "
        "examples ({\"prompt\": ..., \"completion\": ...} or {\"messages\": [...]}), of which the completions or the "
        "assistant's turns are trained on. With weights "
        "(a.txt:0.7 b.jsonl:0.3) sequences are drawn in exactly these proportions, else by size. Text is tokenized "
        "while "
        "steps run, and its tokens are kept for later runs once all are made. RUN_DIR gets "
        "metrics.jsonl, checkpoints and, at the end, the trained model in RUN_DIR/model. SIGINT, SIGTERM and SIGHUP "
        "finish the step, write a checkpoint and exit with 130, 143 or 129; a second SIGINT or SIGTERM ends at once, "
        "with 4. Where nobody reads what it prints any more, it goes on. `--config RUN_DIR/run.json -o FOLDER` repeats "
        "a "
        "run bit for bit, unless `resume` made it longer and so changed its schedule on the way: its model and data "
        "are taken where none are given, its plan as --plan takes one. Other "
        "settings may be given anew; an option that differs from the plan's recipe is refused, since the run would be "
        "another.",
    .run = run,
};
