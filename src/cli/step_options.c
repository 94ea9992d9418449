#include "cli/step_options.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "base/log.h"
#include "base/size.h"
#include "cli/ranks.h"

/* "DIR" or "DIR:SIZE"; what follows a colon and is no size belongs to the directory's name. */
static enum status read_disk(const char *text, struct memory_options *out) {
    const char *colon = strrchr(text, ':');
    int64_t bytes = 0;
    bool sized = colon && size_parse(colon + 1, &bytes) == STATUS_OK && bytes > 0;
    char folder[MEMORY_FOLDER_BYTES];
    if (sized) SETTINGS_GIVE(out, disk_bytes, bytes);
    snprintf(folder, sizeof folder, "%.*s", sized ? (int)(colon - text) : (int)strlen(text), text);
    memory_options_set_disk(out, folder);
    enum status status = sized ? size_refuse_bare(colon + 1) : STATUS_OK;
    return status == STATUS_OK ? STATUS_OK : status_prefix(status, "--disk");
}

static enum status read_memory(const struct options *options, struct memory_options *out) {
    TAKE(INT, DEVICE_MEMORY, device_bytes);
    TAKE(INT, HOST_MEMORY, host_bytes);
    return options_given(options, OPT_DISK) ? read_disk(options_text(options, OPT_DISK), out) : STATUS_OK;
}

static void read_names(const struct options *options, struct plan_options *out) {
    const char *attention = options_text(options, OPT_DOCUMENT_ATTENTION);
    if (options_given(options, OPT_DOCUMENT_ATTENTION))
        SETTINGS_GIVE(out, document_attention, document_attention_find(attention));
    if (options_given(options, OPT_PACKING))
        SETTINGS_GIVE(out, packing, example_packing_find(options_text(options, OPT_PACKING)));
    if (options_given(options, OPT_LOSS)) SETTINGS_GIVE(out, loss, training_loss_find(options_text(options, OPT_LOSS)));
    TAKE(FLOAT, DPO_BETA, dpo_beta);
    TAKE(FLOAT, MUON_MOMENTUM, muon_momentum);
    if (options_given(options, OPT_DPO_LOSS))
        SETTINGS_GIVE(out, dpo_loss, pair_loss_find(options_text(options, OPT_DPO_LOSS)));
    TAKE(FLOAT, DPO_LABEL_SMOOTHING, dpo_label_smoothing);
    if (options_given(options, OPT_OPTIMIZER))
        SETTINGS_GIVE(out, optimizer, update_rule_find(options_text(options, OPT_OPTIMIZER)));
    if (options_given(options, OPT_OPTIMIZER_DTYPE))
        SETTINGS_GIVE(out, optimizer_dtype, state_format_find(options_text(options, OPT_OPTIMIZER_DTYPE)));
    if (options_given(options, OPT_MASTER_WEIGHTS))
        SETTINGS_GIVE(out, master_weights, master_weights_find(options_text(options, OPT_MASTER_WEIGHTS)));
    if (options_given(options, OPT_QUANTIZE_BASE))
        SETTINGS_GIVE(out, quantize_base, weight_format_find(options_text(options, OPT_QUANTIZE_BASE)));
    if (options_given(options, OPT_DTYPE)) SETTINGS_GIVE(out, dtype, dtype_find(options_text(options, OPT_DTYPE)));
    if (options_given(options, OPT_SEQUENCE_PARALLEL))
        SETTINGS_GIVE(out, sequence_parallel, strcmp(options_text(options, OPT_SEQUENCE_PARALLEL), "on") == 0);
    if (options_given(options, OPT_LAYOUT))
        SETTINGS_GIVE(out, layout, tensor_layout_find(options_text(options, OPT_LAYOUT)));
    if (options_given(options, OPT_REDUCE_DTYPE))
        SETTINGS_GIVE(out, reduce_dtype, dtype_find(options_text(options, OPT_REDUCE_DTYPE)));
}

static enum status read_lanes(const struct options *options, struct plan_options *out) {
    struct lane_shape lanes;
    if (!options_given(options, OPT_LANES)) return STATUS_OK;
    enum status status = lane_shape_parse(options_text(options, OPT_LANES), &lanes);
    if (status != STATUS_OK) return status_prefix(status, "--lanes");
    SETTINGS_GIVE(out, lanes, lanes);
    return STATUS_OK;
}

static void read_gpu_collectives(const struct options *options, struct plan_options *out) {
    const char *text = options_text(options, OPT_GPU_COLLECTIVES);
    if (!text) return;
    if (strcmp(text, "nccl") == 0) out->gpu_collectives = GPU_COLLECTIVES_NCCL;
    if (strcmp(text, "host") == 0) out->gpu_collectives = GPU_COLLECTIVES_HOST;
}

enum status step_options_read(const struct options *options, bool decided, struct plan_options *out) {
    plan_options_init(out);
    ranks_give(out);
    TAKE(TEXT, PLAN, plan_path);
    TAKE(INT, BATCH, batch);
    TAKE(INT, SEQ, sequence_length);
    TAKE(INT, MICRO_BATCH, micro_batch_sequences);
    TAKE(INT, ROUND, round_micro_batches);
    TAKE(INT, TENSOR_PARALLEL, tensor_parallel);
    TAKE(INT, MICRO_BATCHES_PER_WAVE, micro_batches_per_wave);
    TAKE(INT, PIPELINE_PARALLEL, pipeline_parallel);
    TAKE(INT, VIRTUAL_STAGES, virtual_stages);
    TAKE(TEXT, PARTITION, partition);
    if (options_given(options, OPT_COLLECTIVES))
        SETTINGS_GIVE(out, flat, strcmp(options_text(options, OPT_COLLECTIVES), "flat") == 0);
    read_gpu_collectives(options, out);
    TAKE(INT, SEED, seed);
    TAKE(TEXT, CLUSTER, cluster_path);
    TAKE(TEXT, LORA, lora);
    if (options_given(options, OPT_THREADS)) SETTINGS_GIVE(out, threads, (int)options_int(options, OPT_THREADS));
    TRY(read_lanes(options, out));
    TRY(read_memory(options, &out->memory));
    read_names(options, out);
    if (options_given(options, OPT_FREEZE)) SETTINGS_GIVE(out, freeze, options->values[OPT_FREEZE].texts.items);
    out->freeze_count = options->values[OPT_FREEZE].texts.count;
    return plan_options_choose_device(options_text(options, OPT_DEVICE), decided, out);
}

void step_options_read_optimizer(const struct options *options, struct train_options *out) {
    train_options_init(out);
    /* What is not given may stand in a plan file. */
    TAKE(FLOAT, BETA1, beta1);
    TAKE(FLOAT, BETA2, beta2);
    TAKE(FLOAT, EPSILON, epsilon);
    TAKE(FLOAT, WEIGHT_DECAY, weight_decay);
    TAKE(FLOAT, CLIP_NORM, clip_norm);
}

enum status step_options_read_chat_date(const struct options *options, int64_t *time_s) {
    const char *text = options_text(options, OPT_CHAT_DATE);
    struct tm date = {0};
    *time_s = 0;
    if (!text) return STATUS_OK;
    const char *end = strptime(text, "%Y-%m-%d", &date);
    int64_t seconds = end && *end == '\0' ? (int64_t)timegm(&date) : 0;
    if (seconds <= 0)
        return status_set(STATUS_BAD_INPUT, "--chat-date: '%s' is not a date like 2024-07-26, from 1970-01-02 on",
                          text);
    *time_s = seconds;
    return STATUS_OK;
}

void text_options_read(const struct options *options, bool answers, struct generate_options *out) {
    generate_options_init(out);
    if (answers) out->tokens = 0;
    if (options_given(options, OPT_TOKENS)) out->tokens = options_int(options, OPT_TOKENS);
    TAKE(FLOAT, TEMPERATURE, temperature);
    TAKE(INT, TOP_K, top_k);
    TAKE(FLOAT, TOP_P, top_p);
    TAKE(FLOAT, REPETITION_PENALTY, repetition_penalty);
    out->ignore_end = options_flag(options, OPT_IGNORE_END);
    out->stops = options->values[OPT_STOP].texts.items;
    out->stop_count = options->values[OPT_STOP].texts.count;
}

void text_options_report(const struct writer *writer) {
    const struct session_plan *plan = writer->decoding.engine->plan;
    int64_t count = plan->request.set.texts;
    const struct memory_report *memory = &plan->memory[TIER_DEVICE];
    char all[SIZE_TEXT], parameters[SIZE_TEXT], cache[SIZE_TEXT], texts[32] = "";
    if (count > 1) snprintf(texts, sizeof texts, "%lld x ", (long long)count);
    log_note("memory: %s, of which parameters %s, caches of %s%lld tokens %s",
             size_print(plan->programs.tier_bytes[TIER_DEVICE], all),
             size_print(memory->by_kind[BUFFER_PARAMETERS], parameters), texts,
             (long long)plan->chosen.recipe.sequence_length, size_print(memory->by_kind[BUFFER_CACHE], cache));
    if (writer->note[0]) log_note("from generation_config.json: %s", writer->note);
}

void step_options_read_training(const struct options *options, struct train_options *out) {
    TAKE(INT, STEPS, steps);
    TAKE(FLOAT, EPOCHS, epochs);
    TAKE(FLOAT, LR, learning_rate);
    if (options_given(options, OPT_SCHEDULE))
        SETTINGS_GIVE(out, schedule, lr_schedule_find(options_text(options, OPT_SCHEDULE)));
    TAKE(INT, SCHEDULE_STEPS, schedule_steps);
    TAKE(INT, WARMUP_STEPS, warmup_steps);
    TAKE(FLOAT, MIN_LR_FRACTION, min_lr_fraction);
    TAKE(FLOAT, WSD_DECAY_FRACTION, wsd_decay_fraction);
    TAKE(INT, SAVE_EVERY, save_every);
    TAKE(INT, KEEP, keep);
    TAKE(INT, VALID_EVERY, valid_every);
    TAKE(INT, VALID_BATCHES, valid_batches);
    TAKE(INT, SAMPLE_EVERY, sample_every);
    TAKE(INT, SAMPLE_TOKENS, sample_tokens);
    TAKE(TEXT, SAMPLE_PROMPT, sample_prompt);
    if (options_given(options, OPT_REPLAN))
        SETTINGS_GIVE(out, replan, strcmp(options_text(options, OPT_REPLAN), "auto") == 0);
}
