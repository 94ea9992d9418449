/* Tokenizer and data of a run, opened for a model. */
#pragma once

#include "data/dataset.h"
#include "model/model.h"
#include "plan/plan.h"
#include "session/options.h"

/* What a run reads, and the tokenizer by which it is made from text. */
struct train_data {
    struct dataset *dataset;
    struct tokenizer *tokenizer; /* NULL: the model has none, or none is needed any more */
};
/* Opens the data for the recipe's sequence length and seed. Token ids of text are cached in $XDG_CACHE_HOME/ballast, or
 * ~/.cache/ballast. `training` false: the data paths are validation data. Collective: BAD_INPUT on all ranks where one
 * cannot open a file, or has another (dataset_check_same). */
enum status train_data_open(struct comm *comm, const struct model *model, const struct recipe *recipe,
                            const struct train_options *options, bool training, struct train_data *out);
/* Packs where neither --packing nor a plan file decides: where some of the data are supervised examples and
 * no pairs. Reads the files' names and first lines; BAD_INPUT as dataset_open. `training` as above. */
enum status train_data_choose_packing(const struct train_options *options, bool training, struct plan_options *plan);
/* BAD_INPUT, naming file, line and rule, where Ballast 0.1.0 may have made other sequences. */
enum status train_data_check_0_1_0(const struct model *model, const struct train_data *data);
/* What was never opened is left alone. */
void train_data_close(struct train_data *data);

/* For a run on files that the chat template renders: has the model written with the token by which its chat template
 * ends an assistant's turn, where generation would not stop at it yet. It comes first in eos_token_id of
 * generation_config.json, before the ends that the model had, as transformers' Trainer aligns them. config.json gets it
 * too where the tokenizer names the end of documents, which config.json does otherwise. A model without a chat template
 * stays as it is. `time_s`: chat_prompt_open.
 */
enum status turn_end_set(struct model *model, int64_t time_s);
