/* Adapters in a model: the nodes that they add, what is frozen, where a model with adapters comes from. For src/model.
 */
#pragma once

#include "model/model.h"

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
