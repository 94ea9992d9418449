/* Tokenizer and data of a run, opened for a model. */
#ifndef BALLAST_TRAIN_TRAIN_DATA_H
#define BALLAST_TRAIN_TRAIN_DATA_H

#include "data/dataset.h"
#include "model/model.h"
#include "plan/plan.h"
#include "train/train_options.h"

/* The tokenizer.json of a model's folder. `*out` is NULL when there is none; `*path` is its path, for the caller to
 * free. BAD_INPUT when it has more tokens than the model. */
enum status train_tokenizer_open(const struct model *model, struct tokenizer **out, char **path);
/* The same, but BAD_INPUT when there is none: for text. */
enum status train_tokenizer_require(const struct model *model, struct tokenizer **out);
/* The id that ends a text: config.json's eos_token_id (the first, where it is a list); -1 when there is none. */
int64_t train_end_token(const struct model *model);
/* Appends all of that list. */
enum status train_end_tokens(const struct model *model, struct token_ids *out);

/* When today began, in UTC, in seconds since 1970. */
int64_t train_today_s(void);

/* What a run reads, and the tokenizer by which it is made from text. */
struct train_data {
    struct dataset *dataset;
    struct tokenizer *tokenizer; /* NULL: the model has none, or none is needed any more */
};
/* Opens the data for the recipe's sequence length and seed. Token ids of text are cached in $XDG_CACHE_HOME/ballast, or
 * ~/.cache/ballast. `training` false: the data paths are validation data. */
enum status train_data_open(const struct model *model, const struct recipe *recipe, const struct train_options *options,
                            bool training, struct train_data *out);
/* What was never opened is left alone. */
void train_data_close(struct train_data *data);

#endif
