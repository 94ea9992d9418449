/* Everything that the table of options (options.h) becomes for people: --help, docs/options.md, manual pages,
 * completions for shells, and the settings in JSON schemas. */
#pragma once

#include <stdio.h>

#include "cli/options.h"

/* What --help shows: all options of the command, or those that people use. */
bool help_shows(const struct command *command, const struct setting *option, bool all);
/* The texts of an option in the help of one command, or of all if `command` is NULL. Each returns `text`.
 * Help: the phrase, without the parts for other commands. Default: " [default: ...]" or " [required]". */
enum { HELP_TEXT_BYTES = 640, HELP_DEFAULT_BYTES = 960 };
char *help_phrase(const struct setting *option, const struct command *command, char text[HELP_TEXT_BYTES]);
char *help_default(const struct setting *option, const struct command *command, char text[HELP_DEFAULT_BYTES]);
/* Whether the option is part of the recipe, which fixes the bits of the result. */
bool help_is_recipe(const struct setting *option);
extern const char *const option_group_titles[GROUP_COUNT];

/* --help of the program and of one command (`all`: --help-all); docs/options.md. */
void help_print_program(FILE *out);
void help_print_command(const struct command *command, bool all, FILE *out);
void help_print_document(FILE *out);
/* The settings of recipes and of run.json as parts of a JSON schema, on stdout (scripts/formats.py). */
enum status help_print_schemas(void);

/* The manual page ballast-COMMAND(1), or ballast(1) if `command` is NULL, in the macros of man(7) (manual.c). */
void manual_print(const struct command *command, FILE *out);

/* The script that completes commands, options and their values in "bash", "zsh" or "fish" (completion.c). BAD_INPUT
 * for another shell. */
enum status completion_print(const char *shell, FILE *out);
