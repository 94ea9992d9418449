#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/step_options.h"
#include "train/generate.h"

/* The prompt comes out with the first new text, so that nothing is printed when the model cannot be opened. */
static void print_prompt(const char **prompt) {
    fputs(*prompt, stdout);
    *prompt = "";
}

static bool write_text(void *payload, const char *text, size_t bytes) {
    print_prompt(payload);
    return fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
}

static enum status run(const struct options *options) {
    struct plan_options plan;
    struct generate_options generate;
    struct generate_result result;
    step_options_read(options, false, &plan);
    generate_options_init(&generate);
    generate.prompt = options_text(options, OPT_PROMPT);
    generate.tokens = options_whole(options, OPT_TOKENS);
    generate.temperature = options_real(options, OPT_TEMPERATURE);
    generate.top_k = options_whole(options, OPT_TOP_K);
    generate.top_p = options_real(options, OPT_TOP_P);
    generate.ignore_end = options_flag(options, OPT_IGNORE_END);
    const char *prompt = generate.prompt;
    TRY(generate_text(options->arguments.items[0], &plan, &generate, write_text, &prompt, &result));
    print_prompt(&prompt);
    putchar('\n');
    if (isatty(STDERR_FILENO) && result.seconds > 0)
        log_note("%lld tokens, %.1f tokens/s", (long long)result.tokens, (double)result.tokens / result.seconds);
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
        "Each new token computes the whole window of --seq tokens again: there is no key-value cache yet.",
    .run = run,
};
