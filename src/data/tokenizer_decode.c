#include "data/tokenizer_parts.h"

static enum status tokens_gather(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
                                 bool skip_special_tokens, struct text_list *out) {
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= tokenizer->tokens.count) continue;
        const struct tokenizer_token *token = &tokenizer->tokens.items[ids[i]];
        if (!token->text || (skip_special_tokens && token->special)) continue;
        TRY(text_append(&out->text, token->text, token->bytes));
        TRY(text_list_close(out));
    }
    return STATUS_OK;
}

static enum status decoders_run(const struct tokenizer *tokenizer, struct text_list *list) {
    for (size_t i = 0; i < tokenizer->decoders.count; i++) {
        struct text_list made = {0};
        enum status status = tokenizer->decoders.items[i]->run(list, &made);
        text_list_free(list);
        *list = made;
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* Without a decoder the library puts a space between tokens. */
static enum status list_join(const struct text_list *list, bool spaces, struct text_buffer *out) {
    size_t start = 0;
    for (size_t i = 0; i < list->ends.count; i++) {
        size_t stop = list->ends.items[i];
        if (spaces && i > 0) TRY(text_append(out, " ", 1));
        if (stop > start) TRY(text_append(out, list->text.items + start, stop - start));
        start = stop;
    }
    return text_append(out, "", 1);
}

enum status tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
                             bool skip_special_tokens, char **text, size_t *bytes) {
    struct text_list list = {0};
    struct text_buffer joined = {0};
    enum status status = tokens_gather(tokenizer, ids, count, skip_special_tokens, &list);
    if (status == STATUS_OK) status = decoders_run(tokenizer, &list);
    if (status == STATUS_OK) status = list_join(&list, tokenizer->decoders.count == 0, &joined);
    text_list_free(&list);
    if (status != STATUS_OK) return vec_free(&joined), status;
    *text = joined.items;
    if (bytes) *bytes = joined.count - 1;
    return STATUS_OK;
}
