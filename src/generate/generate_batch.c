#include "generate/generate_batch.h"

#include "base/clock.h"
#include "base/utf8.h"

/* What became of a prompt. */
struct outcome {
    struct text_buffer text;
    struct generate_result result;
    enum status status; /* of keeping the text */
    bool done;
};

struct batch {
    struct writer *writer;
    struct prompts *prompts;
    struct outcome *outcomes;     /* by prompt */
    struct written_text *writing; /* by place in the caches; decoder NULL: free */
    int64_t places, taken;
    size_t begun, emitted; /* prompts that were begun; whose text went to the sink */
    struct generate_result *total;
};

static bool keep_text(void *payload, const char *text, size_t bytes) {
    struct outcome *outcome = payload;
    if (outcome->status == STATUS_OK) outcome->status = text_append(&outcome->text, text, bytes);
    return outcome->status == STATUS_OK;
}

static enum status begin_next(struct batch *batch, int64_t place) {
    struct prompt *prompt = &batch->prompts->items[batch->begun];
    struct outcome *outcome = &batch->outcomes[batch->begun];
    outcome->result.prompt_tokens = (int64_t)prompt->ids.count;
    decoding_keep(&batch->writer->decoding, place, 0);
    TRY(written_text_begin(batch->writer, (uint32_t)batch->begun, &prompt->ids, keep_text, outcome,
                           &batch->writing[place]));
    batch->begun++;
    batch->taken++;
    return STATUS_OK;
}

static enum status take_logits(struct batch *batch, int64_t place, const float *logits) {
    struct written_text *writing = &batch->writing[place];
    struct outcome *outcome = &batch->outcomes[writing->number];
    TRY(written_text_take(batch->writer, writing, logits));
    TRY(outcome->status);
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

/* Tokens of texts that take a step together. */
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

/* A token of each text. */
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
                                  .text = outcome->text.items ? outcome->text.items : "",
                                  .bytes = outcome->text.count,
                                  .result = &outcome->result};
        TRY(sink(payload, &text));
        vec_free(&outcome->text);
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
        vec_free(&batch.outcomes[i].text);
    mem_free(batch.writing);
    mem_free(batch.outcomes);
    total->seconds = (double)(clock_now_ns() - start) * 1e-9;
    return status;
}
