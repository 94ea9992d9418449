/* Any tokenizer.json is refused with a message or read. Any text then has the same ids in one piece and in parts,
 * and any ids decode. An input is a file, a NUL, and a text; without a NUL, the file is also the text. */
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "text/tokenizer/parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { TEXT_BYTES_MAX = 4096 };

static enum status ids_gather(void *payload, const uint32_t *ids, size_t count) {
    struct token_ids *out = payload;
    for (size_t i = 0; i < count; i++)
        TRY(vec_push(out, ids[i]));
    return STATUS_OK;
}

static enum status text_ignore(void *payload, const char *text, size_t bytes, bool end) {
    (void)payload, (void)text, (void)bytes, (void)end;
    return STATUS_OK;
}

static enum status encode_in_parts(const struct tokenizer *tokenizer, const char *text, size_t bytes, size_t part,
                                   struct token_ids *out) {
    struct text_chain *chain;
    TRY(text_chain_create(tokenizer->steps.items, tokenizer->steps.count, (struct text_sink){text_ignore, NULL},
                          (struct token_sink){ids_gather, out}, &chain));
    enum status status = STATUS_OK;
    for (size_t place = 0; status == STATUS_OK && place < bytes; place += part)
        status = text_chain_write(chain, text + place, part < bytes - place ? part : bytes - place, false);
    if (status == STATUS_OK) status = text_chain_write(chain, "", 0, true);
    text_chain_free(chain);
    return status;
}

static enum status text_check(void *payload, const char *text, size_t bytes) {
    (void)payload;
    BUG_IF(bytes == 0 || utf8_valid_bytes(text, bytes) != bytes, "half a character is streamed");
    return STATUS_OK;
}

static void decode_in_parts(const struct tokenizer *tokenizer, const struct token_ids *ids) {
    struct tokenizer_decoder *decoder;
    const struct tokenizer_text_sink sink = {text_check, NULL};
    BUG_IF(tokenizer_decoder_create(tokenizer, true, &decoder) != STATUS_OK, "no decoder");
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < ids->count; i++)
        status = tokenizer_decoder_push(decoder, &ids->items[i], 1, sink);
    if (status == STATUS_OK) status = tokenizer_decoder_finish(decoder, sink);
    BUG_IF(status != STATUS_OK && status_message()[0] == '\0', "no message");
    tokenizer_decoder_free(decoder);
}

static void use(const struct tokenizer *tokenizer, const char *text, size_t bytes) {
    struct token_ids ids = {0}, again = {0};
    char *back;
    enum status status = tokenizer_encode(tokenizer, text, bytes, false, &ids);
    BUG_IF(status != STATUS_OK && status_message()[0] == '\0', "no message");
    if (status == STATUS_OK) {
        for (size_t i = 0; i < ids.count; i++)
            BUG_IF(ids.items[i] >= tokenizer_vocab_size(tokenizer), "id %u is past the vocabulary", ids.items[i]);
        /* A pattern may be too costly in one way of reading the text and not in the other. */
        if (encode_in_parts(tokenizer, text, bytes, 1 + bytes % 7, &again) == STATUS_OK)
            BUG_IF(ids.count != again.count ||
                       (ids.count > 0 && memcmp(ids.items, again.items, ids.count * sizeof *ids.items) != 0),
                   "other ids in parts");
        /* A decoder's pattern may be too costly as well. */
        if (tokenizer_decode(tokenizer, ids.items, ids.count, false, &back, NULL) == STATUS_OK) mem_free(back);
        decode_in_parts(tokenizer, &ids);
    }
    vec_free(&ids);
    vec_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const char *file = (const char *)data;
    const char *end = bytes > 0 ? memchr(file, '\0', bytes) : NULL;
    size_t file_bytes = end ? (size_t)(end - file) : bytes;
    const char *text = end ? end + 1 : file;
    size_t text_bytes = end ? bytes - file_bytes - 1 : bytes;
    struct tokenizer *tokenizer;
    json_t *object;
    status_clear();
    enum status status = json_parse_object("fuzz", file, file_bytes, &object);
    if (status == STATUS_OK) status = tokenizer_read("fuzz", object, &tokenizer);
    BUG_IF(status != STATUS_OK && (status != STATUS_BAD_INPUT || status_message()[0] == '\0'), "no message");
    if (status != STATUS_OK) return 0;
    use(tokenizer, text, text_bytes < TEXT_BYTES_MAX ? text_bytes : TEXT_BYTES_MAX);
    tokenizer_free(tokenizer);
    return 0;
}
