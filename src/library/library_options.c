#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "library/library.h"

#define INITIALISER(name, MACRO)                                                                                       \
    void ballast_##name##_init(struct ballast_##name *out) { *out = (struct ballast_##name)BALLAST_##MACRO##_INIT; }
INITIALISER(plan_options, PLAN_OPTIONS)
INITIALISER(train_options, TRAIN_OPTIONS)
INITIALISER(train_events, TRAIN_EVENTS)
INITIALISER(plan_result, PLAN_RESULT)
INITIALISER(resume_options, RESUME_OPTIONS)
INITIALISER(evaluate_options, EVALUATE_OPTIONS)
INITIALISER(evaluation, EVALUATION)
INITIALISER(generate_options, GENERATE_OPTIONS)
INITIALISER(text, TEXT)
INITIALISER(tier_memory, TIER_MEMORY)

/* Numbers: below 0 nothing is given, and `out` stays. What is above the most is refused by those that the option is
 * for, unless it would not fit the internal field. */
static enum status read_whole(const char *name, int64_t given, int64_t least, int64_t most, int64_t *out) {
    if (given < 0) return STATUS_OK;
    if (given < least || given > most)
        return status_set(STATUS_BAD_INPUT, "%s: %" PRId64 " is not in %" PRId64 " to %" PRId64, name, given, least,
                          most);
    *out = given;
    return STATUS_OK;
}

static enum status read_real(const char *name, double given, double *out) {
    if (given < 0) return STATUS_OK;
    if (!isfinite(given)) return status_set(STATUS_BAD_INPUT, "%s: %g is not a number", name, given);
    *out = given;
    return STATUS_OK;
}

static enum status read_flag(const char *name, int64_t given, bool *out) {
    int64_t value = *out;
    TRY(read_whole(name, given, 0, 1, &value));
    *out = value == 1;
    return STATUS_OK;
}

static enum status read_list(const char *name, const char *const *given, size_t count, const char *const **out,
                             size_t *out_count) {
    if (count > 0) TRY(library_require(given, name));
    for (size_t i = 0; i < count; i++)
        if (!given[i]) return status_set(STATUS_BAD_INPUT, "%s[%zu]: is NULL", name, i);
    *out = count > 0 ? given : NULL;
    *out_count = count;
    return STATUS_OK;
}

static enum status unknown_word(const char *name, const char *word, const char *known) {
    return status_set(STATUS_BAD_INPUT, "%s: '%s' is not %s", name, word, known);
}

static enum status read_loss_on(const char *given, bool *on_all) {
    if (!given) return STATUS_OK;
    *on_all = strcmp(given, "all") == 0;
    if (*on_all || strcmp(given, "completions") == 0) return STATUS_OK;
    return unknown_word("options.loss_on", given, "completions or all");
}

enum status library_read_time(const char *name, int64_t given, int64_t *out) {
    *out = 0;
    return read_whole(name, given, 1, INT64_MAX, out);
}

static enum status read_words(const struct ballast_plan_options *given, struct plan_options *out) {
    if (given->dtype) out->dtype = dtype_find(given->dtype);
    if (given->dtype && out->dtype != DTYPE_F32 && out->dtype != DTYPE_BF16)
        return unknown_word("plan.dtype", given->dtype, "bf16 or fp32");
    if (!given->document_attention) return STATUS_OK;
    out->document_attention = document_attention_find(given->document_attention);
    if (out->document_attention != DOCUMENT_ATTENTION_NONE) return STATUS_OK;
    return unknown_word("plan.document_attention", given->document_attention, "across or within");
}

static enum status read_memory(const struct ballast_plan_options *given, struct memory_options *out) {
    TRY(read_whole("plan.device_memory_bytes", given->device_memory_bytes, 1, INT64_MAX, &out->device_bytes));
    TRY(read_whole("plan.host_memory_bytes", given->host_memory_bytes, 1, INT64_MAX, &out->host_bytes));
    TRY(read_whole("plan.disk_bytes", given->disk_bytes, 1, INT64_MAX, &out->disk_bytes));
    if (!given->disk_folder) {
        if (given->disk_bytes < 0) return STATUS_OK;
        return status_set(STATUS_BAD_INPUT, "plan.disk_bytes: is given without plan.disk_folder");
    }
    size_t length = strlen(given->disk_folder);
    if (length == 0 || length >= sizeof out->disk_folder)
        return status_set(STATUS_BAD_INPUT, "plan.disk_folder: is empty or too long");
    memcpy(out->disk_folder, given->disk_folder, length + 1);
    return STATUS_OK;
}

enum { THREADS_MOST = 4096 };

static enum status read_recipe(const struct ballast_plan_options *given, struct plan_options *out) {
    int64_t threads = 0;
    TRY(read_whole("plan.batch", given->batch, 1, INT64_MAX, &out->batch));
    TRY(read_whole("plan.sequence_length", given->sequence_length, 1, INT64_MAX, &out->sequence_length));
    TRY(read_whole("plan.grain_sequences", given->grain_sequences, 1, INT64_MAX, &out->grain_sequences));
    TRY(read_whole("plan.grains_per_pass", given->grains_per_pass, 1, INT64_MAX, &out->grains_per_pass));
    TRY(read_whole("plan.threads", given->threads, 1, THREADS_MOST, &threads));
    TRY(read_whole("plan.seed", given->seed, 0, INT64_MAX, &out->seed));
    out->threads = (int)threads;
    out->lora = given->lora;
    TRY(read_list("plan.freeze", given->freeze, given->freeze_count, &out->freeze, &out->freeze_count));
    return read_words(given, out);
}

enum status library_read_plan(const struct ballast_plan_options *given, bool decided, struct plan_options *out) {
    plan_options_init(out);
    if (!given) return plan_options_choose_device(NULL, decided, out);
    TRY(library_require_version(given->version, BALLAST_PLAN_OPTIONS_VERSION, "plan"));
    TRY(read_recipe(given, out));
    TRY(read_memory(given, &out->memory));
    if (decided && given->plan_path)
        return status_set(STATUS_BAD_INPUT, "plan.plan_path: a run goes on with its own plan");
    out->plan_path = given->plan_path;
    out->cluster_path = given->cluster_path;
    return plan_options_choose_device(given->device, decided, out);
}

static enum status read_data(const struct ballast_train_options *given, struct train_options *out) {
    TRY(read_list("options.data_paths", given->data_paths, given->data_path_count, &out->data_paths,
                  &out->data_path_count));
    TRY(read_list("options.valid_paths", given->valid_paths, given->valid_path_count, &out->valid_paths,
                  &out->valid_path_count));
    TRY(read_real("options.valid_fraction", given->valid_fraction, &out->valid_fraction));
    if (given->columns) out->columns = given->columns;
    TRY(read_loss_on(given->loss_on, &out->loss_on_all));
    return library_read_time("options.chat_time_s", given->chat_time_s, &out->chat_time_s);
}

static enum status read_rate(const struct ballast_train_options *given, struct train_options *out) {
    TRY(read_whole("options.steps", given->steps, 1, INT64_MAX, &out->steps));
    TRY(read_real("options.epochs", given->epochs, &out->epochs));
    if (given->epochs >= 0 && (given->steps >= 0 || !(given->epochs > 0)))
        return status_set(STATUS_BAD_INPUT, "options.epochs: is above 0, and given in place of options.steps");
    TRY(read_real("options.learning_rate", given->learning_rate, &out->learning_rate));
    TRY(read_whole("options.schedule_steps", given->schedule_steps, 1, INT64_MAX, &out->schedule_steps));
    TRY(read_whole("options.warmup_steps", given->warmup_steps, 0, INT64_MAX, &out->warmup_steps));
    TRY(read_real("options.min_lr_fraction", given->min_lr_fraction, &out->min_lr_fraction));
    TRY(read_real("options.wsd_decay_fraction", given->wsd_decay_fraction, &out->wsd_decay_fraction));
    if (!given->schedule) return STATUS_OK;
    out->schedule = lr_schedule_find(given->schedule);
    if (out->schedule != LR_SCHEDULE_COUNT) return STATUS_OK;
    return unknown_word("options.schedule", given->schedule, "cosine, linear, constant or wsd");
}

static enum status read_optimizer(const struct ballast_train_options *given, struct train_options *out) {
    TRY(read_real("options.beta1", given->beta1, &out->beta1));
    TRY(read_real("options.beta2", given->beta2, &out->beta2));
    TRY(read_real("options.epsilon", given->epsilon, &out->epsilon));
    TRY(read_real("options.weight_decay", given->weight_decay, &out->weight_decay));
    return read_real("options.clip_norm", given->clip_norm, &out->clip_norm);
}

static enum status read_intervals(const struct ballast_train_options *given, struct train_options *out) {
    TRY(read_whole("options.save_every", given->save_every, 0, INT64_MAX, &out->save_every));
    TRY(read_whole("options.keep", given->keep, 0, INT64_MAX, &out->keep));
    TRY(read_whole("options.valid_every", given->valid_every, 0, INT64_MAX, &out->valid_every));
    TRY(read_whole("options.valid_batches", given->valid_batches, 0, INT64_MAX, &out->valid_batches));
    TRY(read_whole("options.sample_every", given->sample_every, 0, INT64_MAX, &out->sample_every));
    TRY(read_whole("options.sample_tokens", given->sample_tokens, 1, INT64_MAX, &out->sample_tokens));
    if (given->sample_prompt) out->sample_prompt = given->sample_prompt;
    return STATUS_OK;
}

enum status library_read_training(const struct ballast_train_options *given, struct train_options *out) {
    train_options_init(out);
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_TRAIN_OPTIONS_VERSION, "options"));
    TRY(read_data(given, out));
    TRY(read_rate(given, out));
    TRY(read_optimizer(given, out));
    return read_intervals(given, out);
}

enum status library_read_resume(const struct ballast_resume_options *given, struct plan_options *plan,
                                struct resume_options *out) {
    *out = (struct resume_options){.steps = 0};
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_RESUME_OPTIONS_VERSION, "options"));
    TRY(read_whole("options.steps", given->steps, 1, INT64_MAX, &out->steps));
    TRY(read_real("options.epochs", given->epochs, &out->epochs));
    if (given->epochs >= 0 && (given->steps >= 0 || !(given->epochs > 0)))
        return status_set(STATUS_BAD_INPUT, "options.epochs: is above 0, and given in place of options.steps");
    return read_flag("options.allow_recipe_change", given->allow_recipe_change, &plan->allow_recipe_change);
}

enum status library_read_evaluation(const struct ballast_evaluate_options *given, struct eval_options *out) {
    *out = (struct eval_options){.columns = NULL};
    TRY(library_require(given, "options"));
    TRY(library_require_version(given->version, BALLAST_EVALUATE_OPTIONS_VERSION, "options"));
    TRY(read_list("options.data_paths", given->data_paths, given->data_path_count, &out->data_paths,
                  &out->data_path_count));
    if (out->data_path_count == 0) return status_set(STATUS_BAD_INPUT, "options.data_paths: none is given");
    TRY(read_whole("options.batches", given->batches, 0, INT64_MAX, &out->most_batches));
    out->columns = given->columns;
    TRY(read_loss_on(given->loss_on, &out->loss_on_all));
    return library_read_time("options.chat_time_s", given->chat_time_s, &out->chat_time_s);
}

enum status library_read_text(const struct ballast_generate_options *given, struct generate_options *out) {
    generate_options_init(out);
    out->interrupted = &library_stopped;
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_GENERATE_OPTIONS_VERSION, "options"));
    if (given->chat > 0) out->tokens = 0;
    TRY(read_whole("options.tokens", given->tokens, 1, INT64_MAX, &out->tokens));
    TRY(read_real("options.temperature", given->temperature, &out->temperature));
    TRY(read_whole("options.top_k", given->top_k, 0, INT64_MAX, &out->top_k));
    TRY(read_real("options.top_p", given->top_p, &out->top_p));
    TRY(read_real("options.repetition_penalty", given->repetition_penalty, &out->repetition_penalty));
    TRY(read_flag("options.ignore_end", given->ignore_end, &out->ignore_end));
    TRY(read_list("options.stops", given->stops, given->stop_count, &out->stops, &out->stop_count));
    return STATUS_OK;
}
