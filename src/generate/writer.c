#include "generate/writer.h"

#include "session/checkpoint/checkpoint.h"
#include "session/model_tokenizer.h"

static void put_out(struct stop_text *text, size_t count) {
    if (count > 0 && !text->sink(text->payload, text->held.items, count)) text->stopped = true;
    memmove(text->held.items, text->held.items + count, text->held.count - count);
    text->held.count -= count;
}

/* Where the first stop begins; -1: nowhere. */
static int64_t find_stop(const struct stop_text *text) {
    for (size_t at = 0; at < text->held.count; at++)
        for (size_t i = 0; i < text->stop_count; i++) {
            size_t length = strlen(text->stops[i]);
            bool fits = length <= text->held.count - at;
            if (fits && memcmp(text->held.items + at, text->stops[i], length) == 0) return (int64_t)at;
        }
    return -1;
}

/* The length of the longest end that a stop may begin with. */
static size_t open_end(const struct stop_text *text) {
    size_t max = 0;
    for (size_t i = 0; i < text->stop_count; i++) {
        size_t length = strlen(text->stops[i]) - 1;
        if (length > text->held.count) length = text->held.count;
        for (; length > max; length--)
            if (memcmp(text->held.items + text->held.count - length, text->stops[i], length) == 0) max = length;
    }
    return max;
}

enum status stop_text_push(struct stop_text *text, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        TRY(vec_push(&text->held, bytes[i]));
    if (text->held.count == 0 || text->stopped) return STATUS_OK;
    int64_t stop = find_stop(text);
    put_out(text, stop >= 0 ? (size_t)stop : text->held.count - open_end(text));
    if (stop >= 0) text->stopped = true;
    return STATUS_OK;
}

void stop_text_finish(struct stop_text *text) {
    if (!text->stopped && text->held.count > 0) put_out(text, text->held.count);
}

void stop_text_free(struct stop_text *text) { vec_free(&text->held); }

enum status writer_create(const struct engine *engine, const struct tokenizer *tokenizer,
                          const struct generation_config *config, const struct generate_options *options,
                          struct writer *out) {
    const struct session_plan *plan = engine->plan;
    *out = (struct writer){.tokenizer = tokenizer, .config = config, .options = *options};
    generation_config_apply(config, &out->options, out->note);
    TRY(generate_options_check(&out->options));
    TRY(sampler_create(&out->options, plan->chosen.recipe.seed, engine_model(engine)->config.vocab_size,
                       &out->sampler));
    enum status status = decoding_create(engine, &out->decoding);
    if (status != STATUS_OK) writer_free(out);
    return status;
}

void writer_free(struct writer *writer) {
    decoding_free(&writer->decoding);
    sampler_free(&writer->sampler);
}

enum status writer_encode_prompt(const struct model *model, const struct tokenizer *tokenizer, const char *prompt,
                                 struct token_ids *ids) {
    size_t before = ids->count;
    TRY(tokenizer_encode(tokenizer, prompt, strlen(prompt), true, ids));
    int64_t end;
    TRY(model_end_token(model, tokenizer, &end));
    if (ids->count == before && end >= 0) TRY(vec_push(ids, (uint32_t)end));
    if (ids->count == before)
        return status_set(STATUS_BAD_INPUT, "prompt: is empty, and the model has no end-of-text token to start from");
    return STATUS_OK;
}

enum status written_text_begin(const struct writer *writer, uint32_t number, struct token_ids *ids, generate_sink *sink,
                               void *payload, struct written_text *out) {
    const struct generate_options *options = &writer->options;
    int64_t left = writer->decoding.positions - (int64_t)ids->count;
    *out = (struct written_text){.number = number, .ids = ids, .max = options->tokens};
    if (out->max == 0) out->max = left > 1 ? left : 1;
    out->out = (struct stop_text){
        .stops = options->stops, .stop_count = options->stop_count, .sink = sink, .payload = payload};
    return tokenizer_decoder_create(writer->tokenizer, true, &out->decoder);
}

static enum status take_text(void *payload, const char *bytes, size_t count) {
    return stop_text_push(payload, bytes, count);
}

static enum status finish(struct written_text *text, enum generate_finish finish) {
    struct tokenizer_text_sink sink = {take_text, &text->out};
    text->finished = true;
    text->finish = finish;
    TRY(tokenizer_decoder_finish(text->decoder, sink));
    if (text->out.stopped) text->finish = GENERATE_FINISH_STOP; /* by what was only known now */
    stop_text_finish(&text->out);
    return STATUS_OK;
}

enum status written_text_take(struct writer *writer, struct written_text *text, const float *logits) {
    const struct generate_options *options = &writer->options;
    struct sampler_input input = {logits, text->ids->items, text->ids->count};
    struct tokenizer_text_sink sink = {take_text, &text->out};
    uint32_t token;
    if (options->interrupted && *options->interrupted) return finish(text, GENERATE_FINISH_INTERRUPTED);
    TRY(sampler_draw(&writer->sampler, &input, text->number, (int64_t)input.count, &token));
    if (!options->ignore_end && generation_config_is_end(writer->config, token))
        return finish(text, GENERATE_FINISH_END);
    TRY(vec_push(text->ids, token));
    TRY(tokenizer_decoder_push(text->decoder, &token, 1, sink));
    if (++text->new_tokens < text->max && !text->out.stopped) return STATUS_OK;
    return finish(text, text->out.stopped ? GENERATE_FINISH_STOP : GENERATE_FINISH_LENGTH);
}

void written_text_free(struct written_text *text) {
    stop_text_free(&text->out);
    tokenizer_decoder_free(text->decoder);
    text->decoder = NULL;
}

enum status writer_model_open(const char *folder, const struct plan_options *plan, struct writer_model *out) {
    TRY(session_begin(folder, PROGRAMS_TO_WRITE, plan, NULL, &out->session, &out->plan));
    TRY(checkpoint_verify_model(NULL, folder, out->session.model));
    TRY(model_tokenizer_require(out->session.model, &out->tokenizer));
    return generation_config_read(out->session.model, out->tokenizer, &out->config);
}

enum status writer_model_load(struct writer_model *model) {
    TRY(session_plan_check_memory(&model->plan));
    TRY(engine_open(&model->plan, &model->engine));
    return engine_load_weights(&model->engine);
}

void writer_model_close(struct writer_model *model) {
    engine_close(&model->engine);
    tokenizer_free(model->tokenizer);
    generation_config_free(&model->config);
    session_plan_free(&model->plan);
    session_close(&model->session);
}
