/* Weight files and adapters of a model, for model_open and the rest of src/model. */
#pragma once

#include "model/model.h"

/* The graph of one token, for its parameters. */
enum status model_build_small_graph(const struct model *model, struct graph **out);
/* Whether the directory has a file of this name. */
bool model_folder_has(const char *folder, const char *name);
/* Opens the weight files, and checks that they hold all parameters in their shapes and nothing else. Sets model->prefix
 * to that of the files. BAD_INPUT names file and tensor. */
enum status weights_open(struct model *model, const char *folder);
/* Whether a tensor of the files belongs to a wrapper's other parts. */
bool weights_is_carried(const struct model *model, const char *name);
/* Requires this parameter in model->adapter_weights, in its shape and a convertible dtype. */
enum status weights_check_one(const struct model *model, const struct tensor *parameter);

/* Adapters in a model: the nodes that they add, the frozen parameters, and the origin of a model with adapters. */
#define adapter_config_name "adapter_config.json"
#define adapter_weights_name "adapter_model.safetensors"

/* Freezes parameters by model_set_frozen and adapters. */
enum status adapter_freeze(const struct model *model, struct graph *graph);
/* Opens the base model of the adapter whose adapter_config.json is `file`. BAD_INPUT if it is an adapter itself. */
enum status model_open_base(const char *file, const char *given, struct model **out);
/* Writes adapter_config.json to `path`, and adds it to the manifest unless that is NULL. */
enum status adapter_write_settings(const struct model *model, const char *path, struct manifest *manifest);
