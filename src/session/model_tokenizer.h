/* The tokenizer that lies in a model's folder, and the tokens that end its texts. */
#ifndef BALLAST_SESSION_MODEL_TOKENIZER_H
#define BALLAST_SESSION_MODEL_TOKENIZER_H

#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* The tokenizer.json of a model's folder. `*out` is NULL when there is none; `*path` is its path, for the caller to
 * free. BAD_INPUT when it has more tokens than the model. */
enum status model_tokenizer_open(const struct model *model, struct tokenizer **out, char **path);
/* The same, but BAD_INPUT when there is none: for text. */
enum status model_tokenizer_require(const struct model *model, struct tokenizer **out);
/* The id that ends a text: config.json's eos_token_id (the first, where it is a list); -1 when there is none. */
int64_t model_end_token(const struct model *model);
/* Appends all of that list. */
enum status model_end_tokens(const struct model *model, struct token_ids *out);

#endif
