/* Linear layers that stay plain in a model whose others are in fewer bits, as quantization_config names them.
 *     compressed-tensors   those that no group's "targets" name, and those that "ignore" names: each entry is a layer's
 *                          whole name, "re:" and a regular expression that a name begins with, or the class "Linear"
 *     bitsandbytes         those that "llm_int8_skip_modules" names: each entry is the end of a layer's name, or a
 *                          regular expression that a name, or the name of a module around it, begins with
 * Expressions are Python's, which PCRE2 reads. */
#pragma once

#include <jansson.h>

#include "base/base.h"

struct plain_layers;
/* Of quantization_config, which stored_format_read_config has read. The lists are copied. BAD_INPUT naming `file` and
 * the entry that is no text or no expression. */
enum status plain_layers_read(const char *file, const json_t *object, struct plain_layers **out);
/* Whether the layer that has this weight, NAME.weight as in the files, is one of them; NULL has none. */
bool plain_layers_have(const struct plain_layers *layers, const char *weight);
void plain_layers_free(struct plain_layers *layers);
