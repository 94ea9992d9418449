/* Published models by name: their config.json's dimensions, built in, so that "will it fit?" can be asked before
 * anything is downloaded. */
#pragma once

#include <jansson.h>

#include "base/base.h"

struct model_preset {
    const char *name;   /* "llama-3.1-8b" */
    const char *hub;    /* where the model is published: "meta-llama/Llama-3.1-8B" */
    const char *config; /* what matters of its config.json */
};
extern const struct model_preset model_presets[];
extern const int model_preset_count;

/* By its name, or by that on the hub with or without the owner, in upper or lower case; NULL: there is none. */
const struct model_preset *model_preset_find(const char *name);
/* Adds as a hint to the current message which preset was probably meant, or where all are listed; returns `code`. */
enum status model_preset_hint(enum status code, const char *name);
/* The config as a JSON object, which the caller drops. FAILED without memory. */
enum status model_preset_config(const struct model_preset *preset, json_t **out);
/* All of them in a table: `ballast help presets`. FAILED without memory. */
enum status model_preset_print_list(FILE *out);
