#include "report/plan_table.h"

#include <inttypes.h>
#include <stdbool.h>

#include "base/size.h"

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

static void print_recipe(FILE *out, const struct plan *plan) {
    const struct recipe *recipe = &plan->recipe;
    fprintf(out,
            "recipe    %s, batch %" PRId64 " x %" PRId64 " tokens, %" PRId64 " grain%s of %" PRId64
            " sequence%s, %d thread%s (%s), seed %" PRIu64 "\n",
            dtype_name(recipe->dtype), recipe->batch, recipe->sequence_length, recipe_grains(recipe),
            plural(recipe_grains(recipe)), recipe->grain_sequences, plural(recipe->grain_sequences), recipe->threads,
            plural(recipe->threads), recipe->isa, recipe->seed);
}

static void print_policy(FILE *out, const struct policy *policy) {
    fprintf(out, "policy    %" PRId64 " grain%s a pass, ", policy->grains_per_pass, plural(policy->grains_per_pass));
    if (policy->parameters == TIER_DEVICE && policy->gradients == TIER_DEVICE && policy->optimizer == TIER_DEVICE)
        fprintf(out, "all on the device tier\n");
    else
        fprintf(out, "parameters on the %s tier, gradients on %s, optimizer on %s, lookahead %" PRId64 "\n",
                tier_name(policy->parameters), tier_name(policy->gradients), tier_name(policy->optimizer),
                policy->lookahead);
    if (policy->schedule[0]) fprintf(out, "          activations %s\n", policy->schedule);
}

static void print_model(FILE *out, const struct train_setup *setup) {
    const struct model_config *config = &setup->model->config;
    fprintf(out,
            "model     %s, %" PRId64 " layers, hidden %" PRId64 ", %" PRId64 " heads (%" PRId64
            " key-value), vocabulary %" PRId64 "\n",
            config->family->name, config->layers, config->hidden, config->heads, config->kv_heads, config->vocab_size);
    fprintf(out, "          %" PRId64 " parameters", setup->parameters);
    if (setup->trained_parameters < setup->parameters)
        fprintf(out, ", of which %" PRId64 " are trained", setup->trained_parameters);
    fprintf(out, ", %.4g model FLOPs a token\n", setup->flops_per_token);
}

static void print_row(FILE *out, const char *name, int64_t bytes) {
    char text[SIZE_TEXT];
    fprintf(out, "  %-14s %16" PRId64 " B  %10s\n", name, bytes, size_print(bytes, text));
}

static void print_tier(FILE *out, const struct train_setup *setup, enum tier tier) {
    const struct memory_report *memory = &setup->memory[tier];
    int64_t program = setup->program_bytes[tier], capacity = setup->capacity_bytes[tier];
    fprintf(out, "\n%s tier, at the peak of a step\n", tier_name(tier));
    for (enum buffer_kind kind = 0; kind < BUFFER_KIND_COUNT; kind++)
        if (memory->by_kind[kind] > 0) print_row(out, buffer_kind_name(kind), memory->by_kind[kind]);
    print_row(out, "unused", memory->unused);
    if (program > memory->total) print_row(out, "validation", program - memory->total);
    print_row(out, "arena", program);
    char needs[SIZE_TEXT], has[SIZE_TEXT];
    fprintf(out, "projected %s of %s available (%.1f%%)%s\n", size_print(program, needs), size_print(capacity, has),
            capacity > 0 ? 100.0 * (double)program / (double)capacity : 100.0,
            program > capacity ? ": does not fit" : "");
}

void plan_table_print(FILE *out, const struct train_setup *setup) {
    print_model(out, setup);
    print_recipe(out, &setup->plan);
    print_policy(out, &setup->plan.policy);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (setup->program_bytes[tier] > 0 || setup->capacity_bytes[tier] > 0) print_tier(out, setup, tier);
}
