#include "generate/writer.h"

#include <math.h>

#include "base/clock.h"
#include "base/random.h"
#include "session/checkpoint/checkpoint.h"
#include "session/model_tokenizer.h"

enum status decoding_create(const struct engine *engine, struct decoding *out) {
    struct decoding decoding = {.engine = engine, .positions = engine->plan->chosen.recipe.sequence_length};
    decoding.texts = mem_array((size_t)engine->plan->request.set.texts, sizeof *decoding.texts);
    if (!decoding.texts) return STATUS_FAILED;
    *out = decoding;
    return STATUS_OK;
}

void decoding_free(struct decoding *decoding) {
    mem_free(decoding->texts);
    decoding->texts = NULL;
}

size_t decoding_keep(struct decoding *decoding, int64_t text, size_t count) {
    struct cached_text *cached = &decoding->texts[text];
    size_t kept = cached->start > 0 ? 0 : count < cached->prefilled ? count : cached->prefilled;
    *cached = (struct cached_text){.filled = kept, .prefilled = kept};
    return kept;
}

bool decoding_continues(const struct decoding *decoding, int64_t text, size_t count) {
    const struct cached_text *cached = &decoding->texts[text];
    return cached->filled > 0 && cached->filled < (size_t)decoding->positions &&
           count == cached->start + cached->filled + 1;
}

/* Inputs of a program, one entry per token. */
struct inputs {
    int32_t *tokens, *positions, *rows;
    int64_t count;
};

static struct inputs find_inputs(const struct engine *engine, enum program_use use) {
    const struct graph *graph = engine->plan->programs.of[use]->graph;
    return (struct inputs){
        .tokens = engine_data(engine, use, "tokens"),
        .positions = engine_data(engine, use, "positions"),
        .rows = engine_data(engine, use, "rows"),
        .count = graph->micro_batch_sequences * graph->sequence_length,
    };
}

static void set_token(const struct inputs *inputs, size_t at, uint32_t id, size_t position, int64_t row) {
    inputs->tokens[at] = (int32_t)id;
    inputs->positions[at] = (int32_t)position;
    inputs->rows[at] = (int32_t)row;
}

static enum status compute(struct runner *runner, const struct inputs *inputs, size_t used, size_t last) {
    for (size_t t = used; t < (size_t)inputs->count; t++)
        set_token(inputs, t, 0, 0, -1);
    double scalars[SCALAR_COUNT] = {[SCALAR_NEW_TOKENS] = (double)last};
    return runner_step(runner, scalars);
}

/* Processes the next tokens of a text, at most one chunk, and returns their number in `used`. */
static enum status read_chunk(struct decoding *decoding, int64_t text, const uint32_t *ids, size_t left, size_t *used) {
    struct cached_text *cached = &decoding->texts[text];
    struct inputs inputs = find_inputs(decoding->engine, PROGRAM_PREFILL);
    size_t count = left < (size_t)inputs.count ? left : (size_t)inputs.count;
    for (size_t t = 0; t < count; t++) {
        size_t position = cached->filled + t;
        set_token(&inputs, t, ids[t], position, text * decoding->positions + (int64_t)position);
    }
    TRY(compute(decoding->engine->runners[PROGRAM_PREFILL], &inputs, count, count));
    if (cached->prefilled == cached->filled) cached->prefilled += count;
    cached->filled += count;
    *used = count;
    return STATUS_OK;
}

static void drop_oldest(struct decoding *decoding, struct cached_text *cached, size_t count) {
    size_t positions = (size_t)decoding->positions, kept = cached->filled == 0 ? positions : (positions + 1) / 2;
    if (count - cached->start <= positions) return;
    *cached = (struct cached_text){.start = count - kept};
}

enum status decoding_read(struct decoding *decoding, int64_t text, const uint32_t *ids, size_t count,
                          const float **logits) {
    struct cached_text *cached = &decoding->texts[text];
    BUG_IF(count <= cached->start + cached->filled, "no new token");
    drop_oldest(decoding, cached, count);
    for (size_t at = cached->start + cached->filled, used; at < count; at += used)
        TRY(read_chunk(decoding, text, ids + at, count - at, &used));
    *logits = engine_data(decoding->engine, PROGRAM_PREFILL, "logits");
    return STATUS_OK;
}

enum status decoding_step(struct decoding *decoding, const struct decoding_token *tokens, size_t count,
                          const float **logits) {
    struct inputs inputs = find_inputs(decoding->engine, PROGRAM_DECODE);
    BUG_IF(count < 1 || count > (size_t)inputs.count, "%zu texts at once", count);
    for (size_t t = 0; t < count; t++) {
        size_t position = decoding->texts[tokens[t].text].filled;
        set_token(&inputs, t, tokens[t].id, position, tokens[t].text * decoding->positions + (int64_t)position);
    }
    TRY(compute(decoding->engine->runners[PROGRAM_DECODE], &inputs, count, 1));
    for (size_t t = 0; t < count; t++)
        decoding->texts[tokens[t].text].filled++;
    *logits = engine_data(decoding->engine, PROGRAM_DECODE, "logits");
    return STATUS_OK;
}

enum status sampler_create(const struct generate_options *options, uint64_t seed, int64_t vocab, struct sampler *out) {
#define CHECK(field, type)                                                                                             \
    TRY(setting_check_##type(&setting_table[SETTING_##field], setting_table[SETTING_##field].name, options->field));
    CHECK(temperature, float)
    CHECK(top_k, int)
    CHECK(top_p, float)
    CHECK(repetition_penalty, float)
    AUTO(sampler_free) struct sampler sampler = {.options = options, .seed = seed, .vocab = vocab};
    sampler.scores = mem_array((size_t)vocab, sizeof *sampler.scores);
    sampler.choices = mem_array((size_t)vocab, sizeof *sampler.choices);
    if (!sampler.scores || !sampler.choices) return STATUS_FAILED;
    *out = TAKE(sampler);
    return STATUS_OK;
}

void sampler_free(struct sampler *sampler) {
    mem_free(sampler->scores);
    mem_free(sampler->choices);
    sampler->scores = NULL;
    sampler->choices = NULL;
}

static int by_weight(const void *a, const void *b) {
    const struct sampler_choice *x = a, *y = b;
    if (x->weight > y->weight || x->weight < y->weight) return x->weight > y->weight ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

static uint32_t likeliest(const float *logits, int64_t vocab) {
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return (uint32_t)best;
}

/* Returns how many of the sorted choices top_k and top_p keep. */
static int64_t cut_tail(const struct sampler *sampler) {
    int64_t count = sampler->vocab, top_k = sampler->options->top_k;
    if (top_k > 0 && top_k < count) count = top_k;
    double all = 0, kept = 0;
    for (int64_t i = 0; i < count; i++)
        all += sampler->choices[i].weight;
    int64_t used = 0;
    while (used < count && (used == 0 || kept < sampler->options->top_p * all))
        kept += sampler->choices[used++].weight;
    return used;
}

/* Penalizes a token once, however often it occurs. */
static enum status score(struct sampler *sampler, const struct sampler_input *input) {
    for (int64_t i = 0; i < sampler->vocab; i++)
        if (isnan(input->logits[i]))
            return status_set(STATUS_FAILED, "the logit of token %" PRId64 " is not a number", i);
    memcpy(sampler->scores, input->logits, (size_t)sampler->vocab * sizeof *sampler->scores);
    float penalty = (float)sampler->options->repetition_penalty;
    for (size_t i = 0; i < input->count; i++) {
        float logit = input->logits[input->ids[i]];
        sampler->scores[input->ids[i]] = logit < 0 ? logit * penalty : logit / penalty;
    }
    return STATUS_OK;
}

enum status sampler_choose(struct sampler *sampler, const struct sampler_input *input, int64_t *count) {
    TRY(score(sampler, input));
    uint32_t best = likeliest(sampler->scores, sampler->vocab);
    if (sampler->options->temperature <= 0) {
        sampler->choices[0] = (struct sampler_choice){.weight = 1, .token = best};
        *count = 1;
        return STATUS_OK;
    }
    double max = (double)sampler->scores[best];
    for (int64_t i = 0; i < sampler->vocab; i++) {
        double weight = exp(((double)sampler->scores[i] - max) / sampler->options->temperature);
        sampler->choices[i] = (struct sampler_choice){.weight = weight, .token = (uint32_t)i};
    }
    qsort(sampler->choices, (size_t)sampler->vocab, sizeof *sampler->choices, by_weight);
    *count = cut_tail(sampler);
    return STATUS_OK;
}

enum status sampler_draw(struct sampler *sampler, const struct sampler_input *input, uint32_t text, int64_t position,
                         uint32_t *token) {
    int64_t count, chosen = 0;
    TRY(sampler_choose(sampler, input, &count));
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += sampler->choices[i].weight;
    double at = random_uniform(sampler->seed, RANDOM_SAMPLE, text, (uint64_t)position) * sum;
    for (; chosen < count - 1; chosen++) {
        at -= sampler->choices[chosen].weight;
        if (at < 0) break;
    }
    *token = sampler->choices[chosen].token;
    return STATUS_OK;
}

static void put_out(struct stop_text *text, size_t count) {
    if (count > 0 && !text->sink(text->payload, text->held.items, count)) text->stopped = true;
    memmove(text->held.items, text->held.items + count, text->held.count - count);
    text->held.count -= count;
}

/* Returns the position of the first stop, or -1. */
static int64_t find_stop(const struct stop_text *text) {
    for (size_t at = 0; at < text->held.count; at++)
        for (size_t i = 0; i < text->stop_count; i++) {
            size_t length = strlen(text->stops[i]);
            bool fits = length <= text->held.count - at;
            if (fits && memcmp(text->held.items + at, text->stops[i], length) == 0) return (int64_t)at;
        }
    return -1;
}

/* Returns the length of the longest suffix that may be the beginning of a stop. */
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
    if (text->out.stopped) text->finish = GENERATE_FINISH_STOP; /* found in the remaining bytes */
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

bool kept_text_take(void *payload, const char *text, size_t bytes) {
    struct kept_text *kept = payload;
    if (kept->status == STATUS_OK) kept->status = text_append(&kept->text, text, bytes);
    return kept->status == STATUS_OK && (!kept->sink || kept->sink(kept->payload, text, bytes));
}

enum status writer_model_open(const char *folder, const struct plan_options *plan, struct writer_model *out) {
    TRY(session_begin(folder, PROGRAMS_TO_WRITE, plan, NULL, &out->session, &out->plan));
    TRY(checkpoint_verify_model(NULL, folder, out->session.model));
    TRY(model_tokenizer_require(out->session.model, &out->tokenizer));
    return generation_config_read(out->session.model, out->tokenizer, true, &out->config);
}

enum status writer_model_load(struct writer_model *model) { return engine_open_loaded(&model->plan, &model->engine); }

void writer_model_close(struct writer_model *model) {
    engine_close(&model->engine);
    tokenizer_free(model->tokenizer);
    generation_config_free(&model->config);
    session_plan_free(&model->plan);
    session_close(&model->session);
}

static enum status next_logits(struct decoding *decoding, const struct token_ids *ids, const float **logits) {
    if (!decoding_continues(decoding, 0, ids->count)) return decoding_read(decoding, 0, ids->items, ids->count, logits);
    struct decoding_token token = {.text = 0, .id = ids->items[ids->count - 1]};
    return decoding_step(decoding, &token, 1, logits);
}

static enum status write_text(struct writer *writer, struct written_text *text, struct generate_result *result) {
    int64_t start = clock_now_ns(), first = 0;
    const float *logits;
    TRY(decoding_read(&writer->decoding, 0, text->ids->items, text->ids->count, &logits));
    first = clock_now_ns();
    TRY(written_text_take(writer, text, logits));
    while (!text->finished) {
        TRY(next_logits(&writer->decoding, text->ids, &logits));
        TRY(written_text_take(writer, text, logits));
    }
    result->prompt_seconds = (double)(first - start) * 1e-9;
    result->seconds = (double)(clock_now_ns() - first) * 1e-9;
    result->tokens = text->new_tokens;
    result->finish = text->finish;
    return STATUS_OK;
}

enum status generate_continue(struct writer *writer, uint32_t text, struct token_ids *ids, generate_sink *sink,
                              void *payload, struct generate_result *result) {
    AUTO(written_text_free) struct written_text written = {0};
    struct generate_result made = {.prompt_tokens = (int64_t)ids->count};
    TRY(written_text_begin(writer, text, ids, sink, payload, &written));
    TRY(write_text(writer, &written, &made));
    if (result) *result = made;
    return STATUS_OK;
}
