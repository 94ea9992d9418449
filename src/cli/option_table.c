#include "cli/option_table.h"

#include <stdio.h>
#include <string.h>

#include "model/model.h"

#define OWN_LIST(X)                                                                                                    \
    OPTION_LIST_INIT(X)                                                                                                \
    OPTION_LIST_RANKS(X) OPTION_LIST_PLAN(X) OPTION_LIST_RUN(X) OPTION_LIST_TEXT(X) OPTION_LIST_COMMON(X)
#define OWN_ROW(id, file_key, option, ...)                                                                             \
    static const struct setting own_##id = {.field = #id, .key = (file_key), .name = (option), __VA_ARGS__};
OWN_LIST(OWN_ROW)

const struct setting *const option_table[OPT_COUNT] = {
#define SETTING_ENTRY(id, ...) [OPT_##id] = &setting_table[SETTING_##id],
    SETTING_LIST(SETTING_ENTRY)
#define OWN_ENTRY(id, ...) [OPT_##id] = &own_##id,
        OWN_LIST(OWN_ENTRY)};

const char *const command_names[COMMAND_COUNT] = {
#define COMMAND_NAME(id, name) #name,
    COMMAND_LIST(COMMAND_NAME)
#undef COMMAND_NAME
};

const char *option_argument(const struct setting *option) {
    static const char *const of_types[] = {
        [SETTING_FLAG] = "", [SETTING_INT] = "N", [SETTING_FLOAT] = "X", [SETTING_SIZE] = "SIZE"};
    if (option->argument) return option->argument;
    return option->type == SETTING_CHOICE ? option->choices : of_types[option->type];
}

char *option_key(const struct setting *option, char key[64]) {
    snprintf(key, 64, "%s", option->config_key ? option->config_key : option->name);
    for (char *at = key; *at; at++)
        if (*at == '-') *at = '_';
    return key;
}

enum option_id option_find(unsigned commands, const char *name) {
    enum option_id other = OPT_COUNT;
    for (int i = 0; i < OPT_COUNT; i++) {
        if (strcmp(option_table[i]->name, name) != 0 || option_table[i]->commands == 0) continue;
        if (option_table[i]->commands & commands) return (enum option_id)i;
        other = (enum option_id)i;
    }
    return other;
}

enum option_id option_find_key(const char *key) {
    char own[64];
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_table[i]->commands != 0 && strcmp(option_key(option_table[i], own), key) == 0)
            return (enum option_id)i;
    return OPT_COUNT;
}

char *option_print_commands(const struct setting *option, char list[OPTION_COMMANDS_BYTES]) {
    size_t used = 0;
    list[0] = '\0';
    for (int i = 0; i < COMMAND_COUNT && used < OPTION_COMMANDS_BYTES; i++)
        if (option->commands & (1u << i))
            used +=
                (size_t)snprintf(list + used, OPTION_COMMANDS_BYTES - used, "%s%s", used ? ", " : "", command_names[i]);
    return list;
}
