/* Which folder is meant by what is given as a model. */
#ifndef BALLAST_MODEL_MODEL_FOLDER_H
#define BALLAST_MODEL_MODEL_FOLDER_H

#include "base/status.h"

/* The folder of the model that `given` names, for the caller to free: itself where it holds config.json or
 * adapter_config.json; RUN_DIR/model of a run's folder. BAD_INPUT where there is none, with what `given` is instead, if
 * that can be told (a name on the Hugging Face hub, a file, a run that has no model yet, weights of another format),
 * and what to do. */
enum status model_folder_find(const char *given, char **out);

#endif
