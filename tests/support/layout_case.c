#include "support/layout_case.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "support/harness.h"
#include "support/shared_model.h"
#include "support/unit.h"

enum { BATCH = 8, LENGTH = 12, LANES = 4, SEED = 5 };

/* ---- values of the axes ---- */

/* Grouped: with fewer key-value heads than query heads. */
static const struct family {
    const char *name;
    bool grouped, experts;
} families[] = {{"llama", true, false},    {"gpt2", false, false},      {"phi3", true, false},
                {"qwen3", true, false},    {"gemma2", true, false},     {"gemma3_text", true, false},
                {"granite", true, false},  {"llama_tied", true, false}, {"mistral", true, false},
                {"olmo2", true, false},    {"opt", false, false},       {"qwen2_tied", true, false},
                {"smollm3", true, false},  {"mixtral", true, true},     {"olmoe", true, true},
                {"qwen2_moe", true, true}, {"qwen3_moe", true, true},   {"gpt_oss", true, true}};
static const struct shape_of_ranks {
    int tensor, stages, data;
} shapes[] = {{2, 1, 1}, {1, 2, 1}, {4, 1, 1}, {2, 2, 1}, {2, 1, 2}, {1, 4, 1}, {1, 2, 2},
              {4, 2, 1}, {2, 2, 2}, {4, 1, 2}, {2, 1, 4}, {1, 2, 4}, {1, 4, 2}, {2, 4, 1}};
/* Slow work, so that all of it is parted; slow messages, so that few are sent; between these, with little memory for
 * four ranks (two have twice as much), or less than anything fits. */
static const struct layout_rates none = {.flops_per_s = 0}, rates[] = {{1e6, 1e6, 1e-9, 1e12, 0},
                                                                       {1e8, 1e8, 1e-5, 1e8, 0},
                                                                       {1e8, 1e9, 1e-6, 1e9, 6e5},
                                                                       {1e7, 1e7, 1e-4, 1e10, 3e5}};
enum { LIMITED = 2 }; /* of the rates, from here on */
enum { MEGATRON, SEQUENCE, SOLVER, LAYOUTS = SOLVER + sizeof rates / sizeof *rates };
static const char *const partitions[] = {"ddp", "zero1", "zero2", "zero3"};
static const char *const spans[] = {"", "1 2 3"};
/* What is trained: all weights, or adapters on these in full or in fewer bits. */
static const struct trained {
    const char *name, *lora;
    enum weight_format base;
} trained[] = {{"", NULL, WEIGHT_PLAIN},
               {", adapters", "4,8,all-linear", WEIGHT_PLAIN},
               {", adapters on int8", "4,8,all-linear", WEIGHT_INT8},
               {", adapters on nf4", "4,8,all-linear", WEIGHT_NF4}};
enum { OWN_HEADS, FEW_HEADS, UNEVEN_HEADS, HEADS };

static const struct family *family_of(const int *row) { return &families[row[LAYOUT_AXIS_family]]; }
static const struct shape_of_ranks *shape_of(const int *row) { return &shapes[row[LAYOUT_AXIS_shape]]; }
static const struct trained *trained_of(const int *row) { return &trained[row[LAYOUT_AXIS_adapter]]; }

/* Each value does something, and two runs of blocks are those of four blocks. Parts of these small matrices cut blocks
 * of nf4; int8's are rows. */
static bool is_legal(const int *row) {
    const struct shape_of_ranks *shape = shape_of(row);
    bool shares = shape->tensor > 1, experts = family_of(row)->experts;
    if (experts && row[LAYOUT_AXIS_adapter] > 0) return false;
    if (trained_of(row)->base == WEIGHT_NF4 && shares) return false;
    if (row[LAYOUT_AXIS_layout] != MEGATRON && !shares) return false;
    if (row[LAYOUT_AXIS_heads] == FEW_HEADS && (!shares || !family_of(row)->grouped)) return false;
    if (row[LAYOUT_AXIS_heads] == UNEVEN_HEADS && row[LAYOUT_AXIS_layout] < SOLVER) return false;
    if (row[LAYOUT_AXIS_spans] > 0 && shape->stages != 2) return false;
    return row[LAYOUT_AXIS_partition] == 0 || shape->data > 1;
}

struct pair_cover layout_case_cover(uint64_t seed) {
    return (struct pair_cover){.axes = LAYOUT_AXES,
                               .values = {[LAYOUT_AXIS_family] = sizeof families / sizeof *families,
                                          [LAYOUT_AXIS_shape] = sizeof shapes / sizeof *shapes,
                                          [LAYOUT_AXIS_layout] = LAYOUTS,
                                          [LAYOUT_AXIS_partition] = sizeof partitions / sizeof *partitions,
                                          [LAYOUT_AXIS_tiers] = TIERS_TRAITS,
                                          [LAYOUT_AXIS_schedule] = ACTIVATIONS_TRAITS,
                                          [LAYOUT_AXIS_spans] = 2,
                                          [LAYOUT_AXIS_adapter] = sizeof trained / sizeof *trained,
                                          [LAYOUT_AXIS_heads] = HEADS,
                                          [LAYOUT_AXIS_messages] = 2},
                               .is_legal = is_legal,
                               .seed = seed};
}

int layout_case_ranks(const struct layout_case *spec) {
    const struct shape_of_ranks *shape = shape_of(spec->value);
    return shape->tensor * shape->stages * shape->data;
}

bool layout_case_has_messages(const struct layout_case *spec) { return spec->value[LAYOUT_AXIS_messages] > 0; }

bool layout_case_is_alike(const struct layout_case *a, const struct layout_case *b) {
    static const enum layout_axis axes[] = {LAYOUT_AXIS_family, LAYOUT_AXIS_adapter, LAYOUT_AXIS_heads};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (a->value[axes[i]] != b->value[axes[i]]) return false;
    return true;
}

void layout_case_print(const struct layout_case *spec, char name[LAYOUT_CASE_NAME_BYTES]) {
    static const char *const layouts[LAYOUTS] = {"megatron", "sequence", "solver 0",
                                                 "solver 1", "solver 2", "solver 3"};
    static const char *const tiers[] = {"drawn tiers", "device", "host", "disk"};
    static const char *const schedules[] = {"drawn schedule", "kept", "computed again", "moved"};
    static const char *const heads[HEADS] = {"", ", few heads", ", uneven heads"};
    const int *row = spec->value;
    const struct shape_of_ranks *shape = shape_of(row);
    snprintf(name, LAYOUT_CASE_NAME_BYTES, "%s, %d x %d x %d, %s, %s, %s, %s, spans '%s'%s%s (seed %llu)",
             family_of(row)->name, shape->tensor, shape->stages, shape->data, layouts[row[LAYOUT_AXIS_layout]],
             partitions[row[LAYOUT_AXIS_partition]], tiers[row[LAYOUT_AXIS_tiers]],
             schedules[row[LAYOUT_AXIS_schedule]], spans[row[LAYOUT_AXIS_spans]], trained_of(row)->name,
             heads[row[LAYOUT_AXIS_heads]], (unsigned long long)spec->seed);
}

/* ---- training ---- */

static struct model_config config_of(const struct layout_case *spec) {
    struct shared_sizes sizes = shared_sizes_usual;
    if (spec->value[LAYOUT_AXIS_heads] != OWN_HEADS) sizes.kv_heads = 1;
    if (spec->value[LAYOUT_AXIS_heads] == UNEVEN_HEADS) sizes.heads = 3;
    return shared_model_config(family_of(spec->value)->name, &sizes);
}

/* What only many ranks have. */
static void set_ranks(const struct layout_case *spec, struct comm *comm, struct harness_options *options) {
    const struct shape_of_ranks *shape = shape_of(spec->value);
    const struct mesh data = {1, shape->data};
    int layout = spec->value[LAYOUT_AXIS_layout];
    options->comm = comm;
    options->tensor = shape->tensor;
    options->stages = shape->stages;
    options->spans = spans[spec->value[LAYOUT_AXIS_spans]];
    options->sequence = layout == SEQUENCE;
    options->layout_rates = layout < SOLVER ? none : rates[layout - SOLVER];
    if (layout == SOLVER + LIMITED && shape->tensor == 2) options->layout_rates.device_bytes *= 2;
    options->flat = spec->seed & 1;
    options->policy_seed = spec->seed;
    options->policy_traits.tiers = spec->value[LAYOUT_AXIS_tiers];
    options->policy_traits.schedule = spec->value[LAYOUT_AXIS_schedule];
    if (partition_parse(partitions[spec->value[LAYOUT_AXIS_partition]], &data, &options->partition) != STATUS_OK)
        fail_msg("%s", status_message());
}

static void set_batch(struct harness *harness, int step) {
    int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    for (int i = 0; i < BATCH * LENGTH; i++) {
        tokens[i] = (int32_t)(random_u64(SEED, RANDOM_TEST, (uint32_t)step, (uint64_t)i) % 211);
        targets[i] = i % 7 ? (tokens[i] * 3 + 1) % 211 : -1;
    }
    harness_set_inputs(harness, tokens, targets);
}

void layout_case_train(const struct layout_case *spec, struct comm *comm, struct layout_result *out) {
    struct model_config config = config_of(spec);
    struct harness_options options = {.config = &config,
                                      .dtype = DTYPE_F32,
                                      .batch = BATCH,
                                      .sequence_length = LENGTH,
                                      .micro_batch_sequences = 1,
                                      .micro_batches_per_wave = 1,
                                      .threads = 1,
                                      .lanes = {1, LANES},
                                      .lora = trained_of(spec->value)->lora,
                                      .quantize_base = trained_of(spec->value)->base,
                                      .clip_norm = 1,
                                      .weight_decay = 0.1,
                                      .seed = SEED};
    struct harness harness;
    if (comm) set_ranks(spec, comm, &options);
    harness_open(&options, &harness);
    for (int step = 0; step < LAYOUT_CASE_STEPS; step++) {
        set_batch(&harness, step);
        out->losses[step] = harness_step(&harness, 1e-3, false);
        out->norms[step] = *(const double *)harness_data(&harness, "clip");
    }
    harness_finish(&harness);
    harness_close(&harness);
}
