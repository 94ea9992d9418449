/* A subcommand: what a user types becomes calls of the modules below, and what they return becomes text or JSON.
 *
 * Files, in the order to read them:
 *   command: a subcommand, and the list of them;
 *   init, plan, train, eval, generate, chat, merge, profile, simulate, inspect, report: one each; `resume` is in train;
 *   scale: layouts for many devices, of `plan --devices`; prediction: the simulated step of `simulate` and `report`. */
#pragma once

#include <jansson.h>

#include "cli/options.h"

struct command {
    enum command_bit bit;
    const char *name;
    const char *arguments; /* "MODEL_DIR DATA..." */
    int min, max;          /* positional arguments; max -1: any number */
    const char *summary;   /* one line */
    const char *details;   /* a paragraph for `ballast NAME --help` */
    enum status (*run)(const struct options *options);
};

extern const struct command command_init, command_plan, command_train, command_resume, command_eval, command_generate,
    command_profile, command_simulate, command_inspect, command_merge, command_report, command_chat;
extern const struct command *const commands[COMMAND_COUNT];

/* Prints one JSON document on stdout and drops it; NULL is passed on as STATUS_FAILED. */
enum status cli_print_json(json_t *document);
