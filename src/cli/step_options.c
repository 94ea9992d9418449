#include "cli/step_options.h"

#include "backend/backend.h"
#include "base/terminal.h"
#include "base/text.h"
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
    if (options_given(options, OPT_device_bytes))
        SETTINGS_GIVE(out, device_bytes, options_int(options, OPT_device_bytes));
    if (options_given(options, OPT_host_bytes)) SETTINGS_GIVE(out, host_bytes, options_int(options, OPT_host_bytes));
    return options_given(options, OPT_disk_folder) ? read_disk(options_text(options, OPT_disk_folder), out) : STATUS_OK;
}

enum status step_options_read(const struct options *options, bool decided, struct plan_options *out) {
    plan_options_init(out);
    ranks_give(out);
    TRY(options_take(options, &plan_settings, out));
    TRY(read_memory(options, &out->memory));
    if (options_given(options, OPT_freeze)) SETTINGS_GIVE(out, freeze, options->values[OPT_freeze].texts.items);
    out->freeze_count = options->values[OPT_freeze].texts.count;
    return plan_options_choose_device(options_text(options, OPT_backend), decided, out);
}

enum status step_options_read_training(const struct options *options, struct train_options *out) {
    train_options_init(out);
    TRY(options_take(options, &train_settings, out));
    if (options_given(options, OPT_valid_paths))
        SETTINGS_GIVE(out, valid_paths, options->values[OPT_valid_paths].texts.items);
    out->valid_path_count = options->values[OPT_valid_paths].texts.count;
    return STATUS_OK;
}

void text_options_read(const struct options *options, bool answers, struct generate_options *out) {
    generate_options_init(out);
    if (answers) out->tokens = 0;
    (void)options_take(options, &text_settings, out); /* without lanes */
    out->ignore_end = options_flag(options, OPT_ignore_end);
    out->stops = options->values[OPT_stop].texts.items;
    out->stop_count = options->values[OPT_stop].texts.count;
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
