#include "session/options.h"

#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "machine/cluster.h"
#include "session/session.h"

#define PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct plan_options, field),
const struct settings_holder plan_settings = {
    SETTINGS_GIVEN_AT(struct plan_options),
    .places = {SETTING_LIST_RECIPE(PLACE) SETTING_LIST_POLICY(PLACE) PLACE(lora) PLACE(gpu_collectives)}};
#undef PLACE

#define PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct train_options, field),
const struct settings_holder train_settings = {
    SETTINGS_GIVEN_AT(struct train_options),
    .places = {SETTING_LIST_OPTIMIZER(PLACE) SETTING_LIST_RUN(PLACE) SETTING_LIST_DATA(PLACE) PLACE(loss_on_all)}};
#undef PLACE

/* Whether run.json has it as a training option. Optimizer settings are in the recipe. */
static bool is_option(enum setting_id id) {
    return settings_have(&train_settings, id) && !settings_have(&recipe_settings, id);
}

void train_options_init(struct train_options *out) {
    *out = (struct train_options){.sample_prompt = "", .columns = ""};
    settings_init(&train_settings, out);
    /* Left open: a plan file may set them. */
#define OPEN(field, ...) out->field = 0;
    SETTING_LIST_OPTIMIZER(OPEN)
}

/* Whether the field has a value. A setting without a default may be left open. */
static bool has_value(const struct train_options *options, enum setting_id id) {
    bool open = !setting_table[id].fallback || settings_have(&recipe_settings, id);
    return !open || options->given.of[id];
}

enum status train_options_check(const struct train_options *options) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &setting_table[id];
        struct setting_value value;
        if (!settings_have(&train_settings, id) || !has_value(options, id)) continue;
        settings_load(&train_settings, options, id, &value);
        if (setting->type == SETTING_FLOAT) TRY(setting_check_float(setting, setting->name, value.float_value));
        if (setting->type == SETTING_INT || setting->type == SETTING_DATE)
            TRY(setting_check_int(setting, setting->name, value.int_value));
    }
    if (options->schedule >= LR_SCHEDULE_COUNT) return status_set(STATUS_BAD_INPUT, "schedule: unknown");
    if (options->data_path_count == 0) return status_set(STATUS_BAD_INPUT, "no data to train on");
    return STATUS_OK;
}

static bool may_change(enum setting_id id) {
#define MAY_CHANGE(field, ...) [SETTING_##field] = true,
    static const bool changes[SETTING_COUNT] = {SETTING_LIST_RUN(MAY_CHANGE)};
    return changes[id];
}

bool train_option_changes(const char *key) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if (may_change(id) && strcmp(setting_table[id].key, key) == 0) return true;
    return false;
}

void train_options_change(struct train_options *options, const struct train_options *changes) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        struct setting_value value;
        if (!may_change(id) || !changes->given.of[id]) continue;
        settings_load(&train_settings, changes, id, &value);
        (void)settings_store(&train_settings, options, id, "", &value);
    }
    if (SETTINGS_HAVE(changes, steps)) SETTINGS_DROP(options, epochs);
}

static json_t *paths_to_json(const char *const *paths, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_push(&array, json_string(paths[i]));
    return array;
}

json_t *train_options_to_json(const struct train_options *options) {
    json_t *object = json_object();
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        struct setting_value value;
        if (!is_option(id)) continue;
        settings_load(&train_settings, options, id, &value);
        bool open = value.text == NULL && !has_value(options, id);
        json_put(&object, setting_table[id].key, open ? json_null() : setting_to_json(&setting_table[id], &value));
    }
    json_put(&object, "data", paths_to_json(options->data_paths, options->data_path_count));
    json_put(&object, "valid", paths_to_json(options->valid_paths, options->valid_path_count));
    if (!object)
        (void)status_set(STATUS_FAILED,
                         "the training options cannot be written as JSON: a path or text is not UTF-8, or no memory");
    return object;
}

static enum status paths_from_json(const char *file, const json_t *object, const char *field, struct scratch *memory,
                                   const char *const **paths, size_t *count) {
    const json_t *array = json_object_get(object, field);
    if (!json_is_array(array)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array of paths", file, field);
    const char **items = scratch_alloc(memory, json_array_size(array), sizeof *items);
    if (!items) return STATUS_FAILED;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *path = json_string_value(json_array_get(array, i));
        if (!path) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array of paths", file, field);
        items[i] = scratch_format(memory, "%s", path);
        if (!items[i]) return STATUS_FAILED;
    }
    *paths = items;
    *count = json_array_size(array);
    return STATUS_OK;
}

/* Whether a file gives a setting that has no default. Null means that it was not given; earlier versions wrote 0 or
 * -1. */
static bool is_given(const struct setting *setting, const json_t *value) {
    bool is_float = setting->type == SETTING_FLOAT;
    double min = is_float ? setting->float_min : (double)setting->min, number = json_number_value(value);
    bool old = json_is_number(value) && (number <= 0 && number >= -1) && (number < min || (is_float && number <= min));
    return value && !json_is_null(value) && !old;
}

static enum status option_from_json(const char *file, const json_t *object, enum setting_id id, struct scratch *memory,
                                    struct train_options *out) {
    const struct setting *setting = &setting_table[id];
    bool number = setting->type == SETTING_FLOAT || setting->type == SETTING_INT || setting->type == SETTING_DATE;
    bool must = setting->fallback || !number;
    struct setting_value value;
    if (!must && !is_given(setting, json_object_get(object, setting->key))) return STATUS_OK;
    if (must && !setting->later) TRY(json_require(file, object, setting->key));
    if (!json_present(object, setting->key)) return STATUS_OK;
    TRY(setting_from_json(file, object, setting, true, memory, &value));
    TRY(settings_store(&train_settings, out, id, "", &value));
    if (!number) out->given.of[id] = false;
    return STATUS_OK;
}

enum status train_options_from_json(const char *file, const json_t *object, struct scratch *memory,
                                    struct train_options *out) {
    struct train_options options;
    train_options_init(&options);
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if (is_option(id)) TRY(option_from_json(file, object, id, memory, &options));
    TRY(paths_from_json(file, object, "data", memory, &options.data_paths, &options.data_path_count));
    TRY(paths_from_json(file, object, "valid", memory, &options.valid_paths, &options.valid_path_count));
    *out = options;
    return STATUS_OK;
}

bool train_option_equal(const json_t *now, const json_t *before) {
    bool absent_in_both = json_is_null(now) && json_is_number(before) && json_number_value(before) <= 0;
    return absent_in_both || json_equal(now, before);
}

/* Resolves options to a recipe and a policy, over a plan file's, a run's or the defaults. */

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

/* Aborts if a field was set without its bit: its value would be ignored. */
static void check_given(const struct plan_options *options) {
    static const struct lane_shape none = {0};
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        struct setting_value value;
        settings_load(&plan_settings, options, id, &value);
        bool set = value.int_value != 0 || value.float_value > 0 || value.text ||
                   memcmp(&value.lanes, &none, sizeof none) != 0;
        BUG_IF(set && !options->given.of[id], "%s is set but not given", setting_table[id].field);
    }
    BUG_IF(options->freeze && !SETTINGS_HAVE(options, freeze), "freeze is set but not given");
    BUG_IF(options->backend && !SETTINGS_HAVE(options, backend), "backend is set but not given");
}

/* Chooses each field of a recipe: the base's value, else the option's, else the default. A given option must equal the
 * base's. */
struct resolver {
    const struct plan_options *options;
    const struct train_options *training; /* may be NULL */
    const char *base_name;                /* NULL: there is no base */
    const struct recipe *base;
    struct recipe *recipe;
    struct settings_given given;
    enum status status; /* first error */
};

static bool was_given(const struct resolver *resolver, enum setting_id id) { return resolver->given.of[id]; }

bool recipe_setting_moves(enum setting_id id) {
    return id == SETTING_lanes || id == SETTING_reduce_dtype || id == SETTING_tensor_parallel ||
           id == SETTING_sequence_parallel || id == SETTING_round_micro_batches;
}

/* The base's value, or the given one that --allow-recipe-change substitutes. */
static struct setting_value base_of(const struct resolver *resolver, enum setting_id id) {
    struct setting_value base;
    recipe_load_setting(resolver->base, id, &base);
    if (resolver->options->allow_recipe_change && was_given(resolver, id) && recipe_setting_moves(id))
        settings_load(&plan_settings, resolver->options, id, &base);
    return base;
}

/* Chooses with another base than the recipe's and another default than the table's. */
static void choose_from(struct resolver *resolver, enum setting_id id, const struct setting_value *base,
                        const struct setting_value *fallback) {
    const struct setting *setting = &setting_table[id];
    char wanted_text[SETTING_PRINT_BYTES], base_text[SETTING_PRINT_BYTES];
    struct setting_value wanted = *fallback;
    bool given = was_given(resolver, id), training = !settings_have(&plan_settings, id);
    if (given && !training) settings_load(&plan_settings, resolver->options, id, &wanted);
    if (given && training) settings_load(&train_settings, resolver->training, id, &wanted);
    (void)settings_store(&recipe_settings, resolver->recipe, id, "", resolver->base_name ? base : &wanted);
    if (!resolver->base_name || !given || resolver->status != STATUS_OK) return;
    if (setting_values_equal(setting, &wanted, base)) return;
    resolver->status = status_set(STATUS_BAD_INPUT, "%s: %s differs from the %s of %s", setting->name,
                                  setting_print(setting, &wanted, wanted_text), setting_print(setting, base, base_text),
                                  resolver->base_name);
}

static void choose_else(struct resolver *resolver, enum setting_id id, const struct setting_value *fallback) {
    const struct setting_value base = base_of(resolver, id);
    choose_from(resolver, id, &base, fallback);
}

static void choose(struct resolver *resolver, enum setting_id id) {
    struct setting_value fallback;
    setting_default(&setting_table[id], &fallback);
    choose_else(resolver, id, &fallback);
}

static void choose_text(struct resolver *resolver, enum setting_id id, const char *given, const char *base,
                        char out[RECIPE_TEXT_BYTES]) {
    const char *name = setting_table[id].name;
    snprintf(out, RECIPE_TEXT_BYTES, "%s", resolver->base_name ? base : given);
    if (resolver->status != STATUS_OK || !was_given(resolver, id)) return;
    if (strlen(given) >= RECIPE_TEXT_BYTES)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: is longer than %d bytes", name, RECIPE_TEXT_BYTES - 1);
    else if (strcmp(out, given) != 0)
        resolver->status = status_set(STATUS_BAD_INPUT, "%s: '%s' differs from the '%s' of %s", name, given, base,
                                      resolver->base_name);
}

/* Which weights train: --freeze and --lora. */
static enum status choose_trained(struct resolver *resolver) {
    const struct plan_options *options = resolver->options;
    const struct recipe *base = resolver->base;
    AUTO_VEC struct text_buffer patterns = {0};
    TRY(text_print(&patterns, "%s", options->freeze_count > 0 ? options->freeze[0] : ""));
    for (size_t i = 1; i < options->freeze_count; i++)
        TRY(text_print(&patterns, ",%s", options->freeze[i]));
    choose_text(resolver, SETTING_freeze, patterns.items, base->freeze, resolver->recipe->freeze);
    choose_text(resolver, SETTING_lora, SETTINGS_HAVE(options, lora) ? options->lora : "", base->lora,
                resolver->recipe->lora);
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

/* EXAMPLE_PACKING_ON agrees with a base that packs as Ballast 0.1.0 did. Pairs are never packed. */
static void choose_packing(struct resolver *resolver) {
    const struct recipe *base = resolver->base;
    enum example_packing wanted = resolver->options->packing;
    bool given = was_given(resolver, SETTING_packing), open = !resolver->base_name || base->packing_auto;
    bool as_held = wanted == EXAMPLE_PACKING_ON && base->packing == EXAMPLE_PACKING_ROWS_HELD;
    struct setting_value value = {.int_value = given && (open || as_held) ? wanted : base->packing},
                         off = {.int_value = EXAMPLE_PACKING_OFF};
    choose_from(resolver, SETTING_packing, &value, &off);
    if (as_held && !open) resolver->recipe->packing = EXAMPLE_PACKING_ROWS_HELD;
    resolver->recipe->packing_auto = open && !given && resolver->recipe->loss != TRAINING_DPO;
}

/* Chooses the settings that the table defines completely. A setting stands after those it depends on. */
static void choose_plain(struct resolver *resolver) {
#define BY_HAND(field) [SETTING_##field] = true
    static const bool by_hand[SETTING_COUNT] = {
        BY_HAND(packing), BY_HAND(sequence_length), BY_HAND(micro_batch_sequences),
        BY_HAND(lanes),   BY_HAND(tensor_parallel), BY_HAND(dtype),
        BY_HAND(lora),    BY_HAND(freeze),          BY_HAND(beta2)};
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if (settings_have(&recipe_settings, id) && !by_hand[id] &&
            settings_apply(&recipe_settings, resolver->recipe, id))
            choose(resolver, id);
    choose_else(resolver, SETTING_dtype, &(struct setting_value){.int_value = DTYPE_F32});
    choose_packing(resolver);
    /* the default of Lion's authors */
    struct setting_value beta2 = {
        .float_value = resolver->recipe->optimizer == UPDATE_LION ? 0.99 : setting_table[SETTING_beta2].float_value};
    choose_else(resolver, SETTING_beta2, &beta2);
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

/* As many stages as before, if the number of ranks is the same. */
static int stages_of(const struct plan_options *options, const struct plan *base) {
    const struct mesh mesh = mesh_of(options);
    if (SETTINGS_HAVE(options, pipeline_parallel) && options->pipeline_parallel > 0)
        return (int)options->pipeline_parallel;
    return base && rank_place_ranks(&base->place) == mesh_ranks(&mesh) ? rank_place_pipeline_parallel(&base->place) : 1;
}

/* Mesh of the data ranks that have lanes. */
static struct mesh data_mesh_of(const struct rank_place *place) {
    int others = rank_place_tensor_parallel(place) * rank_place_pipeline_parallel(place);
    bool divides = rank_place_ranks(place) % others == 0; /* otherwise plan_check rejects it */
    return divides ? rank_place_data_mesh(place) : place->mesh;
}

/* Sequences of the longest lane. Larger micro-batches would leave some lanes, and their ranks, empty. Ranks that only
 * compute losses take whole batches. */
static int64_t share_of_lane(const struct plan_options *options, const struct rank_place *place, int64_t batch) {
    const struct mesh mesh = data_mesh_of(place);
    const struct lane_shape ranks = {mesh.nodes, mesh.per_node};
    int64_t lanes = lane_shape_lanes(SETTINGS_HAVE(options, lanes) ? &options->lanes : &ranks);
    return (batch + lanes - 1) / lanes;
}

static void choose_tensor(struct resolver *resolver) {
    const struct recipe *base = resolver->base;
    struct recipe *recipe = resolver->recipe;
    if (resolver->options->tensor_parallel == 0) /* not given, or auto */
        recipe->tensor_parallel = resolver->base_name ? recipe_tensor_parallel(base) : 1;
    else
        choose(resolver, SETTING_tensor_parallel);
    recipe->layout_rates = base->layout_rates;
    bool as_before = recipe->layout == base->layout && recipe_tensor_parallel(recipe) == recipe_tensor_parallel(base);
    recipe->strategies = as_before ? base->strategies : NULL;
}

static void choose_shape(struct resolver *resolver, const struct plan_defaults *defaults,
                         const struct rank_place *place) {
    const struct plan_options *options = resolver->options;
    struct recipe *recipe = resolver->recipe;
    choose_else(resolver, SETTING_sequence_length, &(struct setting_value){.int_value = defaults->sequence_length});
    int64_t micro_batch =
        recipe_default_micro_batch(recipe->batch, recipe->sequence_length, defaults->micro_batch_tokens);
    int64_t each = share_of_lane(options, place, recipe->batch), together = recipe_together(recipe);
    bool spread = !options->adds_losses_alone || SETTINGS_HAVE(options, lanes);
    if (spread && micro_batch > each) micro_batch = each;
    micro_batch = (micro_batch + together - 1) / together * together;
    choose_else(resolver, SETTING_micro_batch_sequences, &(struct setting_value){.int_value = micro_batch});
}

static bool can_hold(const struct lane_shape *lanes, int ranks) {
    AUTO(lane_tree_free) struct lane_tree tree = {0};
    return lane_tree_of_shape(lanes, &tree) == STATUS_OK && lane_tree_holds(&tree, ranks);
}

/* A new run on several ranks has one lane per rank: each rank adds its micro-batches as a single rank would. So does a
 * resumed run that may change its recipe and whose ranks cannot hold its lanes. */
static void choose_lanes(struct resolver *resolver, const struct rank_place *place) {
    const struct plan_options *options = resolver->options;
    struct mesh mesh = data_mesh_of(place);
    struct setting_value ranks = {.lanes = {mesh.nodes, mesh.per_node}}, base = base_of(resolver, SETTING_lanes);
    bool stuck = options->allow_recipe_change && !SETTINGS_HAVE(options, lanes) && resolver->base_name &&
                 !can_hold(&resolver->base->lanes, mesh_ranks(&mesh));
    choose_from(resolver, SETTING_lanes, stuck ? &ranks : &base, &ranks);
}

/* The environment setting that restricts this machine to the recipe's narrower instruction set; NULL if there is
 * none. */
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

/* Names the Ballast version that computes the base's bits. Replanning a plan file loses nothing. */
static enum status refuse_kernels(const struct plan_options *options, const char *base_name, const char *backend,
                                  int base, int here) {
    const char *last = kernel_version_last(backend, base);
    const char *again =
        SETTINGS_HAVE(options, plan_path) ? "; or make the plan again: `ballast plan MODEL_DIR -o FILE`" : "";
    if (base > here)
        return status_set(STATUS_BAD_INPUT,
                          "%s: recipe.kernels_version: %d needs a newer Ballast; Ballast %s has version %d of the %s "
                          "kernels" HINT "update Ballast to the release that wrote the file%s",
                          base_name, base, BALLAST_VERSION, here, backend, again);
    (void)status_set(STATUS_BAD_INPUT,
                     "%s: recipe.kernels_version: %d is an older version of the %s kernels; Ballast %s has version %d, "
                     "whose results differ",
                     base_name, base, backend, BALLAST_VERSION, here);
    if (!last) return STATUS_BAD_INPUT;
    return status_hint(STATUS_BAD_INPUT, "use %s, the last with version %d%s", last, base, again);
}

/* Checks instruction set and kernels' version, on which the bits depend and which no option sets. Each backend has its
 * own versions, so those of another backend are not compared. A compatible version stays in the recipe; programs that
 * balance experts may reject it (session/programs.c). */
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

/* As many threads as before, on the same number of ranks: ranks may share cores otherwise now. */
static int choose_threads(const struct plan_options *options, const struct plan *base, const struct rank_place *place) {
    bool as_before = base && rank_place_ranks(&base->place) == rank_place_ranks(place);
    return as_before && !SETTINGS_HAVE(options, threads) ? base->threads : plan_options_threads(options);
}

/* A partition is for a number of ranks. With another number, or if an option names another partition, the policy starts
 * anew. */
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
    if (SETTINGS_HAVE(options, collectives)) policy.flat = options->collectives == COLLECTIVES_ARE_FLAT;
    *out = policy;
    return STATUS_OK;
}

enum status plan_options_resolve(const struct plan_options *options, const struct train_options *training,
                                 const struct backend *backend, const struct model_config *model,
                                 const struct plan *base, const char *base_name, struct plan *out) {
    check_given(options);
    TRY(backend->check());
    struct plan_defaults defaults = defaults_of(backend, model, options->memory.device_bytes);
    struct plan plan = {.recipe.kernels_version = backend->kernels_version}, none = {0};
    struct resolver resolver = {.options = options,
                                .training = training,
                                .base_name = base ? base_name : NULL,
                                .base = base ? &base->recipe : &none.recipe,
                                .recipe = &plan.recipe,
                                .given = options->given,
                                .status = STATUS_OK};
    if (training) settings_given_join(&resolver.given, &training->given);
    snprintf(plan.recipe.isa, sizeof plan.recipe.isa, "%s", backend->isa());
    if (base && !options->allow_recipe_change)
        TRY(check_backend(options, &base->recipe, base_name, backend, &plan.recipe));
    bool same_isa = strcmp(resolver.base->isa, plan.recipe.isa) == 0;
    if (same_isa) plan.recipe.products = resolver.base->products;
    choose_plain(&resolver);
    TRY(choose_trained(&resolver));
    choose_tensor(&resolver);
    plan.place = (struct rank_place){.mesh = mesh_of(options),
                                     .tensor_parallel = plan.recipe.tensor_parallel,
                                     .pipeline_parallel = stages_of(options, base)};
    choose_shape(&resolver, &defaults, &plan.place);
    choose_lanes(&resolver, &plan.place);
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
