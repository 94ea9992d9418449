/* Other trainers' names for options are refused with a hint that names Ballast's option, on the command line and in
 * a config file. */
#include <stdio.h>
#include <string.h>

#include "cli/commands/command.h"
#include "cli/options.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { NAME_BYTES = 64 };

/* The next name of a list; false at its end. */
static bool next_name(const char **list, char name[NAME_BYTES]) {
    size_t length = strcspn(*list, " ");
    assert_true(length < NAME_BYTES);
    snprintf(name, NAME_BYTES, "%.*s", (int)length, *list);
    *list += length + strspn(*list + length, " ");
    return length > 0;
}

/* Every option that a note speaks of exists. */
static void check_note(const char *note) {
    for (const char *at = note ? strstr(note, "--") : NULL; at; at = strstr(at + 2, "--")) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)strspn(at + 2, "abcdefghijklmnopqrstuvwxyz-0123456789"), at + 2);
        if (option_find(COMMANDS_ALL, name) == OPT_COUNT) fail_msg("--%s is no option: %s", name, note);
    }
}

/* Each name leads to its row for the commands that the row serves, and is not what an option of theirs is called. */
static void table_is_whole(void **state) {
    (void)state;
    for (int i = 0; i < option_alias_count; i++) {
        const struct option_alias *alias = &option_aliases[i];
        const char *list = alias->names;
        char name[NAME_BYTES];
        check_note(alias->note);
        assert_true(alias->option < OPT_COUNT || alias->note);
        while (next_name(&list, name)) {
            unsigned served = alias->option < OPT_COUNT ? option_table[alias->option]->commands : 0;
            enum option_id own = option_find(served, name);
            if (own < OPT_COUNT && (option_table[own]->commands & served))
                fail_msg("--%s is an option where it is an alias", name);
            for (int c = 0; c < COMMAND_COUNT; c++)
                if ((served & (1u << c)) && option_alias_find(commands[c], name) != alias)
                    fail_msg("--%s is there twice for %s", name, command_names[c]);
        }
    }
}

static const struct {
    const struct command *command;
    const char *name, *hint;
} cases[] = {
    {&command_train, "grain", "--grain was renamed to --micro-batch in 0.2.0"},
    {&command_train, "grains_per_pass", "--grains-per-pass was renamed to --micro-batches-per-wave in 0.2.0"},
    {&command_plan, "tensor", "--tensor was renamed to --tensor-parallel in 0.2.0"},
    {&command_train, "sequence", "--sequence was renamed to --sequence-parallel in 0.2.0"},
    {&command_eval, "stages", "--stages was renamed to --pipeline-parallel in 0.2.0"},
    {&command_train, "interleave", "--interleave was renamed to --virtual-stages in 0.2.0"},
    {&command_plan, "master", "--master was renamed to --master-weights in 0.2.0"},
    {&command_init, "base-dtype", "--base-dtype was renamed to --quantize-base in 0.2.0"},
    {&command_report, "beside", "--beside was renamed to --compare in 0.2.0"},
    {&command_train, "micro_batch_size", "--micro-batch N does that: --batch is the global batch"},
    {&command_train, "train_micro_batch_size_per_gpu", "--micro-batch N does that"},
    {&command_train, "global-batch-size", "--batch N does that: sequences per step over all ranks"},
    {&command_train, "pipeline_model_parallel_size", "--pipeline-parallel N|auto does that"},
    {&command_train, "virtual-pipeline-model-parallel-size", "--virtual-stages N does that"},
    {&command_train, "epoch", "--epochs X does that"},
    {&command_train, "qlora", "--quantize-base none|nf4|int8|mxfp4 does that: nf4, with --lora"},
    {&command_train, "load_in_8bit", "--quantize-base none|nf4|int8|mxfp4 does that: int8"},
    {&command_train, "lora-dropout", "adapters are trained without dropout"},
    {&command_train, "eval-strategy", "--valid-every N does that"},
    {&command_train, "deepspeed", "--partition P does that: ZeRO stages 1, 2 and 3 are zero1, zero2 and zero3"},
    {&command_train, "fsdp", "FULL_SHARD is zero3, SHARD_GRAD_OP zero2"},
    {&command_train, "hybrid-shard", "--partition P does that: mics:N"},
    {&command_train, "use-distributed-optimizer", "--partition P does that: zero1"},
    {&command_train, "num-microbatches", "no option is needed: --batch is the global batch"},
    {&command_train, "gpus", "--ranks N does that: processes on all nodes, one per GPU"},
    {&command_train, "gradient_checkpointing", "no option is needed: the plan decides what to recompute"},
    {&command_train, "recompute-granularity", "no option is needed"},
    {&command_train, "recompute-modules", "no option is needed"},
    {&command_train, "cpu-offload", "--host-memory SIZE and --disk DIR"},
    {&command_train, "offload-optimizer", "--host-memory SIZE and --disk DIR"},
    {&command_train, "num-layers-per-virtual-pipeline-stage", "virtual stages per rank, not of layers"},
    {&command_train, "chat-template", "the template is the model's"},
    {&command_train, "target_modules", "--lora RANK,ALPHA,TARGETS does that"},
    {&command_train, "use-dora", "training has plain LoRA"},
    {&command_train, "bnb_4bit_quant_type", "--quantize-base"},
    {&command_train, "dataset-text-field", "--columns FIELD=KEY,... does that"},
    {&command_train, "tensor-model-parallel-size", "--tensor-parallel N|auto does that: with --ranks N"},
    {&command_train, "nproc_per_node", "--ranks N does that"},
    {&command_train, "load-best-model-at-end", "--keep 0 keeps all"},
    {&command_resume, "save-strategy", "--save-every N does that"},
    {&command_chat, "system-prompt", "--system TEXT does that"},
    {&command_generate, "num-beams", "there is no beam search"},
    {&command_init, "num-query-groups", "--kv-heads N does that"},
    {&command_train, "num-train-epochs", "--epochs X does that"},
    {&command_train, "max-steps", "--steps N does that"},
    {&command_train, "batch-size", "--batch N does that: sequences per step over all ranks"},
    {&command_train, "per_device_train_batch_size", "--micro-batch N does that"},
    {&command_train, "gradient_accumulation_steps", "no option is needed: --batch is the global batch"},
    {&command_train, "learning-rate", "--lr X does that"},
    {&command_train, "seq-len", "--seq N does that"},
    {&command_train, "max_seq_length", "--seq N does that"},
    {&command_train, "context", "--seq N does that"},
    {&command_train, "warmup", "--warmup-steps N does that"},
    {&command_train, "output-dir", "--output PATH does that"},
    {&command_train, "model", "first argument, without an option: ballast train MODEL_DIR DATA... -o RUN_DIR"},
    {&command_train, "data", "ballast train MODEL_DIR DATA... -o RUN_DIR"},
    {&command_train, "eval-every", "--valid-every N does that"},
    {&command_train, "save-steps", "--save-every N does that"},
    {&command_train, "bf16", "--dtype bf16|fp32 does that: bf16"},
    {&command_train, "fp16", "there is no training in fp16"},
    {&command_train, "lora_r", "--lora RANK,ALPHA,TARGETS does that"},
    {&command_train, "Max_Grad_Norm", "--clip-norm X does that"},
    {&command_train, "resume_from_checkpoint", "ballast resume RUN_DIR"},
    {&command_train, "max-new-tokens", "--tokens N does that, in generate"},
    {&command_plan, "max-steps", "--steps N does that, in train, resume"},
    {&command_generate, "max-new-tokens", "--tokens N does that"},
    {&command_init, "context-length", "--context N does that"},
    {&command_init, "seq", "--context N does that"},
    {&command_init, "n_layer", "--layers N does that"},
};
enum { CASES = sizeof cases / sizeof *cases };

static void expect_refused(const struct command *command, char **arguments, int count, const char *hint) {
    struct options options;
    assert_int_equal(options_parse(command, count, arguments, &options), STATUS_BAD_INPUT);
    options_free(&options);
    if (!strstr(status_hint_text(), hint)) fail_msg("%s: hint '%s' lacks '%s'", arguments[0], status_hint_text(), hint);
}

static void aliases_are_reported_on_the_command_line(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        char argument[NAME_BYTES + 2], value[] = "3";
        snprintf(argument, sizeof argument, "--%s", cases[i].name);
        expect_refused(cases[i].command, (char *[]){argument, value}, 2, cases[i].hint);
    }
}

static void aliases_are_reported_in_a_config(void **state) {
    char path[600], text[128], option[] = "--config";
    snprintf(path, sizeof path, "%s/config.json", (const char *)*state);
    static const struct {
        const char *key, *hint;
    } keys[] = {{"max_steps", "\"steps\" does that"},
                {"num_train_epochs", "\"epochs\" does that"},
                {"per_device_train_batch_size", "\"micro_batch\" does that"},
                {"global_batch_size", "\"batch\" does that"},
                {"grain", "\"grain\" was renamed to \"micro_batch\" in 0.2.0"},
                {"base_dtype", "\"base_dtype\" was renamed to \"quantize_base\" in 0.2.0"},
                {"stages", "\"stages\" was renamed to \"pipeline_parallel\" in 0.2.0"},
                {"learning-rate", "\"lr\" does that"},
                {"output_dir", "\"output\" does that"},
                {"bf16", "\"dtype\" does that"},
                {"gradient_accumulation_steps", "no option is needed"},
                {"model_name_or_path", "ballast train MODEL_DIR"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(text, sizeof text, "{\"%s\": 3}", keys[i].key);
        temp_write_text(path, text);
        expect_refused(&command_train, (char *[]){option, path}, 2, keys[i].hint);
        assert_non_null(strstr(status_message(), keys[i].key));
    }
}

static void a_config_of_another_format_is_reported(void **state) {
    static const struct {
        const char *name, *text, *format;
    } files[] = {{"c.yaml", "steps: 100\n", "YAML"}, {"c.yml", "{}", "YAML"}, {"c.toml", "steps = 100\n", "TOML"}};
    char path[600], option[] = "--config";
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", (const char *)*state, files[i].name);
        temp_write_text(path, files[i].text);
        expect_refused(&command_train, (char *[]){option, path}, 2, "{\"steps\": 1000, \"lr\": 3e-4}");
        assert_non_null(strstr(status_message(), files[i].format));
        assert_non_null(strstr(status_message(), files[i].name));
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)
int main(void) {
    const struct CMUnitTest tests[] = {CASE(table_is_whole), CASE(aliases_are_reported_on_the_command_line),
                                       CASE(aliases_are_reported_in_a_config),
                                       CASE(a_config_of_another_format_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
