#include "cli/step_options.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "base/size.h"

/* "DIR" or "DIR:SIZE"; what follows a colon and is no size belongs to the folder's name. */
static enum status read_disk(const char *text, struct memory_options *out) {
    const char *colon = strrchr(text, ':');
    bool sized = colon && size_parse(colon + 1, &out->disk_bytes) == STATUS_OK && out->disk_bytes > 0;
    if (!sized) out->disk_bytes = 0;
    snprintf(out->disk_folder, sizeof out->disk_folder, "%.*s", sized ? (int)(colon - text) : (int)strlen(text), text);
    enum status status = sized ? size_refuse_bare(colon + 1) : STATUS_OK;
    return status == STATUS_OK ? STATUS_OK : status_prefix(status, "--disk");
}

static enum status read_memory(const struct options *options, struct memory_options *out) {
    out->device_bytes = options_whole(options, OPT_DEVICE_MEMORY);
    out->host_bytes = options_whole(options, OPT_HOST_MEMORY);
    return options_given(options, OPT_DISK) ? read_disk(options_text(options, OPT_DISK), out) : STATUS_OK;
}

enum status step_options_read(const struct options *options, bool decided, struct plan_options *out) {
    plan_options_init(out);
    out->plan_path = options_text(options, OPT_PLAN);
    out->batch = options_whole(options, OPT_BATCH);
    out->sequence_length = options_whole(options, OPT_SEQ);
    out->grain_sequences = options_whole(options, OPT_GRAIN);
    out->grains_per_pass = options_whole(options, OPT_GRAINS_PER_PASS);
    out->threads = (int)options_whole(options, OPT_THREADS);
    TRY(read_memory(options, &out->memory));
    out->cluster_path = options_text(options, OPT_CLUSTER);
    if (options_given(options, OPT_DOCUMENT_ATTENTION))
        out->document_attention = document_attention_find(options_text(options, OPT_DOCUMENT_ATTENTION));
    out->lora = options_text(options, OPT_LORA);
    out->freeze = options->values[OPT_FREEZE].texts.items;
    out->freeze_count = options->values[OPT_FREEZE].texts.count;
    if (options_given(options, OPT_SEED)) out->seed = options_whole(options, OPT_SEED);
    if (options_given(options, OPT_DTYPE)) out->dtype = dtype_find(options_text(options, OPT_DTYPE));
    return plan_options_choose_device(options_text(options, OPT_DEVICE), decided, out);
}

void step_options_read_optimizer(const struct options *options, struct train_options *out) {
    train_options_init(out);
    /* What is not given stays open: a plan file may say it. */
    if (options_given(options, OPT_BETA1)) out->beta1 = options_real(options, OPT_BETA1);
    if (options_given(options, OPT_BETA2)) out->beta2 = options_real(options, OPT_BETA2);
    if (options_given(options, OPT_EPSILON)) out->epsilon = options_real(options, OPT_EPSILON);
    if (options_given(options, OPT_WEIGHT_DECAY)) out->weight_decay = options_real(options, OPT_WEIGHT_DECAY);
    if (options_given(options, OPT_CLIP_NORM)) out->clip_norm = options_real(options, OPT_CLIP_NORM);
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
