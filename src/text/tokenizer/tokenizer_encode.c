/* Text to ids, whole or in parts. */
#include <string.h>

#include "text/tokenizer/tokenizer_parts.h"

enum {
    IDS_AT_ONCE = 4096,
    /* Long texts go through the steps in parts of this size: small enough for the cache of a core. */
    PART_BYTES = 1 << 17
};

struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
    struct text_chain *chain;
    struct token_sink sink;
    bool begun, add_special_tokens;
    size_t count;
    uint32_t ids[IDS_AT_ONCE];
};

static enum status ids_flush(struct tokenizer_encoder *encoder) {
    size_t count = encoder->count;
    encoder->count = 0;
    return count > 0 ? encoder->sink.write(encoder->sink.payload, encoder->ids, count) : STATUS_OK;
}

static enum status ids_take(void *payload, const uint32_t *ids, size_t count) {
    struct tokenizer_encoder *encoder = payload;
    while (count > 0) {
        if (encoder->count == IDS_AT_ONCE) TRY(ids_flush(encoder));
        size_t space = IDS_AT_ONCE - encoder->count, taken = count < space ? count : space;
        memcpy(encoder->ids + encoder->count, ids, taken * sizeof *ids);
        encoder->count += taken;
        ids += taken;
        count -= taken;
    }
    return STATUS_OK;
}

static enum status text_ignore(void *payload, const char *text, size_t bytes, bool end) {
    (void)payload, (void)text, (void)bytes, (void)end;
    BUG("text came out of the last stage of a tokenizer");
}

enum status tokenizer_encoder_create(const struct tokenizer *tokenizer, struct tokenizer_encoder **out) {
    struct tokenizer_encoder *made = mem_array(1, sizeof *made);
    if (!made) return STATUS_FAILED;
    made->tokenizer = tokenizer;
    enum status status =
        text_chain_create(tokenizer->steps.items, tokenizer->steps.count, (struct text_sink){text_ignore, NULL},
                          (struct token_sink){ids_take, made}, &made->chain);
    if (status != STATUS_OK) return mem_free(made), status;
    *out = made;
    return STATUS_OK;
}

void tokenizer_encoder_free(struct tokenizer_encoder *encoder) {
    if (!encoder) return;
    text_chain_free(encoder->chain);
    mem_free(encoder);
}

static void encoder_open(struct tokenizer_encoder *encoder, bool add_special_tokens, bool continues,
                         struct token_sink sink) {
    text_chain_reset(encoder->chain, continues);
    encoder->sink = sink;
    encoder->count = 0;
    encoder->begun = true;
    encoder->add_special_tokens = add_special_tokens;
}

enum status tokenizer_encoder_begin(struct tokenizer_encoder *encoder, bool add_special_tokens,
                                    struct token_sink sink) {
    const struct token_ids *before = &encoder->tokenizer->before;
    encoder_open(encoder, add_special_tokens, false, sink);
    return add_special_tokens ? ids_take(encoder, before->items, before->count) : STATUS_OK;
}

enum status tokenizer_encoder_continue(struct tokenizer_encoder *encoder, struct token_sink sink) {
    encoder_open(encoder, false, true, sink);
    return STATUS_OK;
}

enum status tokenizer_encoder_push(struct tokenizer_encoder *encoder, const char *text, size_t bytes) {
    BUG_IF(!encoder->begun, "tokenizer_encoder_push without tokenizer_encoder_begin");
    for (size_t part; bytes > 0; text += part, bytes -= part) {
        part = bytes < PART_BYTES ? bytes : PART_BYTES;
        TRY(text_chain_write(encoder->chain, text, part, false));
    }
    return STATUS_OK;
}

enum status tokenizer_encoder_finish(struct tokenizer_encoder *encoder) {
    const struct token_ids *after = &encoder->tokenizer->after;
    BUG_IF(!encoder->begun, "tokenizer_encoder_finish without tokenizer_encoder_begin");
    encoder->begun = false;
    TRY(text_chain_write(encoder->chain, "", 0, true));
    if (encoder->add_special_tokens) TRY(ids_take(encoder, after->items, after->count));
    return ids_flush(encoder);
}

enum status tokenizer_encoder_encode(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                                     bool add_special_tokens, struct token_sink sink) {
    TRY(tokenizer_encoder_begin(encoder, add_special_tokens, sink));
    TRY(tokenizer_encoder_push(encoder, text, bytes));
    return tokenizer_encoder_finish(encoder);
}

static enum status ids_append(void *payload, const uint32_t *ids, size_t count) {
    struct token_ids *out = payload;
    TRY(vec_reserve(out, out->count + count));
    memcpy(out->items + out->count, ids, count * sizeof *ids);
    out->count += count;
    return STATUS_OK;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, bool add_special_tokens,
                             struct token_ids *out) {
    struct tokenizer_encoder *encoder;
    TRY(tokenizer_encoder_create(tokenizer, &encoder));
    enum status status =
        tokenizer_encoder_encode(encoder, text, bytes, add_special_tokens, (struct token_sink){ids_append, out});
    tokenizer_encoder_free(encoder);
    return status;
}
