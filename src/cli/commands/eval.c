#include <math.h>

#include "cli/commands/command.h"
#include "cli/options.h"
#include "cli/step_options.h"
#include "session/engine.h"
#include "train/evaluate.h"
#include "train/train.h"

static json_t *number_or_null(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *file_to_json(const struct eval_file *file, bool pairs) {
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:o, s:o, s:o}", "path", file->path, "sequences", (json_int_t)file->sequences,
                  "tokens", (json_int_t)file->tokens, "loss", number_or_null(file->loss), "perplexity",
                  number_or_null(file->perplexity), "bits_per_byte", number_or_null(file->bits_per_byte));
    if (!pairs || !object) return object;
    const double *figures = file->preference;
    json_t *more =
        json_pack("{s:o, s:o, s:o, s:o}", "reward_chosen", number_or_null(figures[PREFERENCE_CHOSEN]),
                  "reward_rejected", number_or_null(figures[PREFERENCE_REJECTED]), "margin",
                  number_or_null(preference_margin(figures)), "accuracy", number_or_null(figures[PREFERENCE_RIGHT]));
    if (more) json_object_update(object, more);
    json_decref(more);
    return object;
}

static enum status print_json(const struct eval_result *result) {
    json_t *files = json_array();
    for (size_t i = 0; i < result->file_count; i++)
        json_push(&files, file_to_json(&result->files[i], result->pairs));
    json_t *recipe = recipe_to_json(&result->plan.recipe);
    json_t *object =
        json_pack("{s:i, s:o, s:o, s:o, s:f}", "version", 1, "files", files, "total",
                  file_to_json(&result->total, result->pairs), "recipe", recipe, "seconds", result->seconds);
    return object ? cli_print_json(object) : status_no_memory(0, "the evaluation's JSON");
}

static void print_row(const struct eval_file *file) {
    char bits[32] = "-";
    if (isfinite(file->bits_per_byte)) snprintf(bits, sizeof bits, "%.4f", file->bits_per_byte);
    printf("%10.6f %12.4f %10s %12lld  %s\n", file->loss, file->perplexity, bits, (long long)file->tokens, file->path);
}

static void print_pairs_row(const struct eval_file *file) {
    const double *figures = file->preference;
    printf("%10.6f %12.4f %14.4f %10.4f %9.1f%% %8lld  %s\n", file->loss, figures[PREFERENCE_CHOSEN],
           figures[PREFERENCE_REJECTED], preference_margin(figures), 100 * figures[PREFERENCE_RIGHT],
           (long long)file->tokens, file->path);
}

static void print_pairs_table(const struct eval_result *result) {
    printf("%10s %12s %14s %10s %10s %8s  %s\n", "loss", "chosen", "rejected", "margin", "accuracy", "pairs", "file");
    for (size_t i = 0; i < result->file_count; i++)
        print_pairs_row(&result->files[i]);
    if (result->file_count > 1) print_pairs_row(&result->total);
}

static void print_table(const struct eval_result *result) {
    if (result->pairs) {
        print_pairs_table(result);
        return;
    }
    printf("%10s %12s %10s %12s  %s\n", "loss", "perplexity", "bits/byte", "tokens", "file");
    for (size_t i = 0; i < result->file_count; i++)
        print_row(&result->files[i]);
    if (result->file_count > 1) print_row(&result->total);
}

static enum status run(const struct options *options) {
    struct plan_options plan;
    TRY(step_options_read(options, false, &plan));
    struct eval_options eval = {.data_paths = options->arguments.items + 1,
                                .data_path_count = options->arguments.count - 1,
                                .reference = options_text(options, OPT_reference),
                                .max_batches = options_int(options, OPT_batches),
                                .loss_on_all = strcmp(options_text(options, OPT_loss_on_all), "all") == 0};
    eval.chat_time_s = options_int(options, OPT_chat_time_s);
    eval.columns = options_text(options, OPT_columns);
    AUTO(eval_result_free) struct eval_result result = {0};
    TRY(evaluate_files(options->arguments.items[0], &plan, &eval, &result));
    option_effects_warn_data(options, &(struct train_info){.examples = result.examples});
    enum status status = STATUS_OK;
    if (options_flag(options, OPT_json))
        status = print_json(&result);
    else
        print_table(&result);
    return status;
}

const struct command command_eval = {
    .bit = COMMAND_EVAL,
    .name = "eval",
    .arguments = "MODEL_DIR DATA...",
    .min = 2,
    .max = -1,
    .summary = "compute the loss of a model on files",
    .details =
        "Prints the mean negative log-likelihood per token in nats, its exponential (perplexity), and the bits per "
        "byte of plain text, for each file and in total. DATA is as for train; of a directory, Ballast uses valid.*.",
    .notes = "With --loss dpo, DATA are preferences: prints the loss, the rewards of chosen and rejected answers "
             "relative to --reference, their margin, and how many chosen answers have the larger reward. For a run "
             "trained with DPO, these options default to the run's.",
    .example = "ballast eval run/model valid.txt",
    .run = run,
};
