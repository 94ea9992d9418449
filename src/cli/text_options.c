#include "cli/text_options.h"

#include "base/log.h"
#include "base/size.h"

void text_options_read(const struct options *options, bool answers, struct generate_options *out) {
    generate_options_init(out);
    if (answers) out->tokens = 0;
    if (options_given(options, OPT_TOKENS)) out->tokens = options_whole(options, OPT_TOKENS);
    TAKE(REAL, TEMPERATURE, temperature);
    TAKE(WHOLE, TOP_K, top_k);
    TAKE(REAL, TOP_P, top_p);
    TAKE(REAL, REPETITION_PENALTY, repetition_penalty);
    out->ignore_end = options_flag(options, OPT_IGNORE_END);
    out->stops = options->values[OPT_STOP].texts.items;
    out->stop_count = options->values[OPT_STOP].texts.count;
}

void text_options_tell(const struct writer *writer) {
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
