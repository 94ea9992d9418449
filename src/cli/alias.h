/* Names that other trainers (transformers, Megatron-LM, torchtune, axolotl, llm.c) and Ballast 0.1 give the options.
 * Ballast refuses them with a hint that names its own option. */
#pragma once

#include "cli/options.h"

struct option_alias {
    enum option_id option; /* the option that takes the same value; OPT_COUNT: none, see the note */
    const char *names;     /* with "-", separated by blanks */
    const char *note;      /* how its value or its use differs; NULL: it does not */
    bool argument;         /* there is no option, since it is an argument; the note says which */
    bool renamed;          /* the one name is Ballast 0.1's */
};
extern const struct option_alias option_aliases[];
extern const int option_alias_count;

/* By a name as it is typed or a config's key ("_" is as good as "-"); one whose option serves the command if there is
 * one. NULL: nobody calls an option so. */
const struct option_alias *option_alias_find(const struct command *command, const char *name);

/* Whether a list of words, separated by blanks, has the word. */
bool option_alias_lists(const char *list, const char *name);

/* Adds what does it here as the hint, and returns `status`. `config`: the name is a config's key. */
enum status option_alias_hint(enum status status, const struct command *command, const struct option_alias *alias,
                              bool config);
