/* Tokenizer and data of a run, opened for a model. */
#pragma once

#include "data/dataset.h"
#include "model/model.h"
#include "plan/plan.h"
#include "session/options.h"

/* Data of a run, and the tokenizer of its text. */
struct train_data {
    struct dataset *dataset;
    struct tokenizer *tokenizer; /* NULL: the model has none, or it is no longer needed */
};
/* Opens the data for the recipe's sequence length and seed. Token ids of text are cached in $XDG_CACHE_HOME/ballast, or
 * ~/.cache/ballast. `training` false: the data paths are validation data. Collective: BAD_INPUT on all ranks if one
 * cannot open a file, or has another (dataset_check_same). */
enum status train_data_open(struct comm *comm, const struct model *model, const struct recipe *recipe,
                            const struct train_options *options, bool training, struct train_data *out);
/* Turns packing on if neither --packing nor a plan file decides, and some data are supervised examples but none are
 * pairs. Reads file names and first lines. BAD_INPUT as in dataset_open. `training` as above. */
enum status train_data_choose_packing(const struct train_options *options, bool training, struct plan_options *plan);
/* BAD_INPUT, naming file, line and rule, if Ballast 0.1.0 may have made other sequences. */
enum status train_data_check_0_1_0(const struct model *model, const struct train_data *data);
/* Ignores data that were never opened. */
void train_data_close(struct train_data *data);

/* Adds the token that ends an assistant's turn to the written model's end tokens. Does so if the chat template renders
 * the data, and if generation would not stop at the token yet. The token comes first in eos_token_id of
 * generation_config.json, like in transformers' Trainer. config.json gets it, too, if the tokenizer names the end of
 * documents; otherwise config.json names that end. A model without a chat template is unchanged. `time_s`:
 * chat_prompt_open. */
enum status turn_end_set(struct model *model, int64_t time_s);
