/* Any --config file is refused or gives the options of each command. Seeds are files of keys and a run's run.json. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/terminal.h"
#include "cli/commands/command.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_as(const struct command *command, json_t *object) {
    struct options options = {.command = command};
    status_clear();
    enum status status = options_read_object("config.json", object, &options);
    BUG_IF(status != STATUS_OK && (status != STATUS_BAD_INPUT || status_message()[0] == '\0'), "no message");
    /* What an option is given keeps its type's rule. */
    for (int i = 0; i < OPT_COUNT && status == STATUS_OK; i++) {
        const struct setting *setting = option_table[i];
        const struct option_value *value = &options.values[i];
        if (value->source == SOURCE_NONE) continue;
        BUG_IF(setting->type == SETTING_INT &&
                   (value->value.int_value < setting->min || value->value.int_value > setting->max),
               "%s", setting->name);
        BUG_IF(setting->type == SETTING_TEXT && !value->value.text, "%s", setting->name);
    }
    options_free(&options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *object;
    if (json_parse_object("config.json", (const char *)data, bytes, &object) != STATUS_OK) return 0;
    for (int i = 0; i < COMMAND_COUNT; i++)
        read_as(commands[i], object);
    json_decref(object);
    return 0;
}
