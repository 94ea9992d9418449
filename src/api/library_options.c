/* The public option structs: their initialisers, and their fields as internal options. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/library.h"

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
INITIALISER(ranks_options, RANKS_OPTIONS)
INITIALISER(tier_memory, TIER_MEMORY)

/* Below, `given` is the public struct and `out` the internal one. A number below 0 and a NULL text are not given; what
 * is given is checked against its setting (plan/settings.h), by the name that the public header has for it. */
#define SETTING(field) (&setting_table[SETTING_##field])
#define TAKE_INT(where, field)                                                                                         \
    if (given->field >= 0) {                                                                                           \
        TRY(setting_check_int(SETTING(field), where "." #field, given->field));                                        \
        SETTINGS_GIVE(out, field, given->field);                                                                       \
    }
#define TAKE_FLOAT(where, field)                                                                                       \
    if (!(given->field < 0)) {                                                                                         \
        TRY(setting_check_float(SETTING(field), where "." #field, given->field));                                      \
        SETTINGS_GIVE(out, field, given->field);                                                                       \
    }
#define TAKE_TEXT(where, field)                                                                                        \
    if (given->field) {                                                                                                \
        TRY(require_text(SETTING(field), where "." #field, given->field));                                             \
        SETTINGS_GIVE(out, field, given->field);                                                                       \
    }
#define TAKE_CHOICE(where, field, find)                                                                                \
    if (given->field) {                                                                                                \
        TRY(setting_check_choice(SETTING(field), where "." #field, given->field));                                     \
        SETTINGS_GIVE(out, field, find(given->field));                                                                 \
    }

static enum status require_text(const struct setting *setting, const char *name, const char *text) {
    if (text[0] || setting->may_be_empty) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: is empty", name);
}

static enum status require_bytes(const char *name, int64_t bytes) {
    return bytes > 0 ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: a size is at least 1", name);
}

static enum status read_flag(const char *name, int64_t given, bool *out) {
    if (given > 1) return status_set(STATUS_BAD_INPUT, "%s: %" PRId64 " is not 0 or 1", name, given);
    *out = given == 1;
    return STATUS_OK;
}

static enum status require_list(const char *name, const char *const *given, size_t count) {
    if (count > 0) TRY(library_require(given, name));
    for (size_t i = 0; i < count; i++)
        if (!given[i]) return status_set(STATUS_BAD_INPUT, "%s[%zu]: is NULL", name, i);
    return STATUS_OK;
}

static enum status read_loss_on(const char *given, bool *on_all) {
    if (!given) return STATUS_OK;
    TRY(setting_check_choice(SETTING(loss_on_all), "options.loss_on", given));
    *on_all = strcmp(given, "all") == 0;
    return STATUS_OK;
}

enum status library_read_time(const char *name, int64_t given, int64_t *out) {
    *out = 0;
    if (given < 0) return STATUS_OK;
    TRY(setting_check_int(SETTING(chat_time_s), name, given));
    *out = given;
    return STATUS_OK;
}

static enum status read_memory(const struct ballast_plan_options *given, struct memory_options *out) {
    if (given->device_memory_bytes >= 0) {
        TRY(require_bytes("plan.device_memory_bytes", given->device_memory_bytes));
        SETTINGS_GIVE(out, device_bytes, given->device_memory_bytes);
    }
    if (given->host_memory_bytes >= 0) {
        TRY(require_bytes("plan.host_memory_bytes", given->host_memory_bytes));
        SETTINGS_GIVE(out, host_bytes, given->host_memory_bytes);
    }
    if (given->disk_bytes >= 0) {
        TRY(require_bytes("plan.disk_bytes", given->disk_bytes));
        SETTINGS_GIVE(out, disk_bytes, given->disk_bytes);
    }
    if (!given->disk_folder && given->disk_bytes >= 0)
        return status_set(STATUS_BAD_INPUT, "plan.disk_bytes: is given without plan.disk_folder");
    if (!given->disk_folder) return STATUS_OK;
    TRY(require_text(SETTING(disk_folder), "plan.disk_folder", given->disk_folder));
    if (strlen(given->disk_folder) >= sizeof out->disk_folder)
        return status_set(STATUS_BAD_INPUT, "plan.disk_folder: is longer than %zu bytes", sizeof out->disk_folder - 1);
    memory_options_set_disk(out, given->disk_folder);
    return STATUS_OK;
}

static enum status read_lanes(const char *given, struct plan_options *out) {
    struct lane_shape lanes;
    if (!given) return STATUS_OK;
    enum status status = lane_shape_parse(given, &lanes);
    if (status != STATUS_OK) return status_prefix(status, "plan.lanes");
    SETTINGS_GIVE(out, lanes, lanes);
    return STATUS_OK;
}

static enum status read_recipe(const struct ballast_plan_options *given, struct plan_options *out) {
    TAKE_INT("plan", batch)
    TAKE_INT("plan", sequence_length)
    TAKE_INT("plan", micro_batch_sequences)
    TAKE_INT("plan", micro_batches_per_wave)
    TAKE_INT("plan", seed)
    TAKE_CHOICE("plan", dtype, dtype_find)
    TAKE_CHOICE("plan", reduce_dtype, dtype_find)
    TAKE_CHOICE("plan", layout, tensor_layout_find)
    TAKE_CHOICE("plan", document_attention, document_attention_find)
    TAKE_CHOICE("plan", packing, example_packing_find)
    TAKE_CHOICE("plan", loss, training_loss_find)
    TAKE_FLOAT("plan", dpo_beta)
    TAKE_FLOAT("plan", muon_momentum)
    TAKE_CHOICE("plan", dpo_loss, pair_loss_find)
    TAKE_FLOAT("plan", dpo_label_smoothing)
    TAKE_CHOICE("plan", optimizer, update_rule_find)
    TAKE_CHOICE("plan", optimizer_dtype, state_format_find)
    TAKE_CHOICE("plan", master_weights, master_weights_find)
    TAKE_CHOICE("plan", quantize_base, weight_format_find)
    TAKE_TEXT("plan", lora)
    TAKE_INT("plan", round_micro_batches)
    TAKE_INT("plan", tensor_parallel)
    if (given->sequence_parallel) {
        TRY(setting_check_choice(SETTING(sequence_parallel), "plan.sequence_parallel", given->sequence_parallel));
        SETTINGS_GIVE(out, sequence_parallel, strcmp(given->sequence_parallel, "on") == 0);
    }
    TAKE_INT("plan", pipeline_parallel)
    TAKE_INT("plan", virtual_stages)
    TRY(read_lanes(given->lanes, out));
    TAKE_TEXT("plan", partition)
    if (given->collectives) {
        TRY(setting_check_choice(SETTING(flat), "plan.collectives", given->collectives));
        SETTINGS_GIVE(out, flat, strcmp(given->collectives, "flat") == 0);
    }
    if (given->threads >= 0) {
        TRY(setting_check_int(SETTING(threads), "plan.threads", given->threads));
        SETTINGS_GIVE(out, threads, (int)given->threads);
    }
    if (given->freeze_count == 0) return STATUS_OK;
    TRY(require_list("plan.freeze", given->freeze, given->freeze_count));
    SETTINGS_GIVE(out, freeze, given->freeze);
    out->freeze_count = given->freeze_count;
    return STATUS_OK;
}

enum status library_read_plan(const struct ballast_plan_options *given, bool decided, struct plan_options *out) {
    plan_options_init(out);
    library_give_ranks(out);
    if (!given) return plan_options_choose_device(NULL, decided, out);
    TRY(library_require_version(given->version, BALLAST_PLAN_OPTIONS_VERSION, "plan"));
    TRY(read_recipe(given, out));
    TRY(read_memory(given, &out->memory));
    if (decided && given->plan_path)
        return status_set(STATUS_BAD_INPUT, "plan.plan_path: a run goes on with its own plan");
    TAKE_TEXT("plan", plan_path)
    TAKE_TEXT("plan", cluster_path)
    return plan_options_choose_device(given->device, decided, out);
}

static enum status read_data(const struct ballast_train_options *given, struct train_options *out) {
    TRY(require_list("options.data_paths", given->data_paths, given->data_path_count));
    out->data_paths = given->data_paths;
    out->data_path_count = given->data_path_count;
    TRY(require_list("options.valid_paths", given->valid_paths, given->valid_path_count));
    if (given->valid_path_count > 0) SETTINGS_GIVE(out, valid_paths, given->valid_paths);
    out->valid_path_count = given->valid_path_count;
    TAKE_FLOAT("options", valid_fraction)
    TAKE_TEXT("options", columns)
    TAKE_INT("options", chat_time_s)
    if (given->loss_on) SETTINGS_MARK(out, loss_on_all);
    return read_loss_on(given->loss_on, &out->loss_on_all);
}

static bool is_auto(const char *text) { return strcmp(text, "auto") == 0; }

/* The options that training and resuming have by the same names. */
#define TAKE_CHANGES                                                                                                   \
    TAKE_INT("options", steps)                                                                                         \
    TAKE_FLOAT("options", epochs)                                                                                      \
    TAKE_FLOAT("options", learning_rate)                                                                               \
    TAKE_CHOICE("options", schedule, lr_schedule_find)                                                                 \
    TAKE_INT("options", schedule_steps)                                                                                \
    TAKE_INT("options", warmup_steps)                                                                                  \
    TAKE_FLOAT("options", min_lr_fraction)                                                                             \
    TAKE_FLOAT("options", wsd_decay_fraction)                                                                          \
    TAKE_INT("options", save_every)                                                                                    \
    TAKE_INT("options", keep)                                                                                          \
    TAKE_INT("options", valid_every)                                                                                   \
    TAKE_INT("options", valid_batches)                                                                                 \
    TAKE_INT("options", sample_every)                                                                                  \
    TAKE_INT("options", sample_tokens)                                                                                 \
    TAKE_TEXT("options", sample_prompt)                                                                                \
    TAKE_CHOICE("options", replan, is_auto)

static enum status require_one_length(const struct train_options *options) {
    if (!SETTINGS_HAVE(options, steps) || !SETTINGS_HAVE(options, epochs)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "options.epochs: is given together with options.steps; give one of them");
}

static enum status read_optimizer(const struct ballast_train_options *given, struct train_options *out) {
    TAKE_FLOAT("options", beta1)
    TAKE_FLOAT("options", beta2)
    TAKE_FLOAT("options", epsilon)
    TAKE_FLOAT("options", weight_decay)
    TAKE_FLOAT("options", clip_norm)
    return STATUS_OK;
}

enum status library_read_training(const struct ballast_train_options *given, struct train_options *out) {
    train_options_init(out);
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_TRAIN_OPTIONS_VERSION, "options"));
    TRY(read_data(given, out));
    TRY(read_optimizer(given, out));
    TAKE_CHANGES
    return require_one_length(out);
}

enum status library_read_resume(const struct ballast_resume_options *given, struct plan_options *plan,
                                struct train_options *out) {
    *out = (struct train_options){.steps = 0};
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_RESUME_OPTIONS_VERSION, "options"));
    TAKE_CHANGES
    TRY(require_one_length(out));
    return read_flag("options.allow_recipe_change", given->allow_recipe_change, &plan->allow_recipe_change);
}

enum status library_read_evaluation(const struct ballast_evaluate_options *given, struct eval_options *out) {
    *out = (struct eval_options){.columns = NULL};
    TRY(library_require(given, "options"));
    TRY(library_require_version(given->version, BALLAST_EVALUATE_OPTIONS_VERSION, "options"));
    TRY(require_list("options.data_paths", given->data_paths, given->data_path_count));
    if (given->data_path_count == 0) return status_set(STATUS_BAD_INPUT, "options.data_paths: none is given");
    out->data_paths = given->data_paths;
    out->data_path_count = given->data_path_count;
    if (given->batches > 0) out->max_batches = given->batches;
    out->columns = given->columns;
    out->reference = given->reference;
    TRY(read_loss_on(given->loss_on, &out->loss_on_all));
    return library_read_time("options.chat_time_s", given->chat_time_s, &out->chat_time_s);
}

enum status library_read_text(const struct ballast_generate_options *given, struct generate_options *out) {
    generate_options_init(out);
    out->interrupted = &library_stopped;
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_GENERATE_OPTIONS_VERSION, "options"));
    if (given->chat > 0) out->tokens = 0;
    TAKE_INT("options", tokens)
    TAKE_FLOAT("options", temperature)
    TAKE_INT("options", top_k)
    TAKE_FLOAT("options", top_p)
    TAKE_FLOAT("options", repetition_penalty)
    TRY(read_flag("options.ignore_end", given->ignore_end, &out->ignore_end));
    TRY(require_list("options.stops", given->stops, given->stop_count));
    out->stops = given->stops;
    out->stop_count = given->stop_count;
    return STATUS_OK;
}
