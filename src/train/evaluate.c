#include "train/evaluate.h"

#include <math.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/terminal.h"
#include "data/source.h"
#include "session/checkpoint/checkpoint.h"
#include "train/data.h"
#include "train/reference.h"

/* The given options, with the run's added. Zero-initialize; eval_origin_free. */
struct eval_origin {
    struct plan_options plan;
    struct eval_options eval;
    struct run_settings settings; /* owns the added texts */
    bool has_settings;
};

enum status loss_sum_add(struct comm *comm, enum status status, const struct loss_sum *mine, struct loss_sum *sum) {
    AUTO_FREE struct loss_sum *every = ranks_gather(comm, mine, sizeof *mine, &status);
    for (int rank = 0; every && rank < mesh_ranks(&comm->mesh); rank++) {
        for (int i = 0; i < LOSS_FIGURES_MAX; i++)
            sum->figures[i] += every[rank].figures[i];
        sum->targets += every[rank].targets;
        sum->stopped |= every[rank].stopped;
    }
    return status;
}

enum status loss_sum_add_turn(struct engine *engine, const struct dataset *dataset, int64_t first, int64_t batches,
                              bool stopped, struct loss_sum *sum) {
    struct loss_sum mine = {.stopped = stopped};
    int64_t batch = first + engine_turn_of(engine).place;
    enum status status = !stopped && batch < batches
                             ? engine_add_loss(engine, dataset, batch, mine.figures, &mine.targets)
                             : engine_join_loss(engine);
    return loss_sum_add(engine_comm(engine), status, &mine, sum);
}

void loss_sum_means(const struct loss_sum *sum, double means[LOSS_FIGURES_MAX]) {
    for (int i = 0; i < LOSS_FIGURES_MAX; i++)
        means[i] = sum->figures[i] / (double)(sum->targets > 0 ? sum->targets : 1);
}

/* Reads the DPO settings of an evaluated run from its run.json, so that users need not repeat them. */

/* Whether all files hold pairs. */
static enum status hold_pairs(const struct eval_options *options, bool *out) {
    AUTO(jsonl_columns_free) struct jsonl_columns columns = {0};
    AUTO(sources_free) struct sources sources = {0};
    TRY(jsonl_columns_parse(options->columns ? options->columns : "", &columns));
    for (size_t i = 0; i < options->data_path_count; i++)
        TRY(sources_add_valid(options->data_paths[i], &columns, &sources));
    *out = sources.count > 0;
    for (size_t i = 0; i < sources.count; i++)
        *out = *out && source_is_of_pairs(sources.items[i].kind);
    return STATUS_OK;
}

static enum status read_settings(const char *folder, struct eval_origin *origin) {
    char path[RUN_PATH_BYTES];
    TRY(run_path(folder, "run.json", path));
    if (!file_exists(path)) return STATUS_OK;
    TRY(run_folder_read(folder, &origin->settings));
    origin->has_settings = true;
    return STATUS_OK;
}

static void take(const struct run_settings *settings, struct eval_origin *origin) {
    const struct recipe *recipe = &settings->plan.recipe;
    struct plan_options *plan = &origin->plan;
    bool own = !origin->eval.reference;
    if (!plan->plan_path) {
        SETTINGS_GIVE(plan, loss, TRAINING_DPO);
        for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
            struct setting_value value;
            if (setting_table[id].only_with != SETTING_loss + 1 || plan->given.of[id]) continue;
            settings_load(&recipe_settings, recipe, id, &value);
            (void)settings_store(&plan_settings, plan, id, "", &value);
        }
    }
    if (own) origin->eval.reference = settings->model_folder;
    if (plan->comm && plan->comm->rank > 0) return;
    log_note("preferences are compared with %s%s", origin->eval.reference, own ? ", which the run began with" : "");
}

/* Takes the loss, its settings and the reference model from the run in `folder`, each unless given. Does so if it is a
 * DPO run, and all data are pairs or dpo was requested. A plan file decides the settings itself. */
static enum status eval_origin_find(const char *folder, const struct plan_options *plan,
                                    const struct eval_options *eval, struct eval_origin *out) {
    bool given = SETTINGS_HAVE(plan, loss), pairs = given && plan->loss == TRAINING_DPO;
    out->plan = *plan, out->eval = *eval;
    TRY(read_settings(folder, out));
    if (!out->has_settings || out->settings.plan.recipe.loss != TRAINING_DPO) return STATUS_OK;
    if (!given) TRY(hold_pairs(eval, &pairs));
    if (pairs) take(&out->settings, out);
    return STATUS_OK;
}

static void eval_origin_free(struct eval_origin *origin) {
    if (origin->has_settings) run_settings_free(&origin->settings);
}

struct evaluation {
    const struct eval_options *options;
    struct session session;
    struct session_plan plan;
    struct engine engine;
    int64_t total_bytes;    /* of text whose size is known */
    double total_text_loss; /* estimated loss of all those files: every token at the mean loss */
    bool all_text;
    bool examples;                /* some file has supervised examples */
    struct reference *references; /* by file; NULL: none is needed */
};

static void read_options(const struct eval_options *eval, const char *const *paths, size_t count,
                         struct train_options *out) {
    train_options_init(out);
    out->data_paths = paths;
    out->data_path_count = count;
    if (eval->columns) out->columns = eval->columns;
    if (eval->chat_time_s > 0) SETTINGS_GIVE(out, chat_time_s, eval->chat_time_s);
    out->loss_on_all = eval->loss_on_all;
}

/* Opens a file and tokenizes all of it. */
static enum status open_data(const struct evaluation *evaluation, const char *path, struct train_data *out) {
    struct train_options options;
    AUTO(train_data_close) struct train_data made = {0};
    read_options(evaluation->options, &path, 1, &options);
    TRY(train_data_open(evaluation->session.comm, evaluation->session.model, &evaluation->plan.chosen.recipe, &options,
                        false, &made));
    TRY(dataset_settle(made.dataset, DATASET_VALID));
    *out = TAKE(made);
    return STATUS_OK;
}

static enum status refuse_nonfinite(struct engine *engine, const char *path) {
    bool weight;
    AUTO_FREE char *place = engine_find_nonfinite(engine, &weight);
    return status_set(STATUS_FAILED, "%s: the loss is not finite; the first value that is not: %s", path,
                      place ? place : "unknown");
}

static enum status sum_losses(struct evaluation *evaluation, const struct dataset *dataset, const char *path,
                              struct loss_sum *sum, struct eval_file *out) {
    int64_t ranks = engine_turn_of(&evaluation->engine).places;
    int64_t batch = evaluation->plan.chosen.recipe.batch, max = evaluation->options->max_batches;
    out->sequences = dataset_split_sequences(dataset, DATASET_VALID);
    int64_t batches = (out->sequences + batch - 1) / batch;
    if (max > 0 && batches > max) {
        batches = max;
        out->sequences = batches * batch;
    }
    enum status status = STATUS_OK;
    progress_begin(PROGRESS_COUNT, batches, "batches of %s", path_name(path));
    for (int64_t b = 0; b < batches && status == STATUS_OK; b += ranks) {
        status = loss_sum_add_turn(&evaluation->engine, dataset, b, batches, false, sum);
        if (status == STATUS_OK && !isfinite(sum->figures[0])) status = refuse_nonfinite(&evaluation->engine, path);
        progress_add(batches - b < ranks ? batches - b : ranks);
    }
    progress_end();
    out->tokens = sum->targets;
    return status;
}

static int64_t text_bytes(const char *path) {
    struct stat info;
    return path_ends(path, ".txt") && stat(path, &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : 0;
}

static bool is_of_pairs(const struct evaluation *evaluation) {
    return evaluation->plan.chosen.recipe.loss == TRAINING_DPO;
}

static void describe(const struct evaluation *evaluation, const struct loss_sum *sum, struct eval_file *out) {
    double means[LOSS_FIGURES_MAX];
    loss_sum_means(sum, means);
    out->loss = means[0];
    out->perplexity = is_of_pairs(evaluation) ? NAN : exp(out->loss);
    out->bits_per_byte = NAN;
    if (is_of_pairs(evaluation)) memcpy(out->preference, means, sizeof out->preference);
}

/* Sets the reference log-probabilities of file `index`. */
static enum status set_reference(const struct evaluation *evaluation, size_t index, struct dataset *dataset) {
    if (!evaluation->references) return STATUS_OK;
    const struct reference *reference = &evaluation->references[index];
    if (dataset_sequences(dataset) != reference->count)
        return status_set(STATUS_BAD_INPUT, "%s: its tokens are others for the reference model",
                          evaluation->options->data_paths[index]);
    dataset_set_references(dataset, reference->values);
    return STATUS_OK;
}

static enum status evaluate_one(struct evaluation *evaluation, size_t index, struct loss_sum *sum,
                                struct eval_file *out) {
    const char *path = evaluation->options->data_paths[index];
    AUTO(train_data_close) struct train_data data = {0};
    TRY(open_data(evaluation, path, &data));
    dataset_report_cuts(data.dataset);
    evaluation->examples |= dataset_has_examples(data.dataset);
    TRY(set_reference(evaluation, index, data.dataset));
    TRY(sum_losses(evaluation, data.dataset, path, sum, out));
    describe(evaluation, sum, out);
    int64_t bytes = text_bytes(path);
    double all_tokens = out->loss * (double)dataset_tokens(data.dataset);
    if (bytes > 0) out->bits_per_byte = all_tokens / (log(2) * (double)bytes);
    evaluation->total_bytes += bytes;
    evaluation->total_text_loss += all_tokens;
    evaluation->all_text &= bytes > 0;
    return STATUS_OK;
}

static enum status evaluate_all(struct evaluation *evaluation, struct eval_result *result) {
    struct loss_sum total = {0};
    for (size_t i = 0; i < result->file_count; i++) {
        struct loss_sum sum = {0};
        struct eval_file *file = &result->files[i];
        TRY(evaluate_one(evaluation, i, &sum, file));
        for (int k = 0; k < LOSS_FIGURES_MAX; k++)
            total.figures[k] += sum.figures[k];
        total.targets += file->tokens;
        result->total.tokens += file->tokens;
        result->total.sequences += file->sequences;
    }
    describe(evaluation, &total, &result->total);
    if (evaluation->all_text)
        result->total.bits_per_byte = evaluation->total_text_loss / (log(2) * (double)evaluation->total_bytes);
    return STATUS_OK;
}

static enum status name_files(const struct eval_options *options, struct eval_result *result) {
    result->files = mem_array(options->data_path_count, sizeof *result->files);
    result->total.path = mem_string("total");
    if (!result->files || !result->total.path) return STATUS_FAILED;
    for (size_t i = 0; i < options->data_path_count; i++) {
        result->files[i].path = mem_string(options->data_paths[i]);
        if (!result->files[i].path) return STATUS_FAILED;
        result->file_count++;
    }
    return STATUS_OK;
}

/* Opens every file before the arena, so that errors appear before anything is computed. */
static enum status check_files(const struct evaluation *evaluation) {
    for (size_t i = 0; i < evaluation->options->data_path_count; i++) {
        AUTO(train_data_close) struct train_data data = {0};
        TRY(open_data(evaluation, evaluation->options->data_paths[i], &data));
    }
    return STATUS_OK;
}

static enum status evaluate(struct evaluation *evaluation, struct eval_result *result) {
    TRY(name_files(evaluation->options, result));
    TRY(check_files(evaluation));
    TRY(engine_open_loaded(&evaluation->plan, &evaluation->engine));
    int64_t start = clock_now_ns();
    TRY(evaluate_all(evaluation, result));
    result->examples = evaluation->examples;
    result->pairs = is_of_pairs(evaluation);
    result->seconds = (double)(clock_now_ns() - start) * 1e-9;
    return STATUS_OK;
}

/* ---- the reference of preferences ---- */

static enum status refer_file(struct evaluation *evaluation, size_t index) {
    AUTO(train_data_close) struct train_data data = {0};
    TRY(open_data(evaluation, evaluation->options->data_paths[index], &data));
    return reference_compute(&evaluation->engine, data.dataset, NULL, NULL, &evaluation->references[index]);
}

static enum status refer_files(struct evaluation *evaluation) {
    if (!is_of_pairs(evaluation))
        return status_set(STATUS_BAD_INPUT, "reference: a model to compare with is of use for preferences "
                                            "alone" HINT "--loss dpo");
    TRY(engine_open_loaded(&evaluation->plan, &evaluation->engine));
    for (size_t i = 0; i < evaluation->options->data_path_count; i++)
        TRY(refer_file(evaluation, i));
    return STATUS_OK;
}

static void close_session(struct evaluation *evaluation) {
    engine_close(&evaluation->engine);
    session_plan_free(&evaluation->plan);
    session_close(&evaluation->session);
}

static void close_all(struct evaluation *evaluation) {
    close_session(evaluation);
    for (size_t i = 0; evaluation->references && i < evaluation->options->data_path_count; i++)
        reference_free(&evaluation->references[i]);
    mem_free(evaluation->references);
}

/* Computes references with only the reference model in memory. It is closed before the other model is loaded. */
static enum status find_references(struct evaluation *evaluation, const struct plan_options *plan) {
    const struct eval_options *options = evaluation->options;
    if (!options->reference) return STATUS_OK;
    evaluation->references = mem_array(options->data_path_count, sizeof *evaluation->references);
    if (!evaluation->references) return STATUS_FAILED;
    TRY(session_begin(options->reference, PROGRAMS_TO_REFER, plan, NULL, &evaluation->session, &evaluation->plan));
    TRY(refer_files(evaluation));
    close_session(evaluation);
    return STATUS_OK;
}

static enum status require_reference(const struct evaluation *evaluation) {
    if (!is_of_pairs(evaluation) || evaluation->references) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "reference: preferences are evaluated next to the model that "
                                        "training began with" HINT "--reference MODEL_DIR");
}

/* Opens the main session, evaluates, and closes it. */
static enum status evaluate_session(struct evaluation *evaluation, const char *model_folder,
                                    const struct plan_options *plan, struct eval_result *out) {
    TRY(session_begin(model_folder, PROGRAMS_TO_EVALUATE, plan, NULL, &evaluation->session, &evaluation->plan));
    AUTO(eval_result_free) struct eval_result result = {.plan = evaluation->plan.chosen};
    TRY(require_reference(evaluation));
    TRY(checkpoint_verify_model(evaluation->session.comm, model_folder, evaluation->session.model));
    TRY(evaluate(evaluation, &result));
    *out = TAKE(result);
    return STATUS_OK;
}

static enum status choose_packing(const struct eval_options *eval, struct plan_options *plan) {
    struct train_options options;
    read_options(eval, eval->data_paths, eval->data_path_count, &options);
    return comm_agree(plan->comm, train_data_choose_packing(&options, false, plan));
}

enum status evaluate_files(const char *model_folder, const struct plan_options *plan,
                           const struct eval_options *options, struct eval_result *out) {
    if (options->data_path_count == 0) return status_set(STATUS_BAD_INPUT, "no data to evaluate on");
    AUTO(eval_origin_free) struct eval_origin origin = {0};
    AUTO(close_all) struct evaluation evaluation = {.options = &origin.eval, .all_text = true};
    TRY(eval_origin_find(model_folder, plan, options, &origin));
    TRY(choose_packing(&origin.eval, &origin.plan));
    TRY(find_references(&evaluation, &origin.plan));
    return evaluate_session(&evaluation, model_folder, &origin.plan, out);
}

void eval_result_free(struct eval_result *result) {
    for (size_t i = 0; i < result->file_count; i++)
        mem_free(result->files[i].path);
    mem_free(result->files);
    mem_free(result->total.path);
    *result = (struct eval_result){0};
}
