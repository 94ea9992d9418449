/* The table of options, and the parser and help generated from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/terminal.h"
#include "cli/commands/command.h"
#include "cli/help.h"
#include "cli/step_options.h"
#include "model/model.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "text/tokenizer/tokenizer.h"

enum { ARGUMENTS_MAX = 32 };

static enum status parse(const struct command *command, struct options *out, const char *const *arguments) {
    char *list[ARGUMENTS_MAX];
    int count = 0;
    for (; arguments[count]; count++)
        list[count] = (char *)(uintptr_t)arguments[count];
    return options_parse(command, count, list, out);
}
#define PARSE(command, out, ...) parse(command, out, (const char *const[]){__VA_ARGS__, NULL})

static void refuse(const struct command *command, const char *text, const char *hint, const char *const *arguments) {
    struct options options;
    assert_int_equal(parse(command, &options, arguments), STATUS_BAD_INPUT);
    options_free(&options);
    if (!strstr(status_message(), text)) fail_msg("'%s' lacks '%s'", status_message(), text);
    if (hint && !strstr(status_hint_text(), hint)) fail_msg("hint '%s' lacks '%s'", status_hint_text(), hint);
}
#define REFUSE(command, text, hint, ...) refuse(command, text, hint, (const char *const[]){__VA_ARGS__, NULL})

static void table_is_whole(void **state) {
    (void)state;
    char key[64];
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct setting *option = option_table[i];
        if (i == OPT_disk_bytes) continue; /* comes with --disk */
        assert_non_null(option->name);
        assert_non_null(option->help);
        if (option->type != SETTING_FLAG) assert_true(option_argument(option)[0] != 0);
        assert_true(option->commands != 0 && (option->commands & ~(unsigned)COMMANDS_ALL) == 0);
        for (int c = 0; c < COMMAND_COUNT; c++) /* a command's names are unique */
            if (option->commands & (1u << c)) assert_int_equal(option_find(1u << c, option->name), i);
        assert_int_equal(option_find_key(option_key(option, key)), i);
        if (option->type == SETTING_CHOICE) assert_non_null(option->choices);
        if (option->excludes) assert_true(option_find(option->commands, option->excludes) < OPT_COUNT);
        if (option->type == SETTING_INT) assert_true(option->min <= option->max);
        struct option_value value = {0};
        if (option->fallback)
            assert_int_equal(option_value_set(option, option->name, option->fallback, &value), STATUS_OK);
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        assert_string_equal(commands[i]->name, command_names[i]);
        assert_int_equal(commands[i]->bit, 1 << i);
    }
}

static void values_of_each_type(void **state) {
    (void)state;
    struct options options;
    assert_int_equal(PARSE(&command_train, &options, "model", "--batch", "4", "data", "--lr=1e-3", "-o", "run",
                           "--device-memory", "1.5G", "--dtype", "fp32", "--quiet", "--valid", "a", "--valid", "b",
                           "--", "--odd"),
                     STATUS_OK);
    assert_int_equal(options_int(&options, OPT_batch), 4);
    assert_true(options_float(&options, OPT_learning_rate) > 0.00099 &&
                options_float(&options, OPT_learning_rate) < 0.00101);
    assert_int_equal(options_int(&options, OPT_device_bytes), 1610612736);
    assert_string_equal(options_text(&options, OPT_dtype), "fp32");
    assert_string_equal(options_text(&options, OPT_output), "run");
    assert_true(options_flag(&options, OPT_quiet));
    assert_int_equal(options.values[OPT_valid_paths].texts.count, 2);
    assert_int_equal(options.arguments.count, 3);
    assert_string_equal(options.arguments.items[2], "--odd");
    assert_int_equal(options_int(&options, OPT_save_every), 100); /* a default */
    assert_false(options_given(&options, OPT_save_every));
    assert_true(options_given(&options, OPT_batch));
    options_free(&options);
}

static void bad_values_name_option_and_rule(void **state) {
    (void)state;
    const struct command *plan = &command_plan;
    REFUSE(plan, "--batch: 0 is not legal", "must be 1 to", "m", "--batch", "0");
    REFUSE(plan, "--batch: -3 is not legal", NULL, "m", "--batch", "-3");
    REFUSE(plan, "--batch: '4x' is not a whole number", NULL, "m", "--batch", "4x");
    REFUSE(plan, "--batch: '' is not", NULL, "m", "--batch=");
    REFUSE(plan, "--batch: ' 4' is not", NULL, "m", "--batch", " 4");
    REFUSE(plan, "--batch: '4.5' is not", NULL, "m", "--batch", "4.5");
    REFUSE(plan, "--batch: 99999999999999999999 is not legal", NULL, "m", "--batch", "99999999999999999999");
    REFUSE(plan, "--seed: 9223372036854775808 is not legal", NULL, "m", "--seed", "9223372036854775808");
    REFUSE(plan, "--seq: needs a value", NULL, "m", "--seq");
    REFUSE(plan, "--seq: needs a value", "--seq=VALUE", "m", "--seq", "--json");
    REFUSE(plan, "--device-memory: 0 is not legal", NULL, "m", "--device-memory", "0");
    REFUSE(plan, "--device-memory: '-1G' is not a size", NULL, "m", "--device-memory", "-1G");
    REFUSE(plan, "--dtype: 'fp16' is none of bf16|fp32", "or bf16", "m", "--dtype", "fp16");
    REFUSE(plan, "--dtype: 'fp3' is none of", "or bf16", "m", "--dtype", "fp3");
    REFUSE(plan, "--epsilon: 0 is not legal", "must be at least 1e-30", "m", "--epsilon", "0");
    REFUSE(plan, "--beta1: 'nan' is not a number", NULL, "m", "--beta1", "nan");
    REFUSE(plan, "--beta1: '0x1p-2' is not a number", NULL, "m", "--beta1", "0x1p-2");
    REFUSE(plan, "--clip-norm: 1e999 is not legal", NULL, "m", "--clip-norm", "1e999");
    REFUSE(plan, "--json: 'maybe' is neither", NULL, "m", "--json=maybe");
    REFUSE(plan, "--batch: given twice", NULL, "m", "--batch", "4", "--batch", "5");
    REFUSE(plan, "--output: must not be empty", NULL, "m", "-o", "");
    REFUSE(&command_train, "--lr: 0 is not legal", NULL, "m", "d", "--lr", "0");
    REFUSE(&command_train, "--steps: 0 is not legal", NULL, "m", "d", "--steps", "0");
    REFUSE(&command_train, "--lr: -1 is not legal", NULL, "m", "d", "--lr", "-1");
}

static void unknown_names_get_a_hint(void **state) {
    (void)state;
    REFUSE(&command_plan, "--bacth: unknown option", "--batch", "m", "--bacth", "3");
    REFUSE(&command_plan, "--device-mem: unknown option", "--device-memory", "m", "--device-mem", "3");
    REFUSE(&command_plan, "--xyzzyxyzzy: unknown option", "ballast plan --help", "m", "--xyzzyxyzzy");
    REFUSE(&command_plan, "-x: unknown option", NULL, "m", "-x");
    REFUSE(&command_eval, "--lr: not an option of `ballast eval`, but of train", NULL, "m", "d", "--lr", "1");
    REFUSE(&command_plan, "'b' is one argument too many", "usage: ballast plan", "a", "b");
    REFUSE(&command_train, "ballast train: argument 2 is empty", "shell variable unset", "model", "", "-o", "run");
    REFUSE(&command_plan, "needs MODEL_DIR", "usage: ballast plan", "--json");
    REFUSE(&command_init, "--arch FAMILY is missing", NULL, "m");
}

static void sequence_parallel_needs_no_value(void **state) {
    (void)state;
    static const struct {
        const char *arguments[3], *value;
    } cases[] = {{{"--sequence-parallel", "m"}, "on"},
                 {{"--sequence-parallel", "on", "m"}, "on"},
                 {{"--sequence-parallel", "off", "m"}, "off"},
                 {{"m", "--sequence-parallel"}, "on"},
                 {{"--sequence-parallel=off", "m"}, "off"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct options options;
        const char *const arguments[] = {cases[i].arguments[0], cases[i].arguments[1], cases[i].arguments[2], NULL};
        assert_int_equal(parse(&command_plan, &options, arguments), STATUS_OK);
        assert_string_equal(options_text(&options, OPT_sequence_parallel), cases[i].value);
        assert_int_equal(options.arguments.count, 1);
        options_free(&options);
    }
}

static void names_that_are_none_are_refused(void **state) {
    (void)state;
    REFUSE(&command_plan, "--collectives: 'tree' is none of hierarchical|flat", NULL, "m", "--collectives", "tree");
    REFUSE(&command_resume, "--partition: needs a value", NULL, "m", "--partition");
    REFUSE(&command_init, "--arch: 'bert' is none of gemma2|gemma3_text|", NULL, "m", "--arch", "bert");
}

static void arch_has_every_family(void **state) {
    (void)state;
    char all[256] = "";
    for (int i = 0; i < model_family_count; i++) {
        strcat(all, i ? "|" : "");
        strcat(all, model_families[i]->name);
        assert_non_null(strstr(option_table[OPT_arch]->details, model_families[i]->name));
    }
    assert_string_equal(option_table[OPT_arch]->choices, all);
}

static const char *write_config(const char *folder, const char *text) {
    const char *path = temp_path(folder, "run.json");
    temp_write_text(path, text);
    return path;
}

static void command_line_wins_over_config_over_default(void **state) {
    struct options options;
    const char *path =
        write_config(*state, "{\"batch\": 16, \"lr\": 0.5, \"keep\": 7, \"quiet\": true, \"valid\": [\"x\", \"y\"],"
                             " \"device_memory\": \"2G\", \"output\": \"from-file\", \"beta1\": 0.25}");
    assert_int_equal(PARSE(&command_train, &options, "m", "d", "--config", path, "--batch", "4", "--quiet=false"),
                     STATUS_OK);
    assert_int_equal(options_int(&options, OPT_batch), 4);
    assert_true(options_float(&options, OPT_learning_rate) > 0.49 && options_float(&options, OPT_learning_rate) < 0.51);
    assert_int_equal(options_int(&options, OPT_keep), 7);
    assert_false(options_flag(&options, OPT_quiet));
    assert_int_equal(options.values[OPT_valid_paths].texts.count, 2);
    assert_int_equal(options_int(&options, OPT_device_bytes), (int64_t)2 << 30);
    assert_string_equal(options_text(&options, OPT_output), "from-file");
    assert_int_equal(options_int(&options, OPT_save_every), 100);
    options_free(&options);
}

/* --epochs and --steps say the same in two ways. */
static void options_that_exclude_each_other(void **state) {
    struct options options;
    const char *config = write_config(*state, "{\"steps\": 20}");
    REFUSE(&command_train, "--epochs and --steps: only one", NULL, "m", "d", "--epochs", "2", "--steps", "3");
    assert_int_equal(PARSE(&command_train, &options, "m", "d", "-o", "run", "--config", config, "--epochs", "1.5"),
                     STATUS_OK);
    assert_true(options_float(&options, OPT_epochs) > 1 && !options_given(&options, OPT_steps));
    options_free(&options);
    config = write_config(*state, "{\"epochs\": 2}");
    assert_int_equal(PARSE(&command_train, &options, "m", "d", "-o", "run", "--config", config, "--steps", "3"),
                     STATUS_OK);
    assert_true(options_int(&options, OPT_steps) == 3 && !options_given(&options, OPT_epochs));
    options_free(&options);
    config = write_config(*state, "{\"epochs\": 2, \"steps\": 3}");
    REFUSE(&command_train, "--epochs and --steps: only one", NULL, "m", "d", "--config", config);
}

static void bad_config_names_file_and_key(void **state) {
    static const char *const bad[][2] = {
        {"{\"bacth\": 4}", "run.json: bacth: unknown key"},
        {"{\"save-every\": 4}", "run.json: save-every: unknown key"},
        {"{\"config\": \"x\"}", "run.json: config: unknown key"},
        {"{\"batch\": 0}", "run.json: batch: 0 is not legal"},
        {"{\"batch\": \"4\"}", "run.json: batch: has the wrong type"},
        {"{\"batch\": 4.5}", "run.json: batch: has the wrong type"},
        {"{\"batch\": null}", "run.json: batch: has the wrong type"},
        {"{\"lr\": true}", "run.json: lr: has the wrong type"},
        {"{\"quiet\": 1}", "run.json: quiet: has the wrong type"},
        {"{\"dtype\": \"int8\"}", "run.json: dtype: 'int8' is none of"},
        {"{\"device_memory\": \"big\"}", "run.json: device_memory: 'big' is not a size"},
        {"{\"valid\": [1]}", "run.json: valid: has the wrong type"},
        {"{\"partition\": 8}", "run.json: partition: has the wrong type"},
        {"[]", "run.json: must hold a JSON object"},
        {"{\"batch\": 4, \"batch\": 5}", "run.json: not valid JSON"},
        {"", "run.json: not valid JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSE(&command_train, bad[i][1], NULL, "m", "d", "--config", write_config(*state, bad[i][0]));
    REFUSE(&command_train, "did you mean", NULL, "m", "d", "--config", "/nonexistent/did you mean");
    REFUSE(&command_train, "bacth", "\"batch\"", "m", "d", "--config", write_config(*state, "{\"bacth\": 4}"));
}

static void one_config_may_serve_several_commands(void **state) {
    struct options options;
    const char *path = write_config(*state, "{\"batch\": 16, \"steps\": 3}");
    log_set_quiet(true);
    assert_int_equal(PARSE(&command_plan, &options, "m", "--config", path), STATUS_OK);
    assert_int_equal(options_int(&options, OPT_batch), 16);
    options_free(&options);
    log_set_quiet(false);
}

__attribute__((noinline)) /* else gcc 12 warns of a dangling pointer to its text */
static char *
printed(void (*print)(const void *payload, FILE *out), const void *payload) {
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    print(payload, out);
    fclose(out);
    return text;
}
static void print_command(const void *payload, FILE *out) { help_print_command(payload, true, out); }
static void print_common(const void *payload, FILE *out) { help_print_command(payload, false, out); }
static void print_document(const void *payload, FILE *out) {
    (void)payload;
    help_print_document(out);
}

/* Blanks and line ends become one blank, so that it does not matter where lines are broken. */
static void fold_blanks(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        char letter = *from == '\n' ? ' ' : *from;
        if (letter != ' ' || to == text || to[-1] != ' ') *to++ = letter;
    }
    *to = '\0';
}

/* Whether the folded help of a command has the option, and with it a default: the setting's own, or one in words. */
static bool help_has(const char *text, const struct command *command, const struct setting *option) {
    char name[80], expected[80];
    bool plain = option->fallback && !option->computed && command->bit != COMMAND_RESUME;
    const char *value = plain ? option->fallback : "";
    snprintf(name, sizeof name, "--%s ", option->name);
    snprintf(expected, sizeof expected, "[%s%s", option->required & command->bit ? "required" : "default: ", value);
    const char *at = strstr(text, name);
    return at && strstr(at, expected);
}

static void help_shows_every_default(void **state) {
    (void)state;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        char *text = printed(print_command, commands[i]);
        fold_blanks(text);
        for (int o = 0; o < OPT_COUNT; o++) {
            const struct setting *option = option_table[o];
            if ((option->commands & commands[i]->bit) && !help_has(text, commands[i], option))
                fail_msg("help of %s: --%s or its default is missing", commands[i]->name, option->name);
        }
        free(text);
    }
}

/* What an option means for another command is left out. */
static void help_is_of_the_command(void **state) {
    (void)state;
    static const struct {
        const struct command *command;
        const char *text;
    } cases[] = {{&command_merge, "--output PATH Directory of the model, new or empty [required]"},
                 {&command_train, "--output PATH Directory of the run, new or empty [required]"},
                 {&command_plan, "--output PATH Plan file to write [default: none]"},
                 {&command_train, "--lr X Peak learning rate [default: 3e-4]"},
                 {&command_resume, "--lr X Peak learning rate [default: the run's]"},
                 {&command_train, "Tokens per sequence [default: 1024, at most the model's context]"},
                 {&command_plan, "[default: 8, or 1 with --for generate]"},
                 {&command_resume, "Tokens per sequence [default: the run's]"},
                 {&command_init, "Data type of the weights [default: fp32]"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = printed(print_command, cases[i].command);
        fold_blanks(text);
        if (!strstr(text, cases[i].text)) fail_msg("help of %s: %s", cases[i].command->name, text);
        free(text);
    }
}

/* --help has a line or two of each option, and of commands with many options only those that people use. */
static void help_is_short(void **state) {
    (void)state;
    enum { COMMON_MAX = 25, LINES_MAX = 2 };
    for (int i = 0; i < COMMAND_COUNT; i++) {
        char *text = printed(print_common, commands[i]), *all = printed(print_command, commands[i]);
        int options = 0, lines = 0;
        for (char *line = strtok(strstr(all, "\nexample:"), "\n"); line; line = strtok(NULL, "\n")) {
            bool begins = strncmp(line, "  -", 3) == 0, goes_on = strncmp(line, "      ", 6) == 0;
            if (begins) lines = strlen(line) > 30 && line[29] == ' ' && line[30] != ' ' ? 1 : 0;
            if (goes_on && ++lines > LINES_MAX)
                fail_msg("help of %s: more than %d lines: %s", commands[i]->name, LINES_MAX, line);
        }
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            options += strncmp(line, "  -", 3) == 0;
        if (options > COMMON_MAX) fail_msg("help of %s: %d options", commands[i]->name, options);
        free(text);
        free(all);
    }
}

static void print_models(const void *payload, FILE *out) {
    (void)payload;
    assert_int_equal(model_print_document(out), STATUS_OK);
}

static void print_tokenizers(const void *payload, FILE *out) {
    (void)payload;
    tokenizer_print_document(out);
}

static void expect_up_to_date(const char *name, void (*print)(const void *payload, FILE *out)) {
    char path[512], *committed, *text = printed(print, NULL);
    size_t bytes;
    snprintf(path, sizeof path, BALLAST_SOURCE "/docs/%s.md", name);
    assert_int_equal(file_read(path, 1 << 20, &committed, &bytes), STATUS_OK);
    if (strcmp(text, committed) != 0) fail_msg("run: ballast help %s > docs/%s.md", name, name);
    mem_free(committed);
    free(text);
}

static void documents_are_up_to_date(void **state) {
    (void)state;
    expect_up_to_date("options", print_document);
    expect_up_to_date("models", print_models);
    expect_up_to_date("tokenizers", print_tokenizers);
}

/* What the command line takes where nothing is given is what training takes without a command line. */
static void parser_and_training_have_the_same_defaults(void **state) {
    (void)state;
    struct train_options training;
    train_options_init(&training);
    struct options options;
    assert_int_equal(PARSE(&command_train, &options, "m", "d", "-o", "run"), STATUS_OK);
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &setting_table[id];
        enum option_id option = option_find(COMMAND_TRAIN, setting->name);
        struct setting_value value;
        if (!settings_have(&train_settings, id) || settings_have(&recipe_settings, id) || !setting->fallback) continue;
        settings_load(&train_settings, &training, id, &value);
        if (!setting_values_equal(setting, &options.values[option].value, &value))
            fail_msg("%s differs", setting->name);
    }
    const struct settings_given nothing = {0};
    assert_memory_equal(&training.given, &nothing, sizeof nothing);
    options_free(&options);
}

static enum status parse_with_config(void *payload) {
    struct options options;
    enum status status = PARSE(&command_train, &options, "m", "d", "-o", "run", "--config", payload, "--valid", "v");
    options_free(&options);
    return status;
}

static void each_allocation_may_fail(void **state) {
    char path[4096];
    snprintf(path, sizeof path, "%s", write_config(*state, "{\"batch\": 16, \"lr\": 0.5, \"valid\": [\"x\", \"y\"]}"));
    assert_true(fault_sweep(FAULT_ALLOCATE, true, parse_with_config, path) >= 4);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)
    const struct CMUnitTest tests[] = {
        CASE(table_is_whole),
        CASE(values_of_each_type),
        CASE(bad_values_name_option_and_rule),
        CASE(unknown_names_get_a_hint),
        CASE(sequence_parallel_needs_no_value),
        CASE(names_that_are_none_are_refused),
        CASE(arch_has_every_family),
        CASE(command_line_wins_over_config_over_default),
        CASE(options_that_exclude_each_other),
        CASE(bad_config_names_file_and_key),
        CASE(one_config_may_serve_several_commands),
        CASE(help_shows_every_default),
        CASE(help_is_of_the_command),
        CASE(help_is_short),
        CASE(documents_are_up_to_date),
        CASE(parser_and_training_have_the_same_defaults),
        CASE(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
