/* The checks of weight files that model_open makes. */
#pragma once

#include "model/model.h"

/* Sets model->prefix to what the files use. */
void weights_find_prefix(struct model *model);
/* Where the embedding is tied to the head and only the head is stored, as some files of OPT have it, takes that for the
 * embedding. After weights_find_prefix. */
enum status weights_take_head(struct model *model);
/* Whether a tensor of the files is next to a wrapper's text model. */
bool weights_is_carried(const struct model *model, const char *name);
/* Takes tensors apart that are several parameters (ir/tensor.h, stack). BAD_INPUT names one that has not as many. */
enum status weights_unstack(struct model *model);
/* The files must hold every parameter of the model's graph, in its shape and a dtype that can be converted, and nothing
 * else but known buffers and, when tied, an equal copy of the embedding as the head. BAD_INPUT names file and tensor.
 */
enum status weights_check(const struct model *model);
/* model->adapter_weights must hold this parameter, in its shape and a dtype that can be converted. */
enum status weights_check_one(const struct model *model, const struct tensor *parameter);
