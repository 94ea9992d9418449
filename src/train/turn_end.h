/* The token that ends a turn of a chat-tuned model. */
#ifndef BALLAST_TRAIN_TURN_END_H
#define BALLAST_TRAIN_TURN_END_H

#include "model/model.h"

/* For a run on files that the chat template renders: has the model written with the token by which its chat template
 * ends an assistant's turn, where generation would not stop at it yet. It comes first in eos_token_id of
 * generation_config.json, before the ends that the model had, as transformers' Trainer aligns them. config.json gets it
 * too where the tokenizer names the end of documents, which config.json does otherwise. A model without a chat template
 * stays as it is. `time_s`: chat_prompt.h.
 */
enum status turn_end_set(struct model *model, int64_t time_s);

#endif
