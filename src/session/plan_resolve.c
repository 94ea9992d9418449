#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cluster/cluster.h"
#include "session/train_options.h"

void plan_options_init(struct plan_options *out) { *out = (struct plan_options){.seed = -1}; }

enum status plan_options_choose_device(const char *device, bool decided, struct plan_options *options) {
    decided |= options->plan_path != NULL;
    if (!decided || device) TRY(backend_find(device, &options->backend));
    if (!decided && options->dtype == DTYPE_NONE) options->dtype = options->backend->fastest_dtype();
    return STATUS_OK;
}

const struct backend *plan_options_backend(const struct plan_options *options, const struct recipe *base) {
    if (options->backend) return options->backend;
    return base ? backend_of_isa(base->isa) : &backend_cpu;
}

/* What stands for an option that is not given: the base's value, else the default. */
struct resolver {
    const char *base_name; /* NULL: there is no base */
    enum status status;    /* first error */
};

static int64_t choose_integer(struct resolver *resolver, const char *name, int64_t given, int64_t absent, int64_t base,
                              int64_t fallback) {
    if (!resolver->base_name) return given == absent ? fallback : given;
    if (given != absent && given != base && resolver->status == STATUS_OK)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: %" PRId64 " differs from the %" PRId64 " of %s", name,
                                      given, base, resolver->base_name);
    return base;
}

static double choose_double(struct resolver *resolver, const char *name, double given, double base, double fallback) {
    if (!resolver->base_name) return given < 0 ? fallback : given;
    if (given >= 0 && (given < base || given > base) && resolver->status == STATUS_OK)
        resolver->status =
            status_set(STATUS_BAD_INPUT, "%s: %g differs from the %g of %s", name, given, base, resolver->base_name);
    return base;
}

static void choose_dtype(struct resolver *resolver, enum dtype given, enum dtype base, enum dtype *out) {
    *out = resolver->base_name ? base : given == DTYPE_NONE ? DTYPE_F32 : given;
    if (given != DTYPE_NONE && given != *out && resolver->status == STATUS_OK)
        resolver->status = status_set(STATUS_BAD_INPUT, "dtype: %s differs from the %s of %s", dtype_name(given),
                                      dtype_name(base), resolver->base_name);
}

static void choose_document_attention(struct resolver *resolver, enum document_attention given,
                                      enum document_attention base, enum document_attention *out) {
    *out = resolver->base_name ? base : given == DOCUMENT_ATTENTION_NONE ? DOCUMENT_ATTENTION_ACROSS : given;
    if (given != DOCUMENT_ATTENTION_NONE && given != *out && resolver->status == STATUS_OK)
        resolver->status =
            status_set(STATUS_BAD_INPUT, "document-attention: %s differs from the %s of %s",
                       document_attention_name(given), document_attention_name(base), resolver->base_name);
}

static void choose_text(struct resolver *resolver, const char *name, const char *given, const char *base,
                        char out[RECIPE_TEXT_BYTES]) {
    snprintf(out, RECIPE_TEXT_BYTES, "%s", resolver->base_name ? base : given);
    if (resolver->status != STATUS_OK || !given[0]) return;
    if (strlen(given) >= RECIPE_TEXT_BYTES)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: is longer than %d bytes", name, RECIPE_TEXT_BYTES - 1);
    else if (strcmp(out, given) != 0)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: '%s' differs from the '%s' of %s", name, given, base,
                                      resolver->base_name);
}

/* What of the weights is trained. */
static enum status choose_trained(struct resolver *resolver, const struct plan_options *options,
                                  const struct recipe *base, struct recipe *recipe) {
    char *patterns = mem_string("");
    for (size_t i = 0; i < options->freeze_count && patterns; i++) {
        char *longer = mem_format("%s%s%s", patterns, i ? "," : "", options->freeze[i]);
        mem_free(patterns);
        patterns = longer;
    }
    if (!patterns) return STATUS_FAILED;
    choose_text(resolver, "freeze", patterns, base->freeze, recipe->freeze);
    mem_free(patterns);
    choose_text(resolver, "lora", options->lora ? options->lora : "", base->lora, recipe->lora);
    return STATUS_OK;
}

/* What a recipe has where nothing is asked for. */
struct plan_defaults {
    int64_t sequence_length, grain_tokens;
};

static struct plan_defaults defaults_of(const struct backend *backend, const struct model_config *model,
                                        int64_t device_bytes) {
    struct plan_defaults defaults = {.sequence_length = PLAN_DEFAULT_SEQUENCE, .grain_tokens = backend->grain_tokens};
    if (!model) return defaults;
    if (model->context < defaults.sequence_length) defaults.sequence_length = model->context;
    if (backend->choose_grain_tokens)
        defaults.grain_tokens = backend->choose_grain_tokens(model->layers, model->hidden, device_bytes);
    return defaults;
}

static void choose_shape(struct resolver *resolver, const struct plan_options *options,
                         const struct plan_defaults *defaults, const struct recipe *base, struct recipe *recipe) {
    recipe->batch = choose_integer(resolver, "batch", options->batch, 0, base->batch, PLAN_DEFAULT_BATCH);
    recipe->sequence_length =
        choose_integer(resolver, "seq", options->sequence_length, 0, base->sequence_length, defaults->sequence_length);
    int64_t grain = recipe_default_grain(recipe->batch, recipe->sequence_length, defaults->grain_tokens);
    recipe->grain_sequences =
        choose_integer(resolver, "grain", options->grain_sequences, 0, base->grain_sequences, grain);
    int threads = options->threads || resolver->base_name ? 0 : cluster_count_cores(&(int){0});
    bool moved = options->allow_recipe_change && options->threads > 0;
    recipe->threads = (int)choose_integer(resolver, "threads", options->threads, 0,
                                          moved ? options->threads : base->threads, threads);
    recipe->seed =
        (uint64_t)choose_integer(resolver, "seed", options->seed, -1, (int64_t)base->seed, PLAN_DEFAULT_SEED);
}

static void choose_optimizer(struct resolver *resolver, const struct train_options *training, const struct recipe *base,
                             struct recipe *recipe) {
    recipe->beta1 = choose_double(resolver, "beta1", training->beta1, base->beta1, 0.9);
    recipe->beta2 = choose_double(resolver, "beta2", training->beta2, base->beta2, 0.95);
    recipe->epsilon = choose_double(resolver, "epsilon", training->epsilon, base->epsilon, 1e-8);
    recipe->weight_decay = choose_double(resolver, "weight-decay", training->weight_decay, base->weight_decay, 0.1);
    recipe->clip_norm = choose_double(resolver, "clip-norm", training->clip_norm, base->clip_norm, 1.0);
}

/* How this machine can be held to the narrower instruction set that the recipe was made with; NULL: it cannot. */
static const char *way_to_isa(const char *base, const char *here) {
    static const struct {
        const char *base, *here, *way;
    } ways[] = {
        {"avx2", "avx512", "BALLAST_MAX_ISA=avx2"},
        {"avx512", "avx512+", "ONEDNN_MAX_CPU_ISA=AVX512_CORE"},
        {"avx512+bf16", "avx512+amx", "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(base, ways[i].base) == 0 && strncmp(here, ways[i].here, strlen(ways[i].here)) == 0)
            return ways[i].way;
    return NULL;
}

/* The bits depend on these two, and no option sets them. */
static enum status check_backend(const struct recipe *base, const char *base_name, const struct recipe *here) {
    if (base->kernels_version != here->kernels_version)
        return status_set(STATUS_BAD_INPUT,
                          "%s: recipe: kernels_version is another here: it was made with %d, this Ballast has %d",
                          base_name, base->kernels_version, here->kernels_version);
    if (strcmp(base->isa, here->isa) == 0) return STATUS_OK;
    const char *way = way_to_isa(base->isa, here->isa);
    (void)status_set(STATUS_BAD_INPUT, "%s: recipe: isa is another here: it was made with %s, this machine has %s",
                     base_name, base->isa, here->isa);
    return way ? status_hint(STATUS_BAD_INPUT, "set %s to go on with its isa", way) : STATUS_BAD_INPUT;
}

enum status plan_options_resolve(const struct plan_options *options, const struct train_options *training,
                                 const struct backend *backend, const struct model_config *model,
                                 const struct plan *base, const char *base_name, struct plan *out) {
    struct train_options untrained;
    TRY(backend->check());
    train_options_init(&untrained);
    struct plan_defaults defaults = defaults_of(backend, model, options->memory.device_bytes);
    struct resolver resolver = {.base_name = base ? base_name : NULL, .status = STATUS_OK};
    struct plan plan = {.recipe.kernels_version = backend->kernels_version}, none = {0};
    snprintf(plan.recipe.isa, sizeof plan.recipe.isa, "%s", backend->isa());
    if (base && !options->allow_recipe_change) TRY(check_backend(&base->recipe, base_name, &plan.recipe));
    const struct plan *from = base ? base : &none;
    bool same_isa = strcmp(from->recipe.isa, plan.recipe.isa) == 0;
    if (same_isa) memcpy(plan.recipe.products, from->recipe.products, sizeof plan.recipe.products);
    choose_dtype(&resolver, options->dtype, from->recipe.dtype, &plan.recipe.dtype);
    choose_document_attention(&resolver, options->document_attention, from->recipe.document_attention,
                              &plan.recipe.document_attention);
    TRY(choose_trained(&resolver, options, &from->recipe, &plan.recipe));
    choose_shape(&resolver, options, &defaults, &from->recipe, &plan.recipe);
    choose_optimizer(&resolver, training ? training : &untrained, &from->recipe, &plan.recipe);
    if (resolver.status != STATUS_OK)
        return status_hint(resolver.status, "the recipe fixes the bits of the result: leave the option out");
    TRY(recipe_check_optimizer(&plan.recipe));
    plan.policy = base ? base->policy : (struct policy){.grains_per_pass = 1};
    if (options->grains_per_pass) plan.policy.grains_per_pass = options->grains_per_pass;
    TRY(plan_check(&plan));
    *out = plan;
    return STATUS_OK;
}
