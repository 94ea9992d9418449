/* The tokenizer that lies in a model's directory, and the tokens that end its texts. */
#pragma once

#include "model/model.h"
#include "text/tokenizer/tokenizer.h"

/* The tokenizer of a model's directory, or of its adapter's (model_companion_folder), with what the files next to it
 * change.
 * `*out` is NULL when there is none; `*path` is its path, for the caller to free. BAD_INPUT when it has more tokens
 * than the model. */
enum status model_tokenizer_open(const struct model *model, struct tokenizer **out, char **path);
/* The same, but BAD_INPUT when there is none: for text. */
enum status model_tokenizer_require(const struct model *model, struct tokenizer **out);
/* The id that ends a text, as in trl: the tokenizer's eos_token; where its files name none, eos_token_id of config.json
 * or of its text_config (the first, where it is a list). -1 when there is none. BAD_INPUT when the config's would count
 * and is no id of the model. The tokenizer may be NULL. */
enum status model_end_token(const struct model *model, const struct tokenizer *tokenizer, int64_t *out);
/* The end token that Ballast 0.1.0 took: eos_token_id of config.json alone, the first of a list. */
int64_t model_end_token_of_0_1_0(const struct model *model);
/* Appends all ids of config.json's eos_token_id; where there are none, that of model_end_token. */
enum status model_end_tokens(const struct model *model, const struct tokenizer *tokenizer, struct token_ids *out);
