/* Ids to text, whole or as they come. */
#include "text/tokenizer/tokenizer_parts.h"

struct tokenizer_decoder {
    const struct tokenizer *tokenizer;
    struct text_chain *chain;
    struct tokenizer_text_sink sink;
    bool skip_special_tokens;
};

static enum status text_take(void *payload, const char *text, size_t bytes, bool end) {
    struct tokenizer_decoder *decoder = payload;
    (void)end; /* tokens are joined without a separator */
    return bytes > 0 ? decoder->sink.write(decoder->sink.payload, text, bytes) : STATUS_OK;
}

static enum status ids_refuse(void *payload, const uint32_t *ids, size_t count) {
    (void)payload, (void)ids, (void)count;
    BUG("ids came out of a decoder");
}

/* `early`: text goes out as soon as possible, even where later tokens would have changed what it becomes. */
static enum status chain_make(struct tokenizer_decoder *decoder, bool early) {
    const struct tokenizer *tokenizer = decoder->tokenizer;
    size_t count = tokenizer->decoders.count;
    struct text_step_spec *specs = mem_array(count, sizeof *specs);
    if (!specs) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++) {
        specs[i] = tokenizer->decoders.items[i];
        if (early && specs[i].type == &text_byte_fallback_step) specs[i].type = &text_byte_fallback_early_step;
    }
    enum status status = text_chain_create(specs, count, (struct text_sink){text_take, decoder},
                                           (struct token_sink){ids_refuse, NULL}, &decoder->chain);
    mem_free(specs);
    return status;
}

static enum status decoder_make(const struct tokenizer *tokenizer, bool skip_special_tokens, bool early,
                                struct tokenizer_decoder **out) {
    struct tokenizer_decoder *made = mem_array(1, sizeof *made);
    if (!made) return STATUS_FAILED;
    made->tokenizer = tokenizer;
    made->skip_special_tokens = skip_special_tokens;
    enum status status = chain_make(made, early);
    if (status != STATUS_OK) return mem_free(made), status;
    *out = made;
    return STATUS_OK;
}

enum status tokenizer_decoder_create(const struct tokenizer *tokenizer, bool skip_special_tokens,
                                     struct tokenizer_decoder **out) {
    return decoder_make(tokenizer, skip_special_tokens, true, out);
}

void tokenizer_decoder_free(struct tokenizer_decoder *decoder) {
    if (!decoder) return;
    text_chain_free(decoder->chain);
    mem_free(decoder);
}

static enum status ids_write(struct tokenizer_decoder *decoder, const uint32_t *ids, size_t count) {
    const struct tokenizer *tokenizer = decoder->tokenizer;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= tokenizer->tokens.count) continue;
        const struct tokenizer_token *token = &tokenizer->tokens.items[ids[i]];
        if (!token->text || (decoder->skip_special_tokens && token->special)) continue;
        TRY(text_chain_write(decoder->chain, token->text, token->bytes, true));
    }
    return STATUS_OK;
}

enum status tokenizer_decoder_push(struct tokenizer_decoder *decoder, const uint32_t *ids, size_t count,
                                   struct tokenizer_text_sink sink) {
    decoder->sink = sink;
    enum status status = ids_write(decoder, ids, count);
    if (status != STATUS_OK) text_chain_reset(decoder->chain, false);
    return status;
}

enum status tokenizer_decoder_finish(struct tokenizer_decoder *decoder, struct tokenizer_text_sink sink) {
    decoder->sink = sink;
    enum status status = text_chain_finish(decoder->chain);
    if (status != STATUS_OK) text_chain_reset(decoder->chain, false);
    return status;
}

static enum status text_gather(void *payload, const char *text, size_t bytes) {
    return text_append(payload, text, bytes);
}

enum status tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
                             bool skip_special_tokens, char **text, size_t *bytes) {
    struct tokenizer_decoder *decoder;
    struct text_buffer gathered = {0};
    TRY(decoder_make(tokenizer, skip_special_tokens, false, &decoder));
    struct tokenizer_text_sink sink = {text_gather, &gathered};
    enum status status;
    TRY_GOTO(status, tokenizer_decoder_push(decoder, ids, count, sink), done);
    TRY_GOTO(status, tokenizer_decoder_finish(decoder, sink), done);
    TRY_GOTO(status, text_append(&gathered, "", 1), done);
    *text = gathered.items;
    if (bytes) *bytes = gathered.count - 1;
    gathered = (struct text_buffer){0}; /* the caller's now */
done:
    vec_free(&gathered);
    tokenizer_decoder_free(decoder);
    return status;
}
