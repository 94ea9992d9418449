/* The header of one safetensors file: parsing and all checks. Used by safetensors.c. */
#ifndef BALLAST_MODEL_SAFETENSORS_HEADER_H
#define BALLAST_MODEL_SAFETENSORS_HEADER_H

#include "model/safetensors.h"

/* Appends the tensors of the set's last file, unsorted. `file`, its path, must live as long as the set. */
enum status safetensors_parse(struct safetensors *set, const char *file);

#endif
