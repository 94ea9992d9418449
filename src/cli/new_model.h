/* Writing a model made from scratch. */
#ifndef BALLAST_CLI_NEW_MODEL_H
#define BALLAST_CLI_NEW_MODEL_H

#include <stdint.h>

#include "model/model.h"

struct new_model {
    struct model_config config;
    uint64_t seed;
    const char *tokenizer_text; /* path of the text to train a tokenizer on; NULL: none */
};

/* Makes `folder` a Hugging Face directory with initial weights in fp32. It appears at once and whole, or not at all.
 * BAD_INPUT when it holds something already, or the sizes or the text do not make a model. */
enum status new_model_write(const struct new_model *wanted, const char *folder, int64_t *parameters);

#endif
