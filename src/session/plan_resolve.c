/* From given options to a recipe and a policy: over a plan file's or a run's, or over the defaults. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/file.h"
#include "base/log.h"
#include "machine/cluster.h"
#include "session/machine.h"
#include "session/train_options.h"

void plan_options_init(struct plan_options *out) { *out = (struct plan_options){0}; }

void memory_options_set_disk(struct memory_options *options, const char *folder) {
    if (!folder[0]) return;
    SETTINGS_MARK(options, disk_folder);
    snprintf(options->disk_folder, sizeof options->disk_folder, "%s", folder);
}

void memory_options_keep_disk(const struct memory_options *of_run, struct memory_options *options) {
    bool there = SETTINGS_HAVE(of_run, disk_folder) && file_is_folder(of_run->disk_folder);
    if (there && !SETTINGS_HAVE(options, disk_folder)) memory_options_set_disk(options, of_run->disk_folder);
}

enum status plan_options_choose_device(const char *device, bool decided, struct plan_options *options) {
    decided |= SETTINGS_HAVE(options, plan_path);
    if (!decided || device) {
        SETTINGS_MARK(options, backend);
        TRY(rank_devices_find(options->comm, device, &options->backend));
    }
    if (!decided && !SETTINGS_HAVE(options, dtype)) SETTINGS_GIVE(options, dtype, options->backend->fastest_dtype());
    return STATUS_OK;
}

const struct backend *plan_options_backend(const struct plan_options *options, const struct recipe *base) {
    if (SETTINGS_HAVE(options, backend)) return options->backend;
    return base ? backend_of_isa(base->isa) : &backend_cpu;
}

/* Ends the program where a field was set without its bit: its value would be ignored. */
static void check_given(const struct plan_options *options) {
#define CHECK_GIVEN(field) BUG_IF(options->field && !SETTINGS_HAVE(options, field), #field " is set but not given");
    BUG_IF(options->lanes.nodes != 0 && !SETTINGS_HAVE(options, lanes), "lanes are set but not given");
    CHECK_GIVEN(batch)
    CHECK_GIVEN(sequence_length)
    CHECK_GIVEN(micro_batch_sequences)
    CHECK_GIVEN(round_micro_batches)
    CHECK_GIVEN(reduce_dtype)
    CHECK_GIVEN(tensor_parallel)
    CHECK_GIVEN(sequence_parallel)
    CHECK_GIVEN(layout)
    CHECK_GIVEN(micro_batches_per_wave)
    CHECK_GIVEN(pipeline_parallel)
    CHECK_GIVEN(virtual_stages)
    CHECK_GIVEN(partition)
    CHECK_GIVEN(flat)
    CHECK_GIVEN(threads)
    CHECK_GIVEN(seed)
    CHECK_GIVEN(quantize_base)
    CHECK_GIVEN(lora)
    CHECK_GIVEN(freeze)
    CHECK_GIVEN(dtype)
    CHECK_GIVEN(document_attention)
    CHECK_GIVEN(packing)
    CHECK_GIVEN(loss)
    BUG_IF(options->muon_momentum > 0 && !SETTINGS_HAVE(options, muon_momentum), "muon_momentum is set but not given");
    BUG_IF(options->dpo_beta > 0 && !SETTINGS_HAVE(options, dpo_beta), "dpo_beta is set but not given");
    CHECK_GIVEN(dpo_loss)
    BUG_IF(options->dpo_label_smoothing > 0 && !SETTINGS_HAVE(options, dpo_label_smoothing),
           "dpo_label_smoothing is set but not given");
    CHECK_GIVEN(optimizer)
    CHECK_GIVEN(optimizer_dtype)
    CHECK_GIVEN(master_weights)
    CHECK_GIVEN(backend)
}

/* Chooses each field: the base's value, else the option's, else the default. A given option must equal the base's. */
struct resolver {
    const char *base_name; /* NULL: there is no base */
    struct settings_given given;
    enum status status; /* first error */
};

static bool is_given(const struct resolver *resolver, enum setting_id id) { return resolver->given.of[id]; }

static int64_t choose_int(struct resolver *resolver, enum setting_id id, int64_t wanted, int64_t base,
                          int64_t fallback) {
    bool given = is_given(resolver, id);
    if (!resolver->base_name) return given ? wanted : fallback;
    if (given && wanted != base && resolver->status == STATUS_OK)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: %" PRId64 " differs from the %" PRId64 " of %s",
                                      setting_table[id].name, wanted, base, resolver->base_name);
    return base;
}

static double choose_float(struct resolver *resolver, enum setting_id id, double wanted, double base) {
    bool given = is_given(resolver, id);
    if (!resolver->base_name) return given ? wanted : setting_table[id].float_value;
    if (given && (wanted < base || wanted > base) && resolver->status == STATUS_OK)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: %g differs from the %g of %s", setting_table[id].name,
                                      wanted, base, resolver->base_name);
    return base;
}

/* An enumeration's value, with the name of each. */
static int choose_name(struct resolver *resolver, enum setting_id id, int wanted, int base, int fallback,
                       const char *wanted_name, const char *base_name) {
    bool given = is_given(resolver, id);
    if (!resolver->base_name) return given ? wanted : fallback;
    if (given && wanted != base && resolver->status == STATUS_OK)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: %s differs from the %s of %s", setting_table[id].name,
                                      wanted_name, base_name, resolver->base_name);
    return base;
}

static void choose_text(struct resolver *resolver, enum setting_id id, const char *given, const char *base,
                        char out[RECIPE_TEXT_BYTES]) {
    const char *name = setting_table[id].name;
    snprintf(out, RECIPE_TEXT_BYTES, "%s", resolver->base_name ? base : given);
    if (resolver->status != STATUS_OK || !is_given(resolver, id)) return;
    if (strlen(given) >= RECIPE_TEXT_BYTES)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: is longer than %d bytes", name, RECIPE_TEXT_BYTES - 1);
    else if (strcmp(out, given) != 0)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: '%s' differs from the '%s' of %s", name, given, base,
                                      resolver->base_name);
}

/* Which weights train: --freeze and --lora. */
static enum status choose_trained(struct resolver *resolver, const struct plan_options *options,
                                  const struct recipe *base, struct recipe *recipe) {
    char *patterns = mem_string("");
    for (size_t i = 0; i < options->freeze_count && patterns; i++) {
        char *longer = mem_format("%s%s%s", patterns, i ? "," : "", options->freeze[i]);
        mem_free(patterns);
        patterns = longer;
    }
    if (!patterns) return STATUS_FAILED;
    choose_text(resolver, SETTING_freeze, patterns, base->freeze, recipe->freeze);
    mem_free(patterns);
    choose_text(resolver, SETTING_lora, SETTINGS_HAVE(options, lora) ? options->lora : "", base->lora, recipe->lora);
    return STATUS_OK;
}

/* Defaults that depend on model and backend. */
struct plan_defaults {
    int64_t sequence_length, micro_batch_tokens;
};

static struct plan_defaults defaults_of(const struct backend *backend, const struct model_config *model,
                                        int64_t device_bytes) {
    struct plan_defaults defaults = {.sequence_length = setting_table[SETTING_sequence_length].int_value,
                                     .micro_batch_tokens = backend->micro_batch_tokens};
    if (!model) return defaults;
    if (model->context < defaults.sequence_length) defaults.sequence_length = model->context;
    if (backend->choose_micro_batch_tokens)
        defaults.micro_batch_tokens = backend->choose_micro_batch_tokens(model->layers, model->hidden, device_bytes);
    return defaults;
}

static void choose_pairs(struct resolver *resolver, const struct plan_options *options, const struct recipe *base,
                         struct recipe *recipe) {
    recipe->dpo_beta = choose_float(resolver, SETTING_dpo_beta, options->dpo_beta, base->dpo_beta);
    recipe->dpo_loss = (enum pair_loss)choose_name(resolver, SETTING_dpo_loss, (int)options->dpo_loss,
                                                   (int)base->dpo_loss, (int)PAIR_LOSS_SIGMOID,
                                                   pair_loss_name(options->dpo_loss), pair_loss_name(base->dpo_loss));
    recipe->dpo_label_smoothing =
        choose_float(resolver, SETTING_dpo_label_smoothing, options->dpo_label_smoothing, base->dpo_label_smoothing);
}

/* EXAMPLE_PACKING_ON agrees with a base that packs as Ballast 0.1.0 did. Pairs are never packed. */
static void choose_packing(struct resolver *resolver, enum example_packing wanted, const struct recipe *base,
                           struct recipe *recipe) {
    bool given = is_given(resolver, SETTING_packing), open = !resolver->base_name || base->packing_auto;
    enum example_packing decided = given && open ? wanted : base->packing;
    if (wanted == EXAMPLE_PACKING_ON && decided == EXAMPLE_PACKING_ROWS_HELD) wanted = decided;
    recipe->packing = (enum example_packing)choose_name(resolver, SETTING_packing, (int)wanted, (int)decided,
                                                        (int)EXAMPLE_PACKING_OFF, example_packing_name(wanted),
                                                        example_packing_name(decided));
    recipe->packing_auto = open && !given && recipe->loss != TRAINING_DPO;
}

static void choose_numbers(struct resolver *resolver, const struct plan_options *options, const struct recipe *base,
                           struct recipe *recipe) {
    enum document_attention across = document_attention_find(setting_table[SETTING_document_attention].fallback);
    recipe->dtype = (enum dtype)choose_name(resolver, SETTING_dtype, (int)options->dtype, (int)base->dtype,
                                            (int)DTYPE_F32, dtype_name(options->dtype), dtype_name(base->dtype));
    recipe->document_attention = (enum document_attention)choose_name(
        resolver, SETTING_document_attention, (int)options->document_attention, (int)base->document_attention,
        (int)across, document_attention_name(options->document_attention),
        document_attention_name(base->document_attention));
    recipe->loss = (enum training_loss)choose_name(resolver, SETTING_loss, (int)options->loss, (int)base->loss,
                                                   (int)TRAINING_NEXT_TOKEN, training_loss_name(options->loss),
                                                   training_loss_name(base->loss));
    choose_packing(resolver, options->packing, base, recipe);
    if (recipe->loss == TRAINING_DPO) choose_pairs(resolver, options, base, recipe);
    recipe->optimizer = (enum update_rule)choose_name(
        resolver, SETTING_optimizer, (int)options->optimizer, (int)base->optimizer, (int)UPDATE_ADAMW,
        update_rule_name(options->optimizer), update_rule_name(base->optimizer));
    if (recipe->optimizer == UPDATE_MUON)
        recipe->muon_momentum =
            choose_float(resolver, SETTING_muon_momentum, options->muon_momentum, base->muon_momentum);
    recipe->optimizer_dtype = (enum state_format)choose_name(
        resolver, SETTING_optimizer_dtype, (int)options->optimizer_dtype, (int)base->optimizer_dtype, (int)STATE_FP32,
        state_format_name(options->optimizer_dtype), state_format_name(base->optimizer_dtype));
    recipe->master_weights = (enum master_weights)choose_name(
        resolver, SETTING_master_weights, (int)options->master_weights, (int)base->master_weights,
        (int)MASTER_WEIGHTS_FP32, master_weights_name(options->master_weights),
        master_weights_name(base->master_weights));
    recipe->quantize_base = (enum weight_format)choose_name(
        resolver, SETTING_quantize_base, (int)options->quantize_base, (int)base->quantize_base, (int)WEIGHT_PLAIN,
        weight_format_name(options->quantize_base), weight_format_name(base->quantize_base));
}

int plan_options_threads(const struct plan_options *options) {
    if (SETTINGS_HAVE(options, threads)) return options->threads;
    int cores = cluster_count_cores(&(int){0});
    int sharers = options->planned.nodes > 0 ? options->planned.per_node : options->core_sharers;
    return sharers > 1 && cores > sharers ? cores / sharers : sharers > 1 ? 1 : cores;
}

static struct mesh mesh_of(const struct plan_options *options) {
    if (options->planned.nodes > 0) return options->planned;
    return options->comm ? options->comm->mesh : (struct mesh){1, 1};
}

/* As many as before, on as many ranks as before. */
static int stages_of(const struct plan_options *options, const struct plan *base) {
    const struct mesh mesh = mesh_of(options);
    if (SETTINGS_HAVE(options, pipeline_parallel) && options->pipeline_parallel > 0)
        return (int)options->pipeline_parallel;
    return base && rank_place_ranks(&base->place) == mesh_ranks(&mesh) ? rank_place_pipeline_parallel(&base->place) : 1;
}

/* Data ranks by nodes: those that have lanes. */
static struct mesh data_mesh_of(const struct rank_place *place) {
    int others = rank_place_tensor_parallel(place) * rank_place_pipeline_parallel(place);
    bool divides = rank_place_ranks(place) % others == 0; /* else plan_check refuses it */
    return divides ? rank_place_data_mesh(place) : place->mesh;
}

/* Sequences of the longest lane: with larger micro-batches some lanes, and the ranks that hold them, would have none.
 * Of losses alone ranks take whole batches. */
static int64_t share_of_lane(const struct plan_options *options, const struct rank_place *place, int64_t batch) {
    const struct mesh mesh = data_mesh_of(place);
    const struct lane_shape ranks = {mesh.nodes, mesh.per_node};
    int64_t lanes = lane_shape_lanes(SETTINGS_HAVE(options, lanes) ? &options->lanes : &ranks);
    return (batch + lanes - 1) / lanes;
}

static void choose_tensor(struct resolver *resolver, const struct plan_options *options, const struct recipe *base,
                          struct recipe *recipe) {
    bool open = options->tensor_parallel == 0, moved = options->allow_recipe_change && !open;
    int64_t wanted = !open ? options->tensor_parallel : resolver->base_name ? recipe_tensor_parallel(base) : 1;
    recipe->tensor_parallel =
        (int)choose_int(resolver, SETTING_tensor_parallel, wanted, moved ? wanted : recipe_tensor_parallel(base),
                        setting_table[SETTING_tensor_parallel].int_value);
    recipe->layout = (enum tensor_layout)choose_name(resolver, SETTING_layout, (int)options->layout, (int)base->layout,
                                                     (int)TENSOR_LAYOUT_MEGATRON, tensor_layout_name(options->layout),
                                                     tensor_layout_name(base->layout));
    recipe->layout_rates = base->layout_rates;
    bool as_before = recipe->layout == base->layout && recipe_tensor_parallel(recipe) == recipe_tensor_parallel(base);
    recipe->strategies = as_before ? base->strategies : NULL;
}

static const char *on_or_off(bool on) { return on ? "on" : "off"; }

static void choose_sequence(struct resolver *resolver, const struct plan_options *options, const struct recipe *base,
                            struct recipe *recipe) {
    bool moved = options->allow_recipe_change && SETTINGS_HAVE(options, sequence_parallel);
    bool before = moved ? options->sequence_parallel : base->sequence_parallel;
    recipe->sequence_parallel = choose_name(resolver, SETTING_sequence_parallel, options->sequence_parallel, before,
                                            false, on_or_off(options->sequence_parallel), on_or_off(before));
}

static void choose_shape(struct resolver *resolver, const struct plan_options *options,
                         const struct plan_defaults *defaults, const struct rank_place *place,
                         const struct recipe *base, struct recipe *recipe) {
    recipe->batch =
        choose_int(resolver, SETTING_batch, options->batch, base->batch, setting_table[SETTING_batch].int_value);
    recipe->sequence_length = choose_int(resolver, SETTING_sequence_length, options->sequence_length,
                                         base->sequence_length, defaults->sequence_length);
    int64_t micro_batch =
        recipe_default_micro_batch(recipe->batch, recipe->sequence_length, defaults->micro_batch_tokens);
    int64_t each = share_of_lane(options, place, recipe->batch), together = recipe_together(recipe);
    bool spread = !options->adds_losses_alone || SETTINGS_HAVE(options, lanes);
    if (spread && micro_batch > each) micro_batch = each;
    micro_batch = (micro_batch + together - 1) / together * together;
    recipe->micro_batch_sequences = choose_int(resolver, SETTING_micro_batch_sequences, options->micro_batch_sequences,
                                               base->micro_batch_sequences, micro_batch);
    recipe->seed = (uint64_t)choose_int(resolver, SETTING_seed, options->seed, (int64_t)base->seed,
                                        setting_table[SETTING_seed].int_value);
}

static bool can_hold(const struct lane_shape *lanes, int ranks) {
    struct lane_tree tree;
    if (lane_tree_of_shape(lanes, &tree) != STATUS_OK) return false;
    bool held = lane_tree_holds(&tree, ranks);
    lane_tree_free(&tree);
    return held;
}

/* On several ranks a new run has as many lanes: each rank adds its micro-batches as one rank would. So has one that may
 * change its recipe and goes on on ranks that cannot hold its lanes. */
static void choose_lanes(struct resolver *resolver, const struct plan_options *options, const struct rank_place *place,
                         const struct recipe *base, struct recipe *recipe) {
    char wanted_text[LANE_SHAPE_BYTES], base_text[LANE_SHAPE_BYTES];
    bool given = SETTINGS_HAVE(options, lanes), moved = options->allow_recipe_change && given;
    struct mesh mesh = data_mesh_of(place);
    struct lane_shape ranks = {mesh.nodes, mesh.per_node};
    bool stuck = options->allow_recipe_change && !given && resolver->base_name;
    stuck = stuck && !can_hold(&base->lanes, mesh_ranks(&mesh));
    struct lane_shape was = moved ? options->lanes : stuck ? ranks : base->lanes;
    recipe->lanes = resolver->base_name ? was : given ? options->lanes : ranks;
    if (given && !lane_shape_equal(&recipe->lanes, &options->lanes) && resolver->status == STATUS_OK)
        resolver->status = status_set(STATUS_BAD_INPUT, "lanes: %s differs from the %s of %s",
                                      lane_shape_print(&options->lanes, wanted_text),
                                      lane_shape_print(&base->lanes, base_text), resolver->base_name);
    moved = options->allow_recipe_change && SETTINGS_HAVE(options, round_micro_batches);
    recipe->round_micro_batches = choose_int(resolver, SETTING_round_micro_batches, options->round_micro_batches,
                                             moved ? options->round_micro_batches : base->round_micro_batches,
                                             setting_table[SETTING_round_micro_batches].int_value);
    moved = options->allow_recipe_change && SETTINGS_HAVE(options, reduce_dtype);
    bool rounds = (moved ? options->reduce_dtype : base->reduce_dtype) == DTYPE_BF16;
    enum dtype decided = rounds ? DTYPE_BF16 : DTYPE_F32;
    recipe->reduce_dtype =
        (enum dtype)choose_name(resolver, SETTING_reduce_dtype, (int)options->reduce_dtype, (int)decided,
                                (int)DTYPE_F32, dtype_name(options->reduce_dtype), dtype_name(decided));
}

static void choose_optimizer(struct resolver *resolver, const struct train_options *training, const struct recipe *base,
                             struct recipe *recipe) {
#define CHOOSE_FLOAT(field)                                                                                            \
    recipe->field = choose_float(resolver, SETTING_##field, training ? training->field : 0, base->field);
    CHOOSE_FLOAT(beta1)
    CHOOSE_FLOAT(beta2)
    if (recipe->optimizer == UPDATE_LION && !resolver->base_name && !is_given(resolver, SETTING_beta2))
        recipe->beta2 = 0.99; /* as its authors have it */
    CHOOSE_FLOAT(epsilon)
    CHOOSE_FLOAT(weight_decay)
    CHOOSE_FLOAT(clip_norm)
}

/* The environment's setting that holds this machine to the recipe's narrower instruction set; NULL: there is none. */
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

static enum status hint_at_isa(const struct backend *backend, const char *base, const char *here) {
    const char *way = way_to_isa(base, here);
    if (way) return status_hint(STATUS_BAD_INPUT, "set %s to go on with its isa", way);
    if (!backend->isa_libraries || strstr(base, backend->isa_libraries)) return STATUS_BAD_INPUT;
    return status_hint(STATUS_BAD_INPUT,
                       "it was planned for another device, described by a cluster file: `ballast plan "
                       "MODEL_DIR -o FILE` without --cluster plans for this one");
}

/* Names the Ballast that computes the base's bits. Of a plan file nothing is lost by planning again. */
static enum status refuse_kernels(const struct plan_options *options, const char *base_name, const char *backend,
                                  int base, int here) {
    const char *last = kernel_version_last(backend, base);
    const char *again =
        SETTINGS_HAVE(options, plan_path) ? "; or make the plan again: `ballast plan MODEL_DIR -o FILE`" : "";
    if (base > here) {
        (void)status_set(STATUS_BAD_INPUT,
                         "%s: recipe.kernels_version: %d needs a newer Ballast; Ballast %s has version %d of the %s "
                         "kernels",
                         base_name, base, BALLAST_VERSION, here, backend);
        return status_hint(STATUS_BAD_INPUT, "update Ballast to the release that wrote the file%s", again);
    }
    (void)status_set(STATUS_BAD_INPUT,
                     "%s: recipe.kernels_version: %d is an older version of the %s kernels; Ballast %s has version %d, "
                     "whose results differ",
                     base_name, base, backend, BALLAST_VERSION, here);
    if (!last) return STATUS_BAD_INPUT;
    return status_hint(STATUS_BAD_INPUT, "use %s, the last with version %d%s", last, base, again);
}

/* Checks instruction set and kernels' version, on which the bits depend and which no option sets. Each backend counts
 * its own versions, so those of another backend are not compared. A version that is alike stays in the recipe, for
 * programs that balance experts to refuse (session/programs.c). */
static enum status check_backend(const struct plan_options *options, const struct recipe *base, const char *base_name,
                                 const struct backend *backend, struct recipe *here) {
    const struct backend *kind = backend_of_isa(base->isa);
    bool same_kind = kind == backend_of_isa(here->isa);
    if (same_kind && !kernel_versions_alike(kind->name, base->kernels_version, here->kernels_version))
        return refuse_kernels(options, base_name, kind->name, base->kernels_version, here->kernels_version);
    if (same_kind) here->kernels_version = base->kernels_version;
    if (backend_runs_isa(backend, base->isa)) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: recipe: isa is another here: it was made with %s, this machine has %s",
                     base_name, base->isa, here->isa);
    return hint_at_isa(backend, base->isa, here->isa);
}

/* As many as before, on as many ranks as before: they may share cores otherwise now. */
static int choose_threads(const struct plan_options *options, const struct plan *base, const struct rank_place *place) {
    bool as_before = base && rank_place_ranks(&base->place) == rank_place_ranks(place);
    return as_before && !SETTINGS_HAVE(options, threads) ? base->threads : plan_options_threads(options);
}

/* A partition is one of so many ranks: on others, and by an option that names another, the policy begins anew. */
static enum status choose_policy(const struct plan_options *options, const struct plan *base, const char *base_name,
                                 const struct rank_place *place, struct policy *out) {
    const struct mesh mesh = data_mesh_of(place);
    struct policy plain = {.micro_batches_per_wave = setting_table[SETTING_micro_batches_per_wave].int_value},
                  policy = plain;
    struct partition requested = {0};
    bool given = SETTINGS_HAVE(options, partition);
    if (base) policy = base->policy;
    if (given) TRY(partition_parse(options->partition, &mesh, &requested));
    bool moved = base && rank_place_data(&base->place) != mesh_ranks(&mesh) && partition_cuts(&policy.partition);
    if (moved && !given)
        log_note("%s: its policy is for %d ranks, and chosen anew", base_name, rank_place_data(&base->place));
    if (moved || (given && !partition_equal(&requested, &policy.partition))) policy = plain;
    if (given) policy.partition = requested;
    bool staged = base && rank_place_pipeline_parallel(&base->place) == rank_place_pipeline_parallel(place);
    if (!staged || SETTINGS_HAVE(options, virtual_stages)) policy.spans[0] = '\0';
    if (SETTINGS_HAVE(options, micro_batches_per_wave)) policy.micro_batches_per_wave = options->micro_batches_per_wave;
    if (SETTINGS_HAVE(options, flat)) policy.flat = options->flat;
    *out = policy;
    return STATUS_OK;
}

enum status plan_options_resolve(const struct plan_options *options, const struct train_options *training,
                                 const struct backend *backend, const struct model_config *model,
                                 const struct plan *base, const char *base_name, struct plan *out) {
    check_given(options);
    TRY(backend->check());
    struct plan_defaults defaults = defaults_of(backend, model, options->memory.device_bytes);
    struct resolver resolver = {.base_name = base ? base_name : NULL, .given = options->given, .status = STATUS_OK};
    if (training) settings_given_join(&resolver.given, &training->given);
    struct plan plan = {.recipe.kernels_version = backend->kernels_version}, none = {0};
    snprintf(plan.recipe.isa, sizeof plan.recipe.isa, "%s", backend->isa());
    if (base && !options->allow_recipe_change)
        TRY(check_backend(options, &base->recipe, base_name, backend, &plan.recipe));
    const struct plan *from = base ? base : &none;
    bool same_isa = strcmp(from->recipe.isa, plan.recipe.isa) == 0;
    if (same_isa) plan.recipe.products = from->recipe.products;
    choose_numbers(&resolver, options, &from->recipe, &plan.recipe);
    TRY(choose_trained(&resolver, options, &from->recipe, &plan.recipe));
    choose_tensor(&resolver, options, &from->recipe, &plan.recipe);
    choose_sequence(&resolver, options, &from->recipe, &plan.recipe);
    plan.place = (struct rank_place){.mesh = mesh_of(options),
                                     .tensor_parallel = plan.recipe.tensor_parallel,
                                     .pipeline_parallel = stages_of(options, base)};
    choose_shape(&resolver, options, &defaults, &plan.place, &from->recipe, &plan.recipe);
    choose_lanes(&resolver, options, &plan.place, &from->recipe, &plan.recipe);
    choose_optimizer(&resolver, training, &from->recipe, &plan.recipe);
    if (resolver.status != STATUS_OK)
        return status_hint(resolver.status,
                           "the recipe fixes the bits of the result: leave the option out, or begin anew without %s",
                           base_name);
    TRY(recipe_check_optimizer(&plan.recipe));
    TRY(choose_policy(options, base, base_name, &plan.place, &plan.policy));
    plan.threads = choose_threads(options, base, &plan.place);
    TRY(plan_check(&plan));
    *out = plan;
    return STATUS_OK;
}
