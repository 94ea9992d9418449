#include "train/generate.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "train/checkpoint.h"
#include "train/decode.h"
#include "train/generation_config.h"
#include "train/sampler.h"
#include "train/stop_text.h"
#include "train/train_data.h"

void generate_options_init(struct generate_options *out) {
    *out = (struct generate_options){
        .prompt = "", .tokens = 100, .temperature = -1, .top_k = -1, .top_p = -1, .repetition_penalty = -1};
}

static enum status check_options(const struct generate_options *options) {
    if (options->tokens < 1)
        return status_set(STATUS_BAD_INPUT, "tokens: %" PRId64 " is not positive", options->tokens);
    for (size_t i = 0; i < options->stop_count; i++)
        if (options->stops[i][0] == '\0') return status_set(STATUS_BAD_INPUT, "stop: is empty");
    return STATUS_OK;
}

enum status generate_encode_prompt(const struct model *model, const struct tokenizer *tokenizer, const char *prompt,
                                   struct token_ids *ids) {
    TRY(tokenizer_encode(tokenizer, prompt, strlen(prompt), true, ids));
    int64_t end = train_end_token(model);
    if (ids->count == 0 && end >= 0) TRY(vec_push(ids, (uint32_t)end));
    if (ids->count == 0)
        return status_set(STATUS_BAD_INPUT, "prompt: is empty, and the model has no end-of-text token to start from");
    return STATUS_OK;
}

/* One text on its way. */
struct generation {
    const struct engine *engine;
    const struct generation_config *config;
    const struct generate_options *options;
    struct decoding decoding;
    struct sampler sampler;
    struct tokenizer_decoder *decoder;
    struct token_ids ids; /* the prompt, then what is new */
    struct stop_text text;
};

static enum status take_text(void *payload, const char *bytes, size_t count) {
    return stop_text_push(payload, bytes, count);
}

static enum status begin_text(struct generation *generation, const struct tokenizer *tokenizer,
                              const struct token_ids *prompt) {
    const struct train_setup *setup = generation->engine->setup;
    for (size_t i = 0; i < prompt->count; i++)
        TRY(vec_push(&generation->ids, prompt->items[i]));
    decoding_begin(generation->engine, &generation->decoding);
    TRY(sampler_create(generation->options, setup->plan.recipe.seed, setup->model->config.vocab_size,
                       &generation->sampler));
    return tokenizer_decoder_create(tokenizer, true, &generation->decoder);
}

static enum status draw_token(struct generation *generation, uint32_t *token) {
    struct sampler_input input = {.ids = generation->ids.items, .count = generation->ids.count};
    TRY(decoding_run(&generation->decoding, input.ids, input.count, &input.logits));
    return sampler_draw(&generation->sampler, &input, (int64_t)input.count, token);
}

static enum status continue_text(struct generation *generation, struct generate_result *done) {
    struct tokenizer_text_sink sink = {take_text, &generation->text};
    int64_t start = clock_now_ns(), first = 0;
    while (done->tokens < generation->options->tokens && !generation->text.stopped) {
        uint32_t token;
        TRY(draw_token(generation, &token));
        if (!first) first = clock_now_ns();
        if (!generation->options->ignore_end && generation_config_is_end(generation->config, token)) break;
        done->tokens++;
        TRY(vec_push(&generation->ids, token));
        TRY(tokenizer_decoder_push(generation->decoder, &token, 1, sink));
    }
    done->prompt_seconds = (double)(first - start) * 1e-9;
    done->seconds = (double)(clock_now_ns() - first) * 1e-9;
    TRY(tokenizer_decoder_finish(generation->decoder, sink));
    stop_text_finish(&generation->text);
    return STATUS_OK;
}

enum status generate_continue(const struct engine *engine, const struct tokenizer *tokenizer,
                              const struct generation_config *config, const struct token_ids *prompt,
                              const struct generate_options *options, generate_sink *sink, void *payload,
                              struct generate_result *result) {
    TRY(check_options(options));
    struct generation generation = {.engine = engine, .config = config, .options = options};
    struct generate_result done = {.prompt_tokens = (int64_t)prompt->count};
    generation.text = (struct stop_text){
        .stops = options->stops, .stop_count = options->stop_count, .sink = sink, .payload = payload};
    enum status status = begin_text(&generation, tokenizer, prompt);
    if (status == STATUS_OK) status = continue_text(&generation, &done);
    stop_text_free(&generation.text);
    vec_free(&generation.ids);
    sampler_free(&generation.sampler);
    tokenizer_decoder_free(generation.decoder);
    if (status == STATUS_OK && result) *result = done;
    return status;
}

/* A model that is opened to write text. */
struct writer {
    struct train_setup setup;
    struct generation_config config;
    struct tokenizer *tokenizer;
    struct engine engine;
};

/* What is wrong with the prompt is said before memory is taken. */
static enum status open_writer(struct writer *writer, const char *prompt, struct token_ids *ids) {
    const struct train_setup *setup = &writer->setup;
    TRY(generation_config_read(setup->model, &writer->config));
    TRY(train_tokenizer_require(setup->model, &writer->tokenizer));
    TRY(generate_encode_prompt(setup->model, writer->tokenizer, prompt, ids));
    TRY(train_setup_check_memory(setup));
    TRY(engine_open(setup, &writer->engine));
    return engine_load_weights(&writer->engine);
}

static void close_writer(struct writer *writer) {
    engine_close(&writer->engine);
    tokenizer_free(writer->tokenizer);
    generation_config_free(&writer->config);
    train_setup_free(&writer->setup);
}

enum status generate_text(const char *model_folder, const struct plan_options *plan,
                          const struct generate_options *options, generate_begin *begin, generate_sink *sink,
                          void *payload, struct generate_result *result) {
    struct writer writer = {0};
    struct token_ids ids = {0};
    struct generate_options all = *options;
    struct plan_options one = *plan;
    char note[GENERATION_NOTE_BYTES];
    one.batch = one.grain_sequences = one.grains_per_pass = 0;
    TRY(check_options(options));
    TRY(train_setup_create(model_folder, SETUP_GENERATE, &one, NULL, &writer.setup));
    enum status status = checkpoint_verify_model(model_folder, writer.setup.model);
    if (status == STATUS_OK) status = open_writer(&writer, options->prompt, &ids);
    generation_config_apply(&writer.config, &all, note);
    if (status == STATUS_OK && begin) begin(payload, &writer.setup, note);
    if (status == STATUS_OK)
        status = generate_continue(&writer.engine, writer.tokenizer, &writer.config, &ids, &all, sink, payload, result);
    vec_free(&ids);
    close_writer(&writer);
    return status;
}
