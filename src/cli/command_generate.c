#include <stdio.h>

#include "base/log.h"
#include "base/size.h"
#include "cli/command.h"
#include "cli/step_options.h"
#include "train/generate.h"
#include "train/train_setup.h"

/* The prompt comes out when the model is open, so that nothing is printed when it cannot be. */
static void begin_text(void *payload, const struct train_setup *setup, const char *note) {
    const struct generate_options *generate = payload;
    const struct memory_report *memory = &setup->memory[TIER_DEVICE];
    char all[SIZE_TEXT], parameters[SIZE_TEXT], cache[SIZE_TEXT];
    log_note("memory: %s, of which parameters %s, caches of %lld tokens %s",
             size_print(setup->program_bytes[TIER_DEVICE], all),
             size_print(memory->by_kind[BUFFER_PARAMETERS], parameters), (long long)setup->plan.recipe.sequence_length,
             size_print(memory->by_kind[BUFFER_CACHE], cache));
    if (note[0]) log_note("from generation_config.json: %s", note);
    fputs(generate->prompt, stdout);
    fflush(stdout);
}

static bool write_text(void *payload, const char *text, size_t bytes) {
    (void)payload;
    return fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
}

static void print_speed(const struct generate_result *result) {
    double prompt = result->prompt_seconds, rest = result->seconds;
    log_note("%lld prompt tokens, %.1f tokens/s; %lld new tokens, %.1f tokens/s", (long long)result->prompt_tokens,
             prompt > 0 ? (double)result->prompt_tokens / prompt : 0, (long long)result->tokens,
             rest > 0 && result->tokens > 1 ? (double)(result->tokens - 1) / rest : 0);
}

static enum status run(const struct options *options) {
    struct plan_options plan;
    struct generate_options generate;
    struct generate_result result;
    TRY(step_options_read(options, false, &plan));
    generate_options_init(&generate);
    generate.prompt = options_text(options, OPT_PROMPT);
    generate.tokens = options_whole(options, OPT_TOKENS);
    if (options_given(options, OPT_TEMPERATURE)) generate.temperature = options_real(options, OPT_TEMPERATURE);
    if (options_given(options, OPT_TOP_K)) generate.top_k = options_whole(options, OPT_TOP_K);
    if (options_given(options, OPT_TOP_P)) generate.top_p = options_real(options, OPT_TOP_P);
    if (options_given(options, OPT_REPETITION_PENALTY))
        generate.repetition_penalty = options_real(options, OPT_REPETITION_PENALTY);
    generate.ignore_end = options_flag(options, OPT_IGNORE_END);
    generate.stops = options->values[OPT_STOP].texts.items;
    generate.stop_count = options->values[OPT_STOP].texts.count;
    TRY(generate_text(options->arguments.items[0], &plan, &generate, begin_text, write_text, &generate, &result));
    putchar('\n');
    print_speed(&result);
    return STATUS_OK;
}

const struct command command_generate = {
    .bit = COMMAND_GENERATE,
    .name = "generate",
    .arguments = "MODEL_DIR --prompt TEXT",
    .least = 1,
    .most = 1,
    .summary = "text from a model",
    .details =
        "Prints the prompt and what the model goes on with. The same seed, prompt and recipe give the same text. "
        "Keys and values of earlier tokens are kept in caches of --seq tokens; a text that outgrows them is computed "
        "anew from its last half.",
    .run = run,
};
