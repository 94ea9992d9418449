/* The tokenizer in a model's directory, and the tokens that end its texts. */
#pragma once

#include "model/model.h"
#include "text/tokenizer/tokenizer.h"

/* Opens the tokenizer of a model's directory, or of its adapter's (model_companion_folder), with the changes that
 * neighboring files make to it. `*out` is NULL if there is none. `*path` is its path; the caller frees it. BAD_INPUT if
 * it has more tokens than the model. */
enum status model_tokenizer_open(const struct model *model, struct tokenizer **out, char **path);
/* Opens it likewise, but BAD_INPUT if there is none: for text. */
enum status model_tokenizer_require(const struct model *model, struct tokenizer **out);
/* The id that ends a text, as in trl: the tokenizer's eos_token. If its files name none: eos_token_id of config.json or
 * of its text_config, the first one of a list. -1 if there is none. BAD_INPUT if the config's id is used but is no id
 * of the model. The tokenizer may be NULL. */
enum status model_end_token(const struct model *model, const struct tokenizer *tokenizer, int64_t *out);
/* The end token of Ballast 0.1.0: eos_token_id of config.json only, the first one of a list. */
int64_t model_end_token_of_0_1_0(const struct model *model);
/* Appends all ids of config.json's eos_token_id, or model_end_token's if there are none. */
enum status model_end_tokens(const struct model *model, const struct tokenizer *tokenizer, struct token_ids *out);
