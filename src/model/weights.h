/* Weight files and adapters of a model: what model_open checks and the rest of src/model asks for. */
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

/* Adapters in a model: the nodes that they add, what is frozen, where a model with adapters comes from. */
#define adapter_config_name "adapter_config.json"
#define adapter_weights_name "adapter_model.safetensors"

/* Marks what model_set_frozen and adapters leave frozen. */
enum status adapter_freeze(const struct model *model, struct graph *graph);
/* Whether the directory holds an adapter. */
enum status adapter_find(const char *folder, bool *found);
/* The base model of the adapter whose adapter_config.json is `file`. BAD_INPUT where it is an adapter itself. */
enum status model_open_base(const char *file, const char *given, struct model **out);
/* Writes adapter_config.json to `path`, and adds it to the manifest unless that is NULL. */
enum status adapter_write_settings(const struct model *model, const char *path, struct manifest *manifest);
