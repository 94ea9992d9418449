#include "base/terminal.h"
#include "cli/commands/command.h"
#include "cli/options.h"
#include "train/train.h"

/* Defines a rule: whether an option has no effect. It depends either on the options or on the run's data. */
#define RULE(name)                                                                                                     \
    static bool name(__attribute__((unused)) const struct options *options,                                            \
                     __attribute__((unused)) const struct train_info *info)

static bool is_text(const struct options *options, enum option_id id, const char *text) {
    const char *value = options_text(options, id);
    return value && strcmp(value, text) == 0;
}

/* These use the run's options, because `resume` also continues with options that its command line lacks. */
RULE(never_validates) { return info->options->valid_every == 0; }
RULE(never_samples) { return info->options->sample_every == 0; }
RULE(never_saves) { return info->options->save_every == 0; }
RULE(is_not_wsd) { return info->options->schedule != LR_SCHEDULE_WSD; }
RULE(is_constant) { return info->options->schedule == LR_SCHEDULE_CONSTANT; }

/* Until the run begins, --schedule-steps also sets the default of --warmup-steps. */
RULE(is_constant_after_warmup) {
    bool open = options->command->bit == COMMAND_TRAIN && !options_given(options, OPT_warmup_steps);
    return is_constant(options, info) && !open;
}

RULE(has_no_step_left) { return info->done >= info->steps; }
/* Considers only --temperature 0, not a generation_config.json that selects greedy decoding. */
RULE(takes_the_likeliest) {
    return options_given(options, OPT_temperature) && options_float(options, OPT_temperature) <= 0;
}
RULE(plans_generation) { return is_text(options, OPT_purpose, "generate"); }
RULE(plans_one_device) { return !options_given(options, OPT_devices) && !options_given(options, OPT_target_days); }
/* Only `plan` knows the number of ranks before they start. */
RULE(plans_one_rank) { return options->command->bit == COMMAND_PLAN && options_int(options, OPT_ranks) <= 1; }
RULE(counts_no_failures) { return !options_given(options, OPT_mtbf); }
RULE(is_always_tied) { return is_text(options, OPT_arch, "gpt2") || is_text(options, OPT_arch, "opt"); }
RULE(learns_no_preferences) { return !options_given(options, OPT_plan_path) && !is_text(options, OPT_loss, "dpo"); }
RULE(updates_without_muon) {
    return !options_given(options, OPT_plan_path) && !is_text(options, OPT_optimizer, "muon");
}
RULE(updates_by_sgd) { return is_text(options, OPT_optimizer, "sgd"); }
RULE(updates_without_roots) {
    return is_text(options, OPT_optimizer, "sgd") || is_text(options, OPT_optimizer, "lion");
}
RULE(has_no_validation) { return !info->validation && info->options->valid_every > 0; }
RULE(has_other_validation) { return info->validation && !info->held_out; }
RULE(has_no_examples) { return !info->examples; }
RULE(ends_in_warmup) { return info->warmup_steps >= info->steps; }

/* `resume` shortened the run, whose warm-up keeps its original number of steps. */
RULE(ends_in_kept_warmup) {
    return options->command->bit == COMMAND_RESUME && !options_given(options, OPT_warmup_steps) &&
           ends_in_warmup(options, info);
}

RULE(trains_on_ranks) { return info->plan != NULL && rank_place_ranks(&info->plan->chosen.place) > 1; }
RULE(has_no_use_for_the_disk) { return info->plan && info->plan->programs.tier_bytes[TIER_DISK] == 0; }
RULE(has_no_use_for_the_host) { return info->plan && info->plan->programs.tier_bytes[TIER_HOST] == 0; }
RULE(computes_in_fp32) { return info->plan && info->plan->chosen.recipe.dtype == DTYPE_F32; }
/* `report` writes a page without --serve. */
RULE(shows_no_page) { return options->command->bit != COMMAND_REPORT && !options_given(options, OPT_serve); }

#define NO_EFFECT "has no effect: "
#define NO_EXAMPLES NO_EFFECT "the data are plain text, without examples"
#define IS_ONE_DEVICE "has no effect without --devices or --target-days"
#define IS_ONE_RANK NO_EFFECT "the plan is for one rank; use --ranks N"
#define KEPT_WARMUP                                                                                                    \
    "ends the run within the warm-up, so the rate reaches --lr in the last step at best; use a smaller --warmup-steps"
#define IS_GENERATION NO_EFFECT "--for generate plans no training"

const struct option_effect option_effects[] = {
    {OPT_valid_paths, EFFECT_OF_DATA, never_validates, NO_EFFECT "--valid-every is 0"},
    {OPT_valid_batches, EFFECT_OF_DATA, never_validates, NO_EFFECT "--valid-every is 0"},
    {OPT_sample_prompt, EFFECT_OF_DATA, never_samples, "has no effect without --sample-every N"},
    {OPT_sample_tokens, EFFECT_OF_DATA, never_samples, "has no effect without --sample-every N"},
    {OPT_keep, EFFECT_OF_DATA, never_saves, NO_EFFECT "--save-every is 0, so there are no checkpoints"},
    {OPT_wsd_decay_fraction, EFFECT_OF_DATA, is_not_wsd, NO_EFFECT "the schedule is not wsd"},
    {OPT_min_lr_fraction, EFFECT_OF_DATA, is_constant, NO_EFFECT "the schedule is constant"},
    {OPT_schedule_steps, EFFECT_OF_DATA, is_constant_after_warmup, NO_EFFECT "the schedule is constant"},
    {OPT_learning_rate, EFFECT_OF_DATA, has_no_step_left,
     NO_EFFECT "all steps are done; use a larger --steps to continue"},
    {OPT_top_k, EFFECT_OF_OPTIONS, takes_the_likeliest, NO_EFFECT "--temperature 0 takes the likeliest token"},
    {OPT_top_p, EFFECT_OF_OPTIONS, takes_the_likeliest, NO_EFFECT "--temperature 0 takes the likeliest token"},
    {OPT_seed, EFFECT_OF_OPTIONS, takes_the_likeliest, NO_EFFECT "--temperature 0 takes the likeliest token"},
    {OPT_beta1, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_beta2, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_epsilon, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_weight_decay, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_clip_norm, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_freeze, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_beta2, EFFECT_OF_OPTIONS, updates_by_sgd, NO_EFFECT "SGD has only the moment of --beta1"},
    {OPT_epsilon, EFFECT_OF_OPTIONS, updates_without_roots, NO_EFFECT "this optimizer has no epsilon"},
    {OPT_loss, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_dpo_beta, EFFECT_OF_OPTIONS, learns_no_preferences, "has no effect without --loss dpo"},
    {OPT_muon_momentum, EFFECT_OF_OPTIONS, updates_without_muon, NO_EFFECT "--optimizer is not muon"},
    {OPT_dpo_loss, EFFECT_OF_OPTIONS, learns_no_preferences, "has no effect without --loss dpo"},
    {OPT_dpo_label_smoothing, EFFECT_OF_OPTIONS, learns_no_preferences, "has no effect without --loss dpo"},
    {OPT_optimizer, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_optimizer_dtype, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_master_weights, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_quantize_base, EFFECT_OF_OPTIONS, plans_generation, IS_GENERATION},
    {OPT_master_weights, EFFECT_OF_DATA, computes_in_fp32, NO_EFFECT "fp32 weights have no master weights"},
    {OPT_virtual_stages, EFFECT_OF_OPTIONS, plans_one_rank, IS_ONE_RANK},
    {OPT_partition, EFFECT_OF_OPTIONS, plans_one_rank, IS_ONE_RANK},
    {OPT_collectives, EFFECT_OF_OPTIONS, plans_one_rank, IS_ONE_RANK},
    {OPT_layout, EFFECT_OF_OPTIONS, plans_one_rank, IS_ONE_RANK},
    {OPT_price, EFFECT_OF_OPTIONS, plans_one_device, IS_ONE_DEVICE},
    {OPT_train_tokens, EFFECT_OF_OPTIONS, plans_one_device, IS_ONE_DEVICE},
    {OPT_page, EFFECT_OF_OPTIONS, plans_one_device, IS_ONE_DEVICE},
    {OPT_svg, EFFECT_OF_OPTIONS, plans_one_device, IS_ONE_DEVICE},
    {OPT_mtbf, EFFECT_OF_OPTIONS, plans_one_device, IS_ONE_DEVICE},
    {OPT_checkpoint_time, EFFECT_OF_OPTIONS, counts_no_failures, "has no effect without --mtbf"},
    {OPT_restart_time, EFFECT_OF_OPTIONS, counts_no_failures, "has no effect without --mtbf"},
    {OPT_tied, EFFECT_OF_OPTIONS, is_always_tied, NO_EFFECT "these models are always tied"},
    {OPT_compare, EFFECT_OF_OPTIONS, shows_no_page, NO_EFFECT "without --serve there is no page to show it"},
    {OPT_valid_every, EFFECT_OF_DATA, has_no_validation,
     NO_EFFECT "there is no validation data (--valid PATH or --valid-fraction X gives some)"},
    {OPT_valid_batches, EFFECT_OF_DATA, has_no_validation, NO_EFFECT "there is no validation data"},
    {OPT_valid_fraction, EFFECT_OF_DATA, has_other_validation, NO_EFFECT "there is other validation data"},
    {OPT_loss_on_all, EFFECT_OF_DATA, has_no_examples, NO_EXAMPLES},
    {OPT_packing, EFFECT_OF_DATA, has_no_examples, NO_EXAMPLES},
    {OPT_chat_time_s, EFFECT_OF_DATA, has_no_examples, NO_EXAMPLES},
    {OPT_warmup_steps, EFFECT_OF_DATA, ends_in_warmup, "is the whole run: --lr is reached at its end, if at all"},
    {OPT_steps, EFFECT_OF_DATA, ends_in_kept_warmup, KEPT_WARMUP},
    {OPT_epochs, EFFECT_OF_DATA, ends_in_kept_warmup, KEPT_WARMUP},
    {OPT_schedule, EFFECT_OF_DATA, ends_in_warmup, NO_EFFECT "the run ends within its warm-up"},
    {OPT_replan, EFFECT_OF_DATA, trains_on_ranks, NO_EFFECT "the plan of several ranks stays as it is"},
    {OPT_disk_folder, EFFECT_OF_DATA, has_no_use_for_the_disk, NO_EFFECT "everything fits in memory"},
    {OPT_host_bytes, EFFECT_OF_DATA, has_no_use_for_the_host, NO_EFFECT "everything fits on the device"},
};
const int option_effect_count = sizeof option_effects / sizeof *option_effects;

static bool was_given(const struct options *options, const struct setting *option, enum option_id id) {
    return (option->commands & options->command->bit) && options->values[id].source >= SOURCE_CONFIG;
}

static void warn(const struct options *options, enum effect_phase phase, const struct train_info *info) {
    for (int i = 0; i < option_effect_count; i++) {
        const struct option_effect *effect = &option_effects[i];
        const struct setting *option = option_table[effect->option];
        if (effect->phase != phase || !was_given(options, option, effect->option)) continue;
        if (effect->is_idle(options, info)) log_warning("--%s %s", option->name, effect->why);
    }
}

void option_effects_warn(const struct options *options) { warn(options, EFFECT_OF_OPTIONS, NULL); }

void option_effects_warn_data(const void *options, const struct train_info *info) {
    warn(options, EFFECT_OF_DATA, info);
}
