#include "data/example.h"

#include <string.h>

#include "base/mem.h"

/* Every border costs the encoding of the text before it. */
enum { WORK_LIMIT_BYTES = 1 << 27 };

struct example_encoder {
    struct tokenizer_encoder *encoder;
    struct token_ids whole, prefix;
};

enum status example_encoder_create(const struct tokenizer *tokenizer, struct example_encoder **out) {
    struct example_encoder *made = mem_array(1, sizeof *made);
    if (!made) return STATUS_FAILED;
    enum status status = tokenizer_encoder_create(tokenizer, &made->encoder);
    if (status != STATUS_OK)
        mem_free(made);
    else
        *out = made;
    return status;
}

void example_encoder_free(struct example_encoder *encoder) {
    if (!encoder) return;
    tokenizer_encoder_free(encoder->encoder);
    vec_free(&encoder->whole);
    vec_free(&encoder->prefix);
    mem_free(encoder);
}

static enum status keep_ids(void *payload, const uint32_t *ids, size_t count) {
    struct token_ids *out = payload;
    TRY(vec_reserve(out, out->count + count));
    if (count > 0) memcpy(out->items + out->count, ids, count * sizeof *ids);
    out->count += count;
    return STATUS_OK;
}

static enum status encode(struct example_encoder *encoder, const char *text, size_t bytes, bool add_special_tokens,
                          struct token_ids *out) {
    out->count = 0;
    return tokenizer_encoder_run(encoder->encoder, text, bytes, add_special_tokens,
                                 (struct token_sink){.write = keep_ids, .payload = out});
}

/* The number of ids before a byte of the text. */
static enum status find_border(struct example_encoder *encoder, const char *text, size_t at, bool add_special_tokens,
                               size_t *index) {
    const struct token_ids *whole = &encoder->whole, *prefix = &encoder->prefix;
    TRY(encode(encoder, text, at, add_special_tokens, &encoder->prefix));
    size_t common = 0;
    while (common < whole->count && common < prefix->count && whole->items[common] == prefix->items[common])
        common++;
    if (common > *index) *index = common;
    return STATUS_OK;
}

static enum status mark_spans(struct example_encoder *encoder, const char *text, size_t bytes,
                              const struct text_span *trained, size_t count, bool add_special_tokens,
                              uint32_t *marked) {
    size_t index = 0, work = 0;
    for (size_t i = 0; i < count; i++) {
        work += trained[i].from + trained[i].to;
        if (work > WORK_LIMIT_BYTES + 2 * bytes)
            return status_set(STATUS_BAD_INPUT, "%zu turns are too many for an example of %zu bytes", count, bytes);
        TRY(find_border(encoder, text, trained[i].from, add_special_tokens, &index));
        size_t first = index;
        if (trained[i].to == bytes)
            index = encoder->whole.count;
        else
            TRY(find_border(encoder, text, trained[i].to, add_special_tokens, &index));
        for (size_t k = first; k < index; k++)
            marked[k] |= EXAMPLE_TRAINED;
    }
    return STATUS_OK;
}

static enum status check_ids(const struct token_ids *ids) {
    for (size_t i = 0; i < ids->count; i++)
        if (ids->items[i] > EXAMPLE_ID)
            return status_set(STATUS_BAD_INPUT, "the tokenizer's id %u is too large for supervised data",
                              ids->items[i]);
    return STATUS_OK;
}

enum status example_encode(struct example_encoder *encoder, const char *text, size_t bytes,
                           const struct text_span *trained, size_t count, bool add_special_tokens, int64_t eos_token,
                           struct token_ids *out) {
    const struct token_ids *whole = &encoder->whole;
    size_t first = out->count;
    TRY(encode(encoder, text, bytes, add_special_tokens, &encoder->whole));
    TRY(check_ids(whole));
    TRY(keep_ids(out, whole->items, whole->count));
    if (whole->count > 0) TRY(mark_spans(encoder, text, bytes, trained, count, add_special_tokens, out->items + first));
    bool ended = whole->count > 0 && whole->items[whole->count - 1] == eos_token;
    if (eos_token >= 0 && !ended) TRY(vec_push(out, (uint32_t)eos_token | EXAMPLE_TRAINED));
    if (out->count > first) out->items[first] |= EXAMPLE_FIRST;
    return STATUS_OK;
}
