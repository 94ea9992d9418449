/* Ballast warns once about each option without an effect, and only about those. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/commands/command.h"
#include "cli/options.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "train/train.h"

enum { ARGUMENTS_MAX = 24 };

/* The info with these training options. */
#define RUN_OF(...)                                                                                                    \
    {                                                                                                                  \
        .options = &(struct train_options) { __VA_ARGS__ }                                                             \
    }

/* Command lines, and whether the option does nothing there; infos stand for the data. */
static const struct {
    enum option_id option;
    const struct command *command;
    const char *idle, *effective; /* the options, separated by blanks */
    struct train_info idle_info, effective_info;
} cases[] = {
    {OPT_valid_paths, &command_train, "--valid v --valid-every 0", "--valid v", RUN_OF(.valid_every = 0),
     RUN_OF(.valid_every = 100)},
    {OPT_valid_batches, &command_train, "--valid-batches 3 --valid-every 0", "--valid-batches 3",
     RUN_OF(.valid_every = 0), RUN_OF(.valid_every = 100)},
    {OPT_sample_prompt, &command_train, "--sample-prompt x", "--sample-prompt x --sample-every 5",
     RUN_OF(.sample_every = 0), RUN_OF(.sample_every = 5)},
    {OPT_sample_tokens, &command_train, "--sample-tokens 5", "--sample-tokens 5 --sample-every 5",
     RUN_OF(.sample_every = 0), RUN_OF(.sample_every = 5)},
    {OPT_keep, &command_train, "--keep 3 --save-every 0", "--keep 3", RUN_OF(.save_every = 0),
     RUN_OF(.save_every = 100)},
    {OPT_wsd_decay_fraction, &command_train, "--wsd-decay-fraction 0.1", "--wsd-decay-fraction 0.1 --schedule wsd",
     RUN_OF(.schedule = LR_SCHEDULE_LINEAR), RUN_OF(.schedule = LR_SCHEDULE_WSD)},
    {OPT_min_lr_fraction, &command_train, "--min-lr-fraction 0.1 --schedule constant", "--min-lr-fraction 0.1",
     RUN_OF(.schedule = LR_SCHEDULE_CONSTANT), RUN_OF(.schedule = LR_SCHEDULE_LINEAR)},
    {OPT_schedule_steps, &command_train, "--schedule-steps 9 --schedule constant --warmup-steps 1",
     "--schedule-steps 9 --schedule constant", RUN_OF(.schedule = LR_SCHEDULE_CONSTANT),
     RUN_OF(.schedule = LR_SCHEDULE_CONSTANT)},
    {OPT_learning_rate, &command_resume, "--lr 1", "--lr 1", {.done = 5, .steps = 5}, {.done = 4, .steps = 5}},
    {OPT_top_k, &command_generate, "--top-k 5 --temperature 0", "--top-k 5 --temperature 0.5", {0}, {0}},
    {OPT_top_p, &command_generate, "--top-p 0.5 --temperature 0", "--top-p 0.5", {0}, {0}},
    {OPT_seed, &command_generate, "--seed 5 --temperature 0", "--seed 5", {0}, {0}},
    {OPT_virtual_stages, &command_plan, "--virtual-stages 2", "--virtual-stages 2 --ranks 2", {0}, {0}},
    {OPT_partition, &command_plan, "--partition zero1", "--partition zero1 --ranks 2", {0}, {0}},
    {OPT_collectives, &command_plan, "--collectives flat --ranks 1", "--collectives flat --ranks 2", {0}, {0}},
    {OPT_layout, &command_plan, "--layout solver", "--layout solver --ranks 2", {0}, {0}},
    {OPT_price, &command_plan, "--price 2", "--price 2 --devices 8", {0}, {0}},
    {OPT_train_tokens, &command_plan, "--tokens 1T", "--tokens 1T --target-days 9", {0}, {0}},
    {OPT_page, &command_plan, "--page x.html", "--page x.html --devices 8", {0}, {0}},
    {OPT_svg, &command_plan, "--svg x", "--svg x --devices 8", {0}, {0}},
    {OPT_mtbf, &command_plan, "--mtbf 9", "--mtbf 9 --devices 8", {0}, {0}},
    {OPT_checkpoint_time, &command_plan, "--checkpoint-time 9", "--checkpoint-time 9 --mtbf 9 --devices 8", {0}, {0}},
    {OPT_restart_time, &command_plan, "--restart-time 9", "--restart-time 9 --mtbf 9 --devices 8", {0}, {0}},
    {OPT_beta1, &command_plan, "--beta1 0.5 --for generate", "--beta1 0.5", {0}, {0}},
    {OPT_beta2, &command_plan, "--beta2 0.5 --for generate", "--beta2 0.5", {0}, {0}},
    {OPT_epsilon, &command_plan, "--epsilon 0.5 --for generate", "--epsilon 0.5", {0}, {0}},
    {OPT_weight_decay, &command_plan, "--weight-decay 0.5 --for generate", "--weight-decay 0.5", {0}, {0}},
    {OPT_clip_norm, &command_plan, "--clip-norm 0.5 --for generate", "--clip-norm 0.5", {0}, {0}},
    {OPT_freeze, &command_plan, "--freeze x --for generate", "--freeze x", {0}, {0}},
    {OPT_beta2, &command_plan, "--beta2 0.5 --optimizer sgd", "--beta2 0.5 --optimizer lion", {0}, {0}},
    {OPT_epsilon, &command_plan, "--epsilon 0.5 --optimizer lion", "--epsilon 0.5 --optimizer adamw", {0}, {0}},
    {OPT_loss, &command_plan, "--loss dpo --for generate", "--loss dpo", {0}, {0}},
    {OPT_dpo_beta, &command_train, "--dpo-beta 0.2", "--dpo-beta 0.2 --loss dpo", {0}, {0}},
    {OPT_muon_momentum, &command_plan, "--muon-momentum 0.9", "--muon-momentum 0.9 --optimizer muon", {0}, {0}},
    {OPT_dpo_loss, &command_train, "--dpo-loss ipo", "--dpo-loss ipo --loss dpo", {0}, {0}},
    {OPT_dpo_label_smoothing,
     &command_train,
     "--dpo-label-smoothing 0.1",
     "--dpo-label-smoothing 0.1 --loss dpo",
     {0},
     {0}},
    {OPT_optimizer, &command_plan, "--optimizer lion --for generate", "--optimizer lion", {0}, {0}},
    {OPT_optimizer_dtype, &command_plan, "--optimizer-dtype bf16 --for generate", "--optimizer-dtype bf16", {0}, {0}},
    {OPT_master_weights, &command_plan, "--master-weights none --for generate", "--master-weights none", {0}, {0}},
    {OPT_quantize_base, &command_plan, "--quantize-base nf4 --for generate", "--quantize-base nf4", {0}, {0}},
    {OPT_tied, &command_init, "--tied --arch gpt2", "--tied --arch llama", {0}, {0}},
    {OPT_compare, &command_train, "--compare other", "--compare other --serve 0", {0}, {0}},
    {OPT_valid_every,
     &command_train,
     "--valid-every 5",
     "--valid-every 5",
     {.validation = false},
     {.validation = true}},
    {OPT_valid_batches,
     &command_train,
     "--valid-batches 5",
     "--valid-batches 5",
     {.validation = false},
     {.validation = true}},
    {OPT_valid_fraction,
     &command_train,
     "--valid-fraction 0.1",
     "--valid-fraction 0.1",
     {.validation = true},
     {.validation = true, .held_out = true}},
    {OPT_loss_on_all, &command_eval, "--loss-on all", "--loss-on all", {.examples = false}, {.examples = true}},
    {OPT_packing, &command_eval, "--packing off", "--packing off", {.examples = false}, {.examples = true}},
    {OPT_chat_time_s,
     &command_eval,
     "--chat-date 2024-07-26",
     "--chat-date 2024-07-26",
     {.examples = false},
     {.examples = true}},
    {OPT_replan,
     &command_train,
     "--replan auto",
     "--replan auto",
     {.plan = &(struct session_plan){.chosen.place.mesh = {1, 2}}},
     {.plan = &(struct session_plan){.chosen.place.mesh = {1, 1}}}},
    {OPT_warmup_steps,
     &command_train,
     "--warmup-steps 50",
     "--warmup-steps 50",
     {.steps = 50, .warmup_steps = 50},
     {.steps = 50, .warmup_steps = 49}},
    {OPT_steps,
     &command_resume,
     "--steps 50",
     "--steps 50",
     {.steps = 50, .warmup_steps = 100},
     {.steps = 50, .warmup_steps = 5}},
    {OPT_epochs,
     &command_resume,
     "--epochs 1",
     "--epochs 1 --warmup-steps 100",
     {.steps = 50, .warmup_steps = 100},
     {.steps = 50, .warmup_steps = 100}},
    {OPT_schedule,
     &command_train,
     "--schedule linear",
     "--schedule linear",
     {.steps = 5, .warmup_steps = 9},
     {.steps = 9, .warmup_steps = 0}},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Parses as the program does, what is required given. */
static void parse(const struct command *command, const char *text, char copy[256], struct options *out) {
    static char model[] = "model", data[] = "data", output[] = "-orun";
    static char *const required[] = {"--prompt=x", "--hidden=8",  "--layers=1",
                                     "--heads=1",  "--vocab=300", "--context=8"};
    char *arguments[ARGUMENTS_MAX] = {model};
    int count = 1;
    if (command->min > 1) arguments[count++] = data;
    snprintf(copy, 256, "%s", text);
    for (char *argument = strtok(copy, " "); argument; argument = strtok(NULL, " "))
        arguments[count++] = argument;
    for (int i = 0; i < 6 && command == &command_init; i++)
        if (i > 0) arguments[count++] = required[i];
    if (command == &command_generate) arguments[count++] = required[0];
    if (command->bit & (COMMAND_TRAIN | COMMAND_MERGE)) arguments[count++] = output;
    if (options_parse(command, count, arguments, out) != STATUS_OK) fail_msg("%s: %s", text, status_message());
}

static bool is_idle(int at, const char *text, const struct train_info *info) {
    char copy[256];
    struct options options;
    bool idle = false, found = false;
    struct train_options defaults;
    struct train_info known = *info;
    train_options_init(&defaults);
    if (!known.options) known.options = &defaults;
    parse(cases[at].command, text, copy, &options);
    for (int i = 0; i < option_effect_count; i++) {
        const struct option_effect *effect = &option_effects[i];
        if (effect->option != cases[at].option) continue;
        found = true;
        idle |= effect->is_idle(&options, effect->phase == EFFECT_OF_DATA ? &known : NULL);
    }
    options_free(&options);
    assert_true(found);
    return idle;
}

static void each_rule_is_kept(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct train_info lively = cases[i].effective_info;
        if (cases[i].option == OPT_valid_batches) lively.validation = true;
        if (!is_idle(i, cases[i].idle, &cases[i].idle_info)) fail_msg("not told: %s", cases[i].idle);
        if (is_idle(i, cases[i].effective, &lively)) fail_msg("told: %s", cases[i].effective);
    }
}

/* The tiers are told by the plan; the_program_reports_it has them. */
static void each_rule_has_a_case(void **state) {
    (void)state;
    for (int i = 0; i < option_effect_count; i++) {
        enum option_id option = option_effects[i].option;
        bool found = option == OPT_disk_folder || option == OPT_host_bytes;
        for (int c = 0; c < CASES; c++)
            found |= cases[c].option == option;
        if (!found) fail_msg("--%s has no case", option_table[option]->name);
    }
}

static int count(const char *text, const char *part) {
    int found = 0;
    for (; (text = strstr(text, part)); text++)
        found++;
    return found;
}

static void expect_warnings(const char *folder, const char *const *texts, int warnings, const char *const *arguments) {
    struct program_run run = program_run(folder, arguments);
    if (run.status != 0) fail_msg("%s", run.err);
    for (size_t i = 0; texts[i]; i++)
        if (count(run.err, texts[i]) != 1) fail_msg("'%s' is not there once: %s", texts[i], run.err);
    if (count(run.err, "warning: --") != warnings) fail_msg("%s", run.err);
    program_run_free(&run);
}
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EXPECT(texts, warnings, ...) expect_warnings(folder, texts, warnings, TEXTS(__VA_ARGS__))

static void the_program_reports_it(void **state) {
    const char *folder = *state;
    char model[600], text[600], out[600];
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(text, sizeof text, "%s/text.txt", folder);
    snprintf(out, sizeof out, "%s/run", folder);
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    EXPECT(TEXTS("--valid-every has no effect: there is no validation data", "--disk has no effect",
                 "--wsd-decay-fraction has no effect", "--loss-on has no effect", "--warmup-steps is the whole run"),
           5, "train", model, text, "-o", out, "--steps", "2", "--threads", "1", "--valid-every", "2", "--disk", folder,
           "--wsd-decay-fraction", "0.5", "--loss-on", "all", "--warmup-steps", "2", "--quiet");
    assert_int_equal(folder_remove(out), STATUS_OK);
    EXPECT(TEXTS("done"), 0, "train", model, text, "-o", out, "--steps", "2", "--threads", "1", "--valid-every", "2",
           "--valid-fraction", "0.1", "--schedule", "wsd", "--wsd-decay-fraction", "0.5");
    EXPECT(TEXTS("--loss-on has no effect", "--chat-date has no effect"), 2, "eval", model, text, "--batches", "1",
           "--loss-on", "all", "--chat-date", "2024-07-26");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_is_kept), cmocka_unit_test(each_rule_has_a_case),
        cmocka_unit_test_setup_teardown(the_program_reports_it, temp_folder_make, temp_folder_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
