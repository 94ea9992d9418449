/* The table of options: the settings (plan/setting_list.h) and the options that only the program has
 * (cli/option_list.h). It makes the parser, --help, the keys of a --config file, and docs/options.md.
 *
 * An option's key in a --config file is its name with "_" for "-". */
#ifndef BALLAST_CLI_OPTION_TABLE_H
#define BALLAST_CLI_OPTION_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/settings.h"

#include "cli/option_list.h"

enum option_id {
#define OPTION_ID(field, ...) OPT_##field,
    OPTION_LIST(OPTION_ID) OPT_COUNT
#undef OPTION_ID
};
extern const struct setting *const option_table[OPT_COUNT];
extern const char *const command_names[COMMAND_COUNT];

/* By long name: of these commands, or, if they have none of that name, of others; OPT_COUNT when there is none. */
enum option_id option_find(unsigned commands, const char *name);
/* By a config file's key. */
enum option_id option_find_key(const char *key);
enum { OPTION_COMMANDS_BYTES = 128 };
/* Writes the names of its commands, "train, resume"; returns `list`. */
char *option_print_commands(const struct setting *option, char list[OPTION_COMMANDS_BYTES]);
/* What help calls its value; "" of a flag. */
const char *option_argument(const struct setting *option);
/* Writes the key; returns `key`. */
char *option_key(const struct setting *option, char key[64]);

#endif
