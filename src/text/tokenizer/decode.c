/* Ids to text, whole or as they come, by steps whose segments are tokens: fuse, byte level, byte fallback. */
#include "text/tokenizer/parts.h"
#include "text/tokenizer/steps.h"

static enum status fuse_apply(const void *settings, void *state, struct text_view view,
                              const struct text_output *output, size_t *consumed) {
    (void)settings, (void)state;
    *consumed = view.bytes;
    return output->next.write(output->next.payload, view.text, view.bytes, false);
}

/* All segments were one, which ends here. */
static enum status segment_finish(const void *settings, void *state, const struct text_output *output) {
    (void)settings, (void)state;
    return output->next.write(output->next.payload, "", 0, true);
}

const struct text_step_type text_fuse_step = {.name = "fuse", .apply = fuse_apply, .finish = segment_finish};

static enum status byte_level_apply(const void *settings, void *state, struct text_view view,
                                    const struct text_output *output, size_t *consumed) {
    (void)settings;
    struct text_buffer *bytes = state;
    *consumed = view.bytes;
    bytes->count = 0;
    TRY(byte_alphabet_read(bytes, view.text, view.bytes));
    return output->next.write(output->next.payload, bytes->items, bytes->count, false);
}

const struct text_step_type text_byte_level_step = {
    .name = "byte level",
    .state_bytes = sizeof(struct text_buffer),
    .whole = true,
    .apply = byte_level_apply,
    .finish = segment_finish,
    .stop = text_step_free_buffer,
};

static const char replacement[] = "\xEF\xBF\xBD";

/* Settings that pass on each character as soon as it is complete, so only the bytes after it become U+FFFD. */
static const char early_fallback;

struct fallback_state {
    struct text_buffer bytes; /* of the byte tokens in a row that were not handed on yet; first, for the stop */
    bool open;                /* early: some of these bytes were handed on */
    bool broken;              /* ... and what follows in it is not UTF-8 */
};

static enum status run_write(struct fallback_state *own, const struct text_sink *next) {
    const struct text_buffer *bytes = &own->bytes;
    if (utf8_valid_bytes(bytes->items, bytes->count) == bytes->count)
        return next->write(next->payload, bytes->items, bytes->count, true);
    for (size_t i = 0; i < bytes->count; i++)
        TRY(next->write(next->payload, replacement, 3, true));
    return STATUS_OK;
}

static enum status run_end(struct fallback_state *own, const struct text_sink *next) {
    if (own->bytes.count > 0) TRY(run_write(own, next));
    own->bytes.count = 0;
    return STATUS_OK;
}

/* Hands on whole characters, and bytes that no character can begin with. */
static enum status early_write(struct fallback_state *own, const struct text_sink *next) {
    size_t place = 0;
    while (place < own->bytes.count) {
        uint32_t code;
        const char *text = own->bytes.items + place;
        size_t length = utf8_decode(text, own->bytes.count - place, &code);
        if (code == UTF8_CUT && !own->broken) break;
        own->broken |= code >= UTF8_BAD;
        own->open = true;
        TRY(own->broken ? next->write(next->payload, replacement, 3, false)
                        : next->write(next->payload, text, length, false));
        place += own->broken ? 1 : length;
    }
    own->bytes.count -= place;
    for (size_t i = 0; i < own->bytes.count; i++)
        own->bytes.items[i] = own->bytes.items[place + i];
    return STATUS_OK;
}

static enum status early_end(struct fallback_state *own, const struct text_sink *next) {
    own->broken = true; /* what is left is the beginning of a character */
    TRY(early_write(own, next));
    if (own->open) TRY(next->write(next->payload, "", 0, true));
    own->open = own->broken = false;
    return STATUS_OK;
}

static enum status fallback_apply(const void *settings, void *state, struct text_view view,
                                  const struct text_output *output, size_t *consumed) {
    struct fallback_state *own = state;
    const struct text_sink *next = &output->next;
    bool early = settings == &early_fallback;
    unsigned char byte;
    *consumed = view.bytes;
    if (byte_token_read(view.text, view.bytes, &byte)) {
        TRY(text_append(&own->bytes, &(char){(char)byte}, 1));
        return early ? early_write(own, next) : STATUS_OK;
    }
    TRY(early ? early_end(own, next) : run_end(own, next));
    return next->write(next->payload, view.text, view.bytes, true);
}

static enum status fallback_finish(const void *settings, void *state, const struct text_output *output) {
    return settings == &early_fallback ? early_end(state, &output->next) : run_end(state, &output->next);
}

static void fallback_drop(void *state) {
    struct fallback_state *own = state;
    own->bytes.count = 0;
    own->open = own->broken = false;
}

const struct text_step_type text_byte_fallback_step = {
    .name = "byte fallback",
    .state_bytes = sizeof(struct fallback_state),
    .whole = true,
    .apply = fallback_apply,
    .finish = fallback_finish,
    .drop = fallback_drop,
    .stop = text_step_free_buffer,
};

/* --- decoders --- */

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

/* `early`: text goes out as soon as possible, even where later tokens would have changed what it becomes. */
static enum status decoder_make(const struct tokenizer *tokenizer, bool skip_special_tokens, bool early,
                                struct tokenizer_decoder **out) {
    size_t count = tokenizer->decoders.count;
    struct tokenizer_decoder *made = mem_array(1, sizeof *made);
    struct text_step_spec *specs = mem_array(count, sizeof *specs);
    enum status status = made && specs ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        specs[i] = tokenizer->decoders.items[i];
        if (early && specs[i].type == &text_byte_fallback_step) specs[i].settings = &early_fallback;
    }
    if (status == STATUS_OK) {
        *made = (struct tokenizer_decoder){.tokenizer = tokenizer, .skip_special_tokens = skip_special_tokens};
        status =
            text_chain_create(specs, count, (struct text_sink){text_take, made}, (struct token_sink){0}, &made->chain);
    }
    mem_free(specs);
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
