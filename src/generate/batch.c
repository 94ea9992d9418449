#include "generate/batch.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/text.h"
#include "data/source.h"
#include "generate/writer.h"

enum { FILE_LIMIT_BYTES = 1 << 30 };

void prompt_encoder_close(struct prompt_encoder *encoder) { chat_prompt_close(&encoder->prompt); }

static enum status open_template(struct prompt_encoder *encoder) {
    struct writer_model *model = encoder->model;
    if (encoder->prompt.chat) return STATUS_OK;
    return chat_prompt_open(model->session.model, model->tokenizer, encoder->time_s, &model->config, &encoder->prompt);
}

static enum status encode_text(struct prompt_encoder *encoder, const char *text, struct token_ids *ids) {
    struct writer_model *model = encoder->model;
    if (!encoder->chat) return writer_encode_prompt(model->session.model, model->tokenizer, text, ids);
    TRY(open_template(encoder));
    return chat_prompt_encode_text(&encoder->prompt, encoder->system, text, ids);
}

/* Appends a prompt, and takes ownership of `source` (NULL: out of memory). */
static enum status add_prompt(json_t *source, struct prompts *prompts, struct prompt **out) {
    if (!source) return status_no_memory(0, "a prompt");
    if (vec_push(prompts, (struct prompt){.source = source}) != STATUS_OK) {
        json_decref(source);
        return STATUS_FAILED;
    }
    *out = &prompts->items[prompts->count - 1];
    return STATUS_OK;
}

enum status prompts_add_text(struct prompt_encoder *encoder, const char *text, struct prompts *prompts) {
    AUTO_VEC struct text_buffer repaired = {0};
    struct prompt *prompt = NULL;
    TRY(text_append_repaired(&repaired, text, strlen(text)));
    TRY(add_prompt(json_pack("{s:s%}", "prompt", repaired.items ? repaired.items : "", repaired.count), prompts,
                   &prompt));
    return encode_text(encoder, text, &prompt->ids);
}

static enum status add_conversation(struct prompt_encoder *encoder, const json_t *conversation,
                                    struct prompts *prompts) {
    struct prompt *prompt;
    json_t *messages = json_object_get(conversation, "messages");
    TRY(open_template(encoder));
    TRY(add_prompt(json_pack("{s:O}", "messages", messages), prompts, &prompt));
    return chat_prompt_encode(&encoder->prompt, messages, conversation, &prompt->ids);
}

static enum status add_object(struct prompt_encoder *encoder, const char *path, int64_t line, const json_t *object,
                              struct prompts *prompts) {
    const struct jsonl_row row = {NULL, path, line, object};
    json_t *text = json_object_get(object, "prompt"), *messages = json_object_get(object, "messages");
    json_auto_t *conversation = NULL;
    enum status status;
    if (json_is_string(text) && !messages) {
        TRY(jsonl_refuse_beside(&row, NULL));
        status = prompts_add_text(encoder, json_string_value(text), prompts);
    } else if (messages && !text) {
        TRY(jsonl_make_conversation(&row, NULL, json_incref(messages), &conversation, NULL));
        status = add_conversation(encoder, conversation, prompts);
    } else {
        status = status_set(STATUS_BAD_INPUT, "must have either \"prompt\", a text, or \"messages\", a list");
    }
    return status == STATUS_BAD_INPUT ? status_prefix(status, "%s: line %lld", path, (long long)line) : status;
}

static enum status add_json_line(struct prompt_encoder *encoder, const char *path, int64_t number, const char *line,
                                 struct prompts *prompts) {
    json_auto_t *object = NULL;
    TRY(jsonl_parse_object(path, number, line, strlen(line), &object));
    return object ? add_object(encoder, path, number, object, prompts) : STATUS_OK;
}

static enum status add_text_line(struct prompt_encoder *encoder, const char *path, int64_t number, const char *line,
                                 struct prompts *prompts) {
    enum status status = prompts_add_text(encoder, line, prompts);
    return status == STATUS_BAD_INPUT ? status_prefix(status, "%s: line %lld", path, (long long)number) : status;
}

/* Adds a prompt for each line. Modifies `text`. */
static enum status add_lines(struct prompt_encoder *encoder, const char *path, char *text, size_t bytes,
                             struct prompts *prompts) {
    bool json = path_ends(path, ".jsonl");
    int64_t number = 1;
    for (char *line = text, *end; line < text + bytes; line = end + 1, number++) {
        end = memchr(line, '\n', (size_t)(text + bytes - line));
        if (!end) end = text + bytes;
        char *last = end > line && end[-1] == '\r' ? end - 1 : end;
        *last = *end = '\0';
        if (strlen(line) < (size_t)(last - line))
            return status_set(STATUS_BAD_INPUT, "%s: line %lld: holds a zero byte", path, (long long)number);
        TRY(json ? add_json_line(encoder, path, number, line, prompts)
                 : add_text_line(encoder, path, number, line, prompts));
    }
    return STATUS_OK;
}

enum status prompts_read(struct prompt_encoder *encoder, const char *path, struct prompts *prompts) {
    AUTO_FREE char *text = NULL;
    size_t bytes, before = prompts->count;
    TRY(file_read(path, FILE_LIMIT_BYTES, &text, &bytes));
    TRY(add_lines(encoder, path, text, bytes, prompts));
    return prompts->count > before ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: holds no prompt", path);
}

void prompts_free(struct prompts *prompts) {
    for (size_t i = 0; i < prompts->count; i++) {
        json_decref(prompts->items[i].source);
        vec_free(&prompts->items[i].ids);
    }
    vec_free(prompts);
}

/* The result of a prompt. */
struct outcome {
    struct kept_text kept;
    struct generate_result result;
    bool done;
};

struct batch {
    struct writer *writer;
    struct prompts *prompts;
    struct outcome *outcomes;     /* one per prompt */
    struct written_text *writing; /* one per slot of the caches; decoder NULL: free */
    int64_t places, taken;
    size_t begun, emitted; /* prompts that were begun; prompts whose text went to the sink */
    struct generate_result *total;
};

static enum status begin_next(struct batch *batch, int64_t place) {
    struct prompt *prompt = &batch->prompts->items[batch->begun];
    struct outcome *outcome = &batch->outcomes[batch->begun];
    outcome->result.prompt_tokens = (int64_t)prompt->ids.count;
    decoding_keep(&batch->writer->decoding, place, 0);
    TRY(written_text_begin(batch->writer, (uint32_t)batch->begun, &prompt->ids, kept_text_take, &outcome->kept,
                           &batch->writing[place]));
    batch->begun++;
    batch->taken++;
    return STATUS_OK;
}

static enum status take_logits(struct batch *batch, int64_t place, const float *logits) {
    struct written_text *writing = &batch->writing[place];
    struct outcome *outcome = &batch->outcomes[writing->number];
    TRY(written_text_take(batch->writer, writing, logits));
    TRY(outcome->kept.status);
    if (!writing->finished) return STATUS_OK;
    outcome->done = true;
    outcome->result.tokens = writing->new_tokens;
    outcome->result.finish = writing->finish;
    batch->total->prompt_tokens += outcome->result.prompt_tokens;
    batch->total->tokens += outcome->result.tokens;
    written_text_free(writing);
    batch->taken--;
    return STATUS_OK;
}

/* The tokens of texts that advance in one decoding step. */
struct together {
    struct decoding_token tokens[DECODE_TEXTS];
    size_t count;
};

static enum status step(struct batch *batch, struct together *together) {
    const float *logits;
    int64_t vocab = batch->writer->sampler.vocab;
    if (together->count == 0) return STATUS_OK;
    TRY(decoding_step(&batch->writer->decoding, together->tokens, together->count, &logits));
    for (size_t i = 0; i < together->count; i++)
        TRY(take_logits(batch, together->tokens[i].text, logits + (int64_t)i * vocab));
    together->count = 0;
    return STATUS_OK;
}

static enum status advance(struct batch *batch, int64_t place, struct together *together) {
    struct decoding *decoding = &batch->writer->decoding;
    const struct token_ids *ids = batch->writing[place].ids;
    const float *logits;
    if (!decoding_continues(decoding, place, ids->count)) {
        TRY(decoding_read(decoding, place, ids->items, ids->count, &logits));
        return take_logits(batch, place, logits);
    }
    together->tokens[together->count++] = (struct decoding_token){place, ids->items[ids->count - 1]};
    return together->count < DECODE_TEXTS ? STATUS_OK : step(batch, together);
}

/* Advances each text by one token. */
static enum status advance_all(struct batch *batch) {
    struct together together = {.count = 0};
    for (int64_t place = 0; place < batch->places; place++) {
        bool free = !batch->writing[place].decoder;
        if (free && batch->begun == batch->prompts->count) continue;
        if (free) TRY(begin_next(batch, place));
        TRY(advance(batch, place, &together));
    }
    return step(batch, &together);
}

static enum status emit(struct batch *batch, batch_sink *sink, void *payload) {
    for (; batch->emitted < batch->begun && batch->outcomes[batch->emitted].done; batch->emitted++) {
        struct outcome *outcome = &batch->outcomes[batch->emitted];
        struct batch_text text = {.prompt = &batch->prompts->items[batch->emitted],
                                  .text = outcome->kept.text.items ? outcome->kept.text.items : "",
                                  .bytes = outcome->kept.text.count,
                                  .result = &outcome->result};
        TRY(sink(payload, &text));
        vec_free(&outcome->kept.text);
    }
    return STATUS_OK;
}

static enum status write_all(struct batch *batch, batch_sink *sink, void *payload) {
    size_t count = batch->prompts->count;
    batch->outcomes = mem_array(count, sizeof *batch->outcomes);
    batch->writing = mem_array((size_t)batch->places, sizeof *batch->writing);
    if (!batch->outcomes || !batch->writing) return STATUS_FAILED;
    while (batch->emitted < count) {
        TRY(advance_all(batch));
        TRY(emit(batch, sink, payload));
    }
    return STATUS_OK;
}

enum status generate_batch(struct writer *writer, struct prompts *prompts, batch_sink *sink, void *payload,
                           struct generate_result *total) {
    struct batch batch = {.writer = writer, .prompts = prompts, .total = total};
    int64_t start = clock_now_ns();
    *total = (struct generate_result){0};
    batch.places = writer->decoding.engine->plan->request.set.texts;
    enum status status = write_all(&batch, sink, payload);
    for (int64_t place = 0; batch.writing && place < batch.places; place++)
        written_text_free(&batch.writing[place]);
    for (size_t i = 0; batch.outcomes && i < prompts->count; i++)
        vec_free(&batch.outcomes[i].kept.text);
    mem_free(batch.writing);
    mem_free(batch.outcomes);
    total->seconds = (double)(clock_now_ns() - start) * 1e-9;
    return status;
}
