/* Writing a model made from scratch. */
#pragma once

#include "base/base.h"
#include "model/model.h"

struct new_model {
    struct model_config config; /* where there is no `like` */
    const char *like; /* a model's directory or a preset, whose config.json and tokenizer are taken; or NULL */
    uint64_t seed;
    enum dtype dtype;               /* of what is not in base_format */
    enum weight_format base_format; /* of the matrices of linear layers and experts */
    const char *tokenizer_text;     /* path of the text to train a tokenizer on; NULL: none */
};

/* Makes `folder` a Hugging Face directory with initial weights. It appears at once and whole, or not at all.
 * BAD_INPUT when it holds something already, or the sizes or the text do not make a model. */
enum status new_model_write(const struct new_model *wanted, const char *folder, int64_t *parameters);
