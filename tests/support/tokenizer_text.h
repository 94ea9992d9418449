/* Tokenizers from fixtures and from texts in memory, and their tokens. */
#pragma once

#include "text/tokenizer/parts.h"
#include "text/tokenizer/tokenizer.h"

/* Opens tests/fixtures/tokenizers/NAME.json. */
struct tokenizer *tokenizer_fixture(const char *name);
/* tokenizer_open for a file in memory; `name` stands for the path in messages. */
enum status tokenizer_parse(const char *name, const char *json, size_t bytes, struct tokenizer **out);
/* tokenizer_train_file for a text in memory. */
enum status tokenizer_train(const char *text, size_t bytes, int64_t vocab_size, const char *const *special_tokens,
                            size_t special_token_count, const char *out_tokenizer_json);
/* A token_sink that appends to a struct token_ids. */
enum status ids_collect(void *payload, const uint32_t *ids, size_t count);
/* The tokenizer's steps from text to ids, for text in parts; without the special tokens of its template. A
 * text_chain_write with `end` set is the last part. The caller frees it with text_chain_free. */
struct text_chain *encoding_chain(const struct tokenizer *tokenizer, struct token_ids *out);
