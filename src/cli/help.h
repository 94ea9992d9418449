/* Generates text from the table of options (options.h): --help, docs/options.md, manual pages, shell completions,
 * and the settings in JSON schemas. */
#pragma once

#include <stdio.h>

#include "cli/options.h"

/* Whether --help shows the option: with `all` any option of the command, else only common ones. */
bool help_shows(const struct command *command, const struct setting *option, bool all);
/* Texts of an option in the help of one command, or of all commands if `command` is NULL. Each function returns
 * `text`. Help: the help phrase without the parts for other commands. Default: " [default: ...]" or " [required]". */
enum { HELP_TEXT_BYTES = 640, HELP_DEFAULT_BYTES = 960 };
char *help_phrase(const struct setting *option, const struct command *command, char text[HELP_TEXT_BYTES]);
char *help_default(const struct setting *option, const struct command *command, char text[HELP_DEFAULT_BYTES]);
/* Whether the option belongs to the recipe, which fixes the bits of the result. */
bool help_is_recipe(const struct setting *option);
extern const char *const option_group_titles[GROUP_COUNT];

/* Print --help of the program, --help of a command (with `all`: --help-all), and docs/options.md. */
void help_print_program(FILE *out);
void help_print_command(const struct command *command, bool all, FILE *out);
void help_print_document(FILE *out);
/* Prints the settings of recipes and run.json to stdout as parts of a JSON schema, for scripts/formats.py. */
enum status help_print_schemas(void);

/* Prints the manual page ballast-COMMAND(1), or ballast(1) if `command` is NULL, in man(7) macros (manual.c). */
void manual_print(const struct command *command, FILE *out);

/* Prints the script that completes commands, options and values in "bash", "zsh" or "fish" (completion.c). Returns
 * BAD_INPUT for another shell. */
enum status completion_print(const char *shell, FILE *out);
