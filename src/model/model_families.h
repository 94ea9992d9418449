/* The families, for the table in model.c. */
#ifndef BALLAST_MODEL_MODEL_FAMILIES_H
#define BALLAST_MODEL_MODEL_FAMILIES_H

#include "model/model.h"

#define FAMILY_DECLARE(name) extern const struct model_family family_##name;
MODEL_FAMILY_LIST(FAMILY_DECLARE)
#undef FAMILY_DECLARE

#endif
