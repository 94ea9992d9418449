/* A subcommand: what a user types becomes calls of the modules below, and what they return becomes text or JSON.
 *
 * Files, in the order to read them:
 *   command: a subcommand, and the list of them;
 *   init, plan, train, eval, generate, chat, merge, profile, simulate, inspect, report: one each; `resume` is in train;
 *   scale: layouts for many devices, of `plan --devices`; the simulated step of `report` is in simulate. */
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
    const char *details;   /* what `ballast NAME --help` says of it in two or three sentences */
    const char *notes;     /* the rest, for --help-all, the manual page and docs/options.md */
    const char *example;   /* a command line */
    enum status (*run)(const struct options *options);
};

extern const struct command command_init, command_plan, command_train, command_resume, command_eval, command_generate,
    command_profile, command_simulate, command_inspect, command_merge, command_report, command_chat;
extern const struct command *const commands[COMMAND_COUNT];

/* Prints one JSON document on stdout and drops it; NULL is passed on as STATUS_FAILED. */
enum status cli_print_json(json_t *document);

/* Writing a model made from scratch (init.c). */

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

/* `ballast plan MODEL --cluster NAME --devices N` (scale.c): layouts for many devices, simulated
 * (search/scale/choose.h), printed and drawn as a page (--page) and as files (--svg). */

/* Whether the options ask for it: --devices or --target-days was given. */
bool scale_plan_is_requested(const struct options *options);
/* Prints the Pareto front of layouts and the curve over numbers of devices, or with --json one document. BAD_INPUT
 * naming the option; NO_FIT where no layout fits. */
enum status scale_plan_run(const struct options *options);
