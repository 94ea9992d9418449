#include "support/tokenizer_text.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "support/unit.h"
#include "text/tokenizer/parts.h"

struct tokenizer *tokenizer_fixture(const char *name) {
    char path[512];
    struct tokenizer *tokenizer;
    snprintf(path, sizeof path, "%s/tokenizers/%s.json", BALLAST_FIXTURES, name);
    if (tokenizer_open(path, &tokenizer) != STATUS_OK) fail_msg("%s", status_message());
    return tokenizer;
}

enum status tokenizer_parse(const char *name, const char *json, size_t bytes, struct tokenizer **out) {
    json_t *file;
    TRY(json_parse_object(name, json, bytes, &file));
    return tokenizer_read(name, file, out);
}

enum status tokenizer_train(const char *text, size_t bytes, int64_t vocab_size, const char *const *special_tokens,
                            size_t special_token_count, const char *out_tokenizer_json) {
    struct file_input input = file_input_of_memory(text, bytes);
    return tokenizer_train_file(&input, vocab_size, special_tokens, special_token_count, out_tokenizer_json);
}

enum status ids_collect(void *payload, const uint32_t *ids, size_t count) {
    struct token_ids *out = payload;
    for (size_t i = 0; i < count; i++)
        TRY(vec_push(out, ids[i]));
    return STATUS_OK;
}

static enum status text_ignore(void *payload, const char *text, size_t bytes, bool end) {
    (void)payload, (void)text, (void)bytes, (void)end;
    return STATUS_OK;
}

struct text_chain *encoding_chain(const struct tokenizer *tokenizer, struct token_ids *out) {
    struct text_chain *chain;
    if (text_chain_create(tokenizer->steps.items, tokenizer->steps.count, (struct text_sink){text_ignore, NULL},
                          (struct token_sink){ids_collect, out}, &chain) != STATUS_OK)
        fail_msg("%s", status_message());
    return chain;
}
