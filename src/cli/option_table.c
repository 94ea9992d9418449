#include "cli/option_table.h"

#include <stdio.h>
#include <string.h>

#include "model/model.h"

const struct option option_table[OPTION_COUNT] = {
#define OPTION_ROW(id, ...) [OPT_##id] = {__VA_ARGS__},
    OPTION_LIST(OPTION_ROW)
#undef OPTION_ROW
};

const char *const command_names[COMMAND_COUNT] = {
#define COMMAND_NAME(id, name) #name,
    COMMAND_LIST(COMMAND_NAME)
#undef COMMAND_NAME
};

const char *option_argument(const struct option *option) {
    static const char *const of_types[] = {
        [SETTING_FLAG] = "", [SETTING_INT] = "N", [SETTING_FLOAT] = "X", [SETTING_SIZE] = "SIZE"};
    return option->argument ? option->argument : of_types[option->setting->type];
}

char *option_key(const struct option *option, char key[64]) {
    snprintf(key, 64, "%s", option->key ? option->key : option->setting->name);
    for (char *at = key; *at; at++)
        if (*at == '-') *at = '_';
    return key;
}

enum option_id option_find(unsigned commands, const char *name) {
    enum option_id other = OPTION_COUNT;
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (strcmp(option_table[i].setting->name, name) != 0) continue;
        if (option_table[i].commands & commands) return (enum option_id)i;
        other = (enum option_id)i;
    }
    return other;
}

enum option_id option_find_key(const char *key) {
    char own[64];
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strcmp(option_key(&option_table[i], own), key) == 0) return (enum option_id)i;
    return OPTION_COUNT;
}

char *option_print_commands(const struct option *option, char list[OPTION_COMMANDS_BYTES]) {
    size_t used = 0;
    list[0] = '\0';
    for (int i = 0; i < COMMAND_COUNT && used < OPTION_COMMANDS_BYTES; i++)
        if (option->commands & (1u << i))
            used +=
                (size_t)snprintf(list + used, OPTION_COMMANDS_BYTES - used, "%s%s", used ? ", " : "", command_names[i]);
    return list;
}
