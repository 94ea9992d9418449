/* A subcommand: turns arguments into calls of other modules, and their results into text or JSON.
 *
 * Files, in the order to read them:
 *   command: the struct of a subcommand, and the list of all;
 *   init, plan, train, eval, generate, chat, merge, profile, simulate, inspect, report: one each; `resume` is in train;
 *   scale: layouts for many devices (`plan --devices`); `report` gets its simulated step from simulate. */
#pragma once

#include <jansson.h>

#include "cli/options.h"
#include "model/model.h"

struct command {
    enum command_bit bit;
    const char *name;
    const char *arguments; /* "MODEL_DIR DATA..." */
    int min, max;          /* positional arguments; max -1: any number */
    const char *summary;   /* one line */
    const char *details;   /* two or three sentences for `ballast NAME --help` */
    const char *notes;     /* further details, for --help-all, the manual page and docs/options.md */
    const char *example;   /* a command line */
    enum status (*run)(const struct options *options);
};

extern const struct command command_init, command_plan, command_train, command_resume, command_eval, command_generate,
    command_profile, command_simulate, command_inspect, command_merge, command_report, command_chat;
extern const struct command *const commands[COMMAND_COUNT];

/* Prints a JSON document on stdout and releases it. Returns FAILED for NULL. */
enum status cli_print_json(json_t *document);

/* Creates a model with random weights (init.c). */

struct new_model {
    struct model_config config; /* used if `like` is NULL */
    const char *like; /* a model's directory or a preset, to copy config.json and the tokenizer from; or NULL */
    uint64_t seed;
    enum dtype dtype;               /* of weights that are not in base_format */
    enum weight_format base_format; /* of the matrices of linear layers and experts */
    const char *tokenizer_text;     /* path of the text on which to train a tokenizer; NULL: no tokenizer */
};

/* Writes a Hugging Face directory with initial weights. `folder` appears complete or not at all. Returns BAD_INPUT
 * if it is not empty, or if the dimensions or the tokenizer's text are invalid. */
enum status new_model_write(const struct new_model *wanted, const char *folder, int64_t *parameters);

/* `ballast plan MODEL --cluster NAME --devices N` (scale.c): simulates layouts for many devices
 * (search/scale/choose.h), and prints and draws them as a page (--page) and as files (--svg). */

/* Whether --devices or --target-days was given. */
bool scale_plan_is_requested(const struct options *options);
/* Prints the Pareto front of layouts and the curve over device counts, or with --json one document. BAD_INPUT names
 * the option. Returns NO_FIT if no layout fits. */
enum status scale_plan_run(const struct options *options);
