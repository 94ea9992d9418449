#include "data/tokenizer_decoder.h"

#include "data/byte_alphabet.h"

enum status text_list_close(struct text_list *list) { return vec_push(&list->ends, list->text.count); }

void text_list_free(struct text_list *list) {
    vec_free(&list->text);
    vec_free(&list->ends);
}

static enum status bytes_gather(const struct text_list *in, struct text_buffer *bytes) {
    size_t start = 0;
    for (size_t i = 0; i < in->ends.count; i++) {
        size_t stop = in->ends.items[i];
        if (stop > start) TRY(byte_alphabet_read(bytes, in->text.items + start, stop - start));
        start = stop;
    }
    return STATUS_OK;
}

static enum status byte_level_run(const struct text_list *in, struct text_list *out) {
    struct text_buffer bytes = {0};
    enum status status = bytes_gather(in, &bytes);
    if (status == STATUS_OK) status = text_append_repaired(&out->text, bytes.items, bytes.count);
    if (status == STATUS_OK) status = text_list_close(out);
    vec_free(&bytes);
    return status;
}

const struct token_decoder_type byte_level_decoder = {"ByteLevel", byte_level_run};
