/* The families, for the table in model.c. */
#ifndef BALLAST_MODEL_MODEL_FAMILIES_H
#define BALLAST_MODEL_MODEL_FAMILIES_H

#include "model/model.h"

extern const struct model_family family_gpt2, family_llama;

#endif
