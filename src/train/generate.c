#include "train/generate.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "train/engine.h"
#include "train/sampler.h"
#include "train/train_data.h"

void generate_options_init(struct generate_options *out) {
    *out = (struct generate_options){.prompt = "", .tokens = 100, .temperature = 0.8, .top_p = 1};
}

struct generation {
    const struct generate_options *options;
    struct train_setup setup;
    struct engine engine;
    struct sampler sampler;
    struct tokenizer *tokenizer;
    struct token_ids ids;
    size_t written; /* ids whose text went to the sink */
    generate_sink *sink;
    void *payload;
    bool stopped;
};

static enum status encode_prompt(struct generation *generation) {
    const char *prompt = generation->options->prompt;
    TRY(tokenizer_encode(generation->tokenizer, prompt, strlen(prompt), true, &generation->ids));
    int64_t end = train_end_token(generation->setup.model);
    if (generation->ids.count == 0 && end >= 0) TRY(vec_push(&generation->ids, (uint32_t)end));
    if (generation->ids.count == 0)
        return status_set(STATUS_BAD_INPUT, "prompt: is empty, and the model has no end-of-text token to start from");
    generation->written = generation->ids.count;
    return STATUS_OK;
}

static enum status open_generation(struct generation *generation) {
    const struct model *model = generation->setup.model;
    char *path;
    TRY(train_tokenizer_open(model, &generation->tokenizer, &path));
    enum status status = generation->tokenizer ? STATUS_OK
                                               : status_set(STATUS_BAD_INPUT,
                                                            "%s: is missing: there is no text "
                                                            "without a tokenizer",
                                                            path);
    mem_free(path);
    TRY(status);
    TRY(encode_prompt(generation));
    TRY(sampler_create(generation->options, generation->setup.plan.recipe.seed, model->config.vocab_size,
                       &generation->sampler));
    TRY(train_setup_check_memory(&generation->setup));
    TRY(engine_open(&generation->setup, &generation->engine));
    return engine_load_weights(&generation->engine);
}

/* The window's tokens from its first position on; what comes after them is never looked at by causal attention. */
static const float *compute_logits(struct generation *generation) {
    const struct executable *executable = generation->setup.main;
    struct runner *runner = generation->engine.main;
    size_t window = (size_t)generation->setup.plan.recipe.sequence_length, count = generation->ids.count;
    size_t used = count < window ? count : window;
    int32_t *tokens = engine_data(runner, executable, "tokens");
    for (size_t i = 0; i < window; i++)
        tokens[i] = i < used ? (int32_t)generation->ids.items[count - used + i] : 0;
    engine_fill_positions(runner, executable, &generation->setup.plan.recipe);
    if (runner_step(runner, generation->engine.scalars) != STATUS_OK) return NULL;
    const float *logits = engine_data(runner, executable, "logits");
    return logits + (used - 1) * (size_t)generation->setup.model->config.vocab_size;
}

/* A character may take several tokens: bytes that do not make one yet wait, but not for ever. */
static enum status write_text(struct generation *generation, bool all) {
    enum { WAITING_MAX = 16 };
    static const char replacement[] = "\xEF\xBF\xBD";
    size_t waiting = generation->ids.count - generation->written, bytes;
    char *text;
    if (waiting == 0) return STATUS_OK;
    TRY(tokenizer_decode(generation->tokenizer, generation->ids.items + generation->written, waiting, true, &text,
                         &bytes));
    bool broken = bytes >= 3 && memcmp(text + bytes - 3, replacement, 3) == 0;
    if (all || !broken || waiting >= WAITING_MAX) {
        if (bytes > 0 && !generation->sink(generation->payload, text, bytes)) generation->stopped = true;
        generation->written = generation->ids.count;
    }
    mem_free(text);
    return STATUS_OK;
}

static enum status continue_text(struct generation *generation, int64_t *count) {
    int64_t end = generation->options->ignore_end ? -1 : train_end_token(generation->setup.model);
    for (*count = 0; *count < generation->options->tokens && !generation->stopped; ++*count) {
        const float *logits = compute_logits(generation);
        uint32_t token;
        if (!logits) return STATUS_FAILED;
        TRY(sampler_draw(&generation->sampler, logits, (int64_t)generation->ids.count, &token));
        if ((int64_t)token == end) break;
        TRY(vec_push(&generation->ids, token));
        TRY(write_text(generation, false));
    }
    return generation->stopped ? STATUS_OK : write_text(generation, true);
}

enum status generate_text(const char *model_folder, const struct plan_options *plan,
                          const struct generate_options *options, generate_sink *sink, void *payload,
                          struct generate_result *result) {
    if (options->tokens < 1)
        return status_set(STATUS_BAD_INPUT, "tokens: %" PRId64 " is not positive", options->tokens);
    struct generation generation = {.options = options, .sink = sink, .payload = payload};
    struct generate_result done = {0};
    struct plan_options one = *plan;
    one.batch = one.grain_sequences = one.grains_per_pass = 0;
    TRY(train_setup_create(model_folder, SETUP_GENERATE, &one, NULL, &generation.setup));
    enum status status = open_generation(&generation);
    done.prompt_tokens = (int64_t)generation.ids.count;
    int64_t start = clock_now_ns();
    if (status == STATUS_OK) status = continue_text(&generation, &done.tokens);
    done.seconds = (double)(clock_now_ns() - start) * 1e-9;
    vec_free(&generation.ids);
    sampler_free(&generation.sampler);
    tokenizer_free(generation.tokenizer);
    engine_close(&generation.engine);
    train_setup_free(&generation.setup);
    if (status == STATUS_OK && result) *result = done;
    return status;
}
