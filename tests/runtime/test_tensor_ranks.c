/* Tensor parallelism trains like one rank: ten steps of every family on 2 and 4 ranks, with data-parallel ranks and
 * partitions, under policies that recompute and move. Pipeline stages of such ranks have the bits of ranks without
 * stages. */
/* ctest: PROCESSORS 2 TIMEOUT 900 LABELS long */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "support/harness.h"
#include "support/model_cases.h"
#include "support/mpi_job.h"
#include "support/shared_model.h"
#include "support/unit.h"

enum { BATCH = 4, LENGTH = 12, STEPS = 10, SEED = 5 };

/* What a job trains. */
struct kind {
    bool sequence;    /* positions are cut */
    const char *lora; /* NULL: no adapters */
    int stages;
    const struct layout_rates *rates; /* of the solver; NULL: as Megatron-LM's */
    bool uneven_heads;                /* which ranks do not divide, so that positions are */
    enum weight_format base;          /* of what adapters are added to */
    const char *strategies;           /* with rates: in place of the solver's; micro-batches are of 2 sequences then */
};

struct numbers {
    double loss[STEPS], norm[STEPS];
};

enum { UNEVEN_HEADS = 3 };

/* Two ranks divide positions into pairs of runs, four do not. */
static void expect_positions(const struct harness *harness) {
    const struct recipe *recipe = &harness->plan.chosen.recipe;
    if (recipe->layout != TENSOR_LAYOUT_SOLVER || harness->options.config->heads != UNEVEN_HEADS) return;
    const char *attention = recipe->strategies ? strstr(recipe->strategies, ".attention ") : NULL;
    assert_non_null(attention);
    assert_int_equal(attention[strlen(".attention ")], recipe_tensor_parallel(recipe) == 2 ? 'z' : 't');
}

/* Of bases in fewer bits ranks have parts. */
static void expect_parts(const struct harness *harness) {
    const struct graph *graph = programs_main(&harness->plan.programs)->graph;
    bool quantized = false, cut = false;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        quantized |= tensor->code.format != WEIGHT_PLAIN;
        cut |= tensor->code.format != WEIGHT_PLAIN && tensor->part;
    }
    assert_true(cut == (quantized && harness->options.tensor > 1));
}

static void train(const struct harness_options *options, struct numbers *out) {
    struct harness harness;
    int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    harness_open(options, &harness);
    expect_positions(&harness);
    expect_parts(&harness);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCH * LENGTH; i++) {
            tokens[i] = (int32_t)(random_u64(SEED, RANDOM_TEST, (uint32_t)step, (uint64_t)i) % 211);
            targets[i] = i % 7 ? (tokens[i] * 3 + 1) % 211 : -1;
        }
        harness_set_inputs(&harness, tokens, targets);
        out->loss[step] = harness_step(&harness, 1e-3, false);
        out->norm[step] = *(const double *)harness_data(&harness, "clip");
    }
    harness_finish(&harness);
    harness_close(&harness);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(b); }

static enum status compare(const struct comm *comm, const char *name, const struct numbers *found,
                           const struct numbers *expected) {
    for (int step = 0; step < STEPS; step++)
        if (!near(found->loss[step], expected->loss[step]) || !near(found->norm[step], expected->norm[step]))
            return status_set(
                STATUS_FAILED, "rank %d: %s, step %d: loss %.12g and norm %.12g, one rank has %.12g, %.12g", comm->rank,
                name, step, found->loss[step], found->norm[step], expected->loss[step], expected->norm[step]);
    return STATUS_OK;
}

/* What of a job changes no sum: each has a turn. */
static const struct variant {
    uint64_t policy_seed;
    struct partition partition;
    const char *spans;
} variants[] = {
    {0, {1, 1, 1}, ""}, {3, {1, 1, 1}, "1 2 3"}, {11, {1, 1, 1}, "2"}, {0, {2, 2, 2}, ""}, {0, {1, 2, 2}, "3"}};

/* Under which a solver chooses otherwise: slow work, so that all of it is parted; slow messages, so that few are sent;
 * between these, with little memory. */
static const struct layout_rates solver_rates[] = {
    {1e6, 1e6, 1e-9, 1e12, 0}, {1e8, 1e8, 1e-5, 1e8, 0}, {1e8, 1e9, 1e-6, 1e9, 6e5}, {1e7, 1e7, 1e-4, 1e10, 3e5}};
enum { SOLVER_RATES = sizeof solver_rates / sizeof *solver_rates };

static enum status compare_bits(const struct comm *comm, const char *name, const struct numbers *found,
                                const struct numbers *expected) {
    if (memcmp(found, expected, sizeof *found) == 0) return STATUS_OK;
    return status_set(STATUS_FAILED, "rank %d: %s: a policy has other bits than the plain one", comm->rank, name);
}

/* Before, the same ranks have no stages: lanes are as many in both, and so are the sums of data ranks. */
static enum status train_staged(struct comm *comm, const char *name, int stages, const struct harness_options *given,
                                struct numbers *found) {
    struct harness_options options = *given;
    struct numbers expected;
    train(&options, &expected);
    options.stages = stages;
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        options.policy_seed = variants[v].policy_seed;
        options.spans = variants[v].spans;
        bool cut = partition_cuts(&variants[v].partition);
        if (cut && mesh_ranks(&comm->mesh) == stages * options.tensor) continue;
        options.partition = variants[v].partition;
        train(&options, found);
        TRY(compare_bits(comm, name, found, &expected));
    }
    return STATUS_OK;
}

/* So that two ranks' parts of each matrix are whole blocks. */
enum { QUANTIZED_WIDTH = 128 };
static void widen(struct model_config *config) {
    config->head_dim = QUANTIZED_WIDTH / config->heads;
    config->hidden = config->embedding_width = QUANTIZED_WIDTH;
}

static enum status train_case(struct comm *comm, const char *name, int tensor, const struct kind *kind,
                              size_t variant_count) {
    struct shared_sizes sizes = shared_sizes_usual;
    if (kind->uneven_heads) sizes.heads = UNEVEN_HEADS, sizes.kv_heads = 1;
    if (kind->base != WEIGHT_PLAIN) sizes.ffn = QUANTIZED_WIDTH;
    struct model_config config = shared_model_config(name, &sizes);
    if (kind->base != WEIGHT_PLAIN) widen(&config);
    struct harness_options options = {.config = &config,
                                      .dtype = DTYPE_F32,
                                      .batch = BATCH,
                                      .sequence_length = LENGTH,
                                      .micro_batch_sequences = kind->strategies ? 2 : 1,
                                      .micro_batches_per_wave = 1,
                                      .threads = 1,
                                      .lanes = {1, mesh_ranks(&comm->mesh) / tensor},
                                      .lora = kind->lora,
                                      .quantize_base = kind->base,
                                      .clip_norm = 1,
                                      .weight_decay = 0.1,
                                      .seed = SEED};
    struct numbers expected, found, first;
    train(&options, &expected);
    options.comm = comm;
    options.tensor = tensor;
    options.sequence = kind->sequence;
    if (kind->rates) options.layout_rates = *kind->rates;
    options.strategies = kind->strategies;
    if (kind->stages > 1) {
        TRY(train_staged(comm, name, kind->stages, &options, &found));
        return compare(comm, name, &found, &expected);
    }
    for (size_t v = 0; v < variant_count; v++) {
        options.policy_seed = variants[v].policy_seed;
        options.partition = variants[v].partition;
        train(&options, &found);
        if (v == 0) first = found;
        TRY(compare(comm, name, &found, &expected));
        TRY(compare_bits(comm, name, &found, &first));
    }
    return STATUS_OK;
}

/* Attention by positions, in zigzag and in runs. */
static enum status train_uneven(struct comm *comm, int tensor, size_t variant_count) {
    static const char *const cases[] = {"llama", "gpt2", "gemma2"};
    const struct kind kind = {.stages = 1, .rates = &solver_rates[0], .uneven_heads = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        TRY(train_case(comm, cases[i], tensor, &kind, variant_count));
    return STATUS_OK;
}

/* Sequences along one axis, what Megatron-LM cuts along the other: each part of a parameter is on two ranks. Features
 * out and in along an axis each: parameters are cut along both dimensions. */
static const char *const strategies_of_llama[] = {
    "mesh 2/2\nrope s/.\nembedding s/v\nlayer.0.input_layernorm s/.\nlayer.0.self_attn.q_proj s/n\n"
    "layer.0.self_attn.k_proj s/n\nlayer.0.self_attn.v_proj s/n\nlayer.0.rope.q s/h\nlayer.0.rope.k s/h\n"
    "layer.0.attention s/h\nlayer.0.self_attn.o_proj s/k\nlayer.0.post_attention_layernorm s/.\n"
    "layer.0.mlp.gate_proj s/n\nlayer.0.mlp.up_proj s/n\nlayer.0.mlp.act s/c\nlayer.0.mlp.down_proj s/k\n"
    "norm s/.\nhead s/v\n",
    "mesh 2/2\nrope ./.\nembedding v/c\nlayer.0.input_layernorm ./t\nlayer.0.self_attn.q_proj n/k\n"
    "layer.0.self_attn.k_proj k/n\nlayer.0.self_attn.v_proj n/k\nlayer.0.rope.q h/.\nlayer.0.rope.k h/s\n"
    "layer.0.attention h/s\nlayer.0.self_attn.o_proj n/k\nlayer.0.post_attention_layernorm s/t\n"
    "layer.0.mlp.gate_proj n/k\nlayer.0.mlp.up_proj n/k\nlayer.0.mlp.act c/s\nlayer.0.mlp.down_proj k/n\n"
    "norm t/.\nhead v/s\n",
};

static enum status train_two_axes(struct comm *comm, int tensor, size_t variant_count) {
    for (size_t i = 0; i < sizeof strategies_of_llama / sizeof *strategies_of_llama; i++) {
        struct kind kind = {.stages = 1, .rates = &solver_rates[0], .strategies = strategies_of_llama[i]};
        TRY(train_case(comm, "llama", tensor, &kind, variant_count));
        kind.stages = mesh_ranks(&comm->mesh) / tensor;
        if (kind.stages > 1) TRY(train_case(comm, "llama", tensor, &kind, variant_count));
    }
    return STATUS_OK;
}

/* Each rank has a part of each expert; positions are cut by turns. */
static enum status train_experts(struct comm *comm, int tensor, size_t variant_count) {
    static const char *const cases[] = {EXPERT_MODEL_CASES};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += unit_sweep(tensor > 2 ? 6 : 3, 1)) {
        const struct kind kind = {.stages = 1, .sequence = i % 2 != 0};
        TRY(train_case(comm, cases[i], tensor, &kind, variant_count));
    }
    return STATUS_OK;
}

static enum status train_solved(struct comm *comm, const char *name, int tensor, size_t variant_count,
                                const struct layout_rates *rates) {
    const struct kind kind = {.stages = 1, .rates = rates};
    return train_case(comm, name, tensor, &kind, variant_count);
}

/* Adapters on frozen weights in fewer bits, of which ranks have parts; phi3's are packed.
 */
static enum status train_quantized(struct comm *comm, int tensor, size_t variant_count) {
    static const struct {
        const char *name, *lora;
        enum weight_format base;
    } subjects[] = {{"llama", "3,6,q_proj,v_proj", WEIGHT_NF4},
                    {"phi3", "3,6,down_proj", WEIGHT_NF4},
                    {"qwen3", "3,6,q_proj,v_proj", WEIGHT_MXFP4}};
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        const struct kind kind = {.stages = 1, .lora = subjects[i].lora, .base = subjects[i].base};
        TRY(train_case(comm, subjects[i].name, tensor, &kind, i == 0 ? variant_count : 1));
    }
    return STATUS_OK;
}

/* All families, the solver's rates by turns; in a sweep each under all of them. */
static enum status solve_cases(struct comm *comm, int tensor) {
    static const char *const cases[] = {DENSE_MODEL_CASES};
    size_t count = sizeof cases / sizeof *cases, each = unit_sweep(tensor > 2 ? 13 : 7, 1);
    for (size_t i = 0; i < count; i += each)
        for (size_t r = 0; r < SOLVER_RATES; r += unit_sweep(SOLVER_RATES, 1))
            TRY(train_solved(comm, cases[i], tensor, 2, &solver_rates[(i / each + r) % SOLVER_RATES]));
    return STATUS_OK;
}

/* arguments: how many ranks share a tensor; "all" families, or "some" under every variant; "whole", "sequence" to cut
 * positions, "adapters", "stages" of a pipeline, "uneven" heads, "quantized" bases, "experts", two "axes", or "solver",
 * where "some" is one family. */
static enum status body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    static const char *const cases[] = {DENSE_MODEL_CASES}, *const some[] = {"llama", "gpt2", "qwen3", "gemma2"};
    bool adapters = strcmp(arguments[2], "adapters") == 0;
    const struct kind kind = {.sequence = adapters || strcmp(arguments[2], "sequence") == 0,
                              .lora = adapters ? "4,8,all-linear" : NULL,
                              .stages = strcmp(arguments[2], "stages") == 0 ? 2 : 1};
    int tensor = atoi(arguments[0]);
    bool all = strcmp(arguments[1], "all") == 0, partitions = mesh_ranks(&comm->mesh) > tensor;
    size_t count = all ? sizeof cases / sizeof *cases : sizeof some / sizeof *some;
    if (strcmp(arguments[2], "solver") == 0)
        return all ? solve_cases(comm, tensor) : train_solved(comm, "llama", tensor, 5, &solver_rates[0]);
    if (strcmp(arguments[2], "quantized") == 0) return train_quantized(comm, tensor, partitions ? 5 : 3);
    if (strcmp(arguments[2], "uneven") == 0) return train_uneven(comm, tensor, partitions ? 5 : 3);
    if (strcmp(arguments[2], "axes") == 0) return train_two_axes(comm, tensor, partitions ? 5 : 3);
    if (strcmp(arguments[2], "experts") == 0) return train_experts(comm, tensor, partitions ? 5 : 3);
    size_t each = all ? unit_sweep(tensor > 2 ? 7 : 2, 1) : kind.stages > 1 ? unit_sweep(3, 1) : 1;
    for (size_t i = 0; i < count; i += each)
        TRY(train_case(comm, all ? cases[i] : some[i], tensor, &kind, all ? 1 : partitions ? 5 : 3));
    return STATUS_OK;
}

static void expect_job(int ranks, const char *tensor, const char *what, const char *how, bool messages) {
    struct rank_job job = {.ranks = ranks, .messages = messages, .arguments = {tensor, what, how}};
    if (rank_job_run(&job) != STATUS_OK) fail_msg("%d ranks: %s", ranks, status_message());
}

static void every_family_trains_on_two_ranks(void **state) {
    (void)state;
    expect_job(2, "2", "all", "whole", false);
}

static void families_train_on_four_ranks(void **state) {
    (void)state;
    expect_job(4, "4", "all", "whole", false);
}

static void policies_and_messages_change_nothing_that_counts(void **state) {
    (void)state;
    expect_job(2, "2", "some", "whole", true);
}

static void data_ranks_and_partitions_stand_beside(void **state) {
    (void)state;
    expect_job(4, "2", "some", "whole", false);
}

static void families_train_with_positions_cut(void **state) {
    (void)state;
    expect_job(2, "2", "all", "sequence", false);
    expect_job(4, "4", "all", "sequence", false);
}

static void policies_and_partitions_stand_beside_positions(void **state) {
    (void)state;
    expect_job(4, "2", "some", "sequence", false);
}

static void adapters_are_cut_as_their_weights_are(void **state) {
    (void)state;
    expect_job(2, "2", "some", "adapters", false);
}

static void adapters_beside_fewer_bits_train_as_on_one_rank(void **state) {
    (void)state;
    expect_job(2, "2", "some", "quantized", false);
    expect_job(4, "2", "some", "quantized", false);
}

/* Of 4 ranks, and in make check of 8 with data ranks with partitions. */
static void stages_change_no_bit(void **state) {
    (void)state;
    expect_job(4, "2", "some", "stages", false);
    if (unit_sweep(0, 1)) expect_job(8, "2", "some", "stages", false);
}

static void what_the_solver_chose_trains_as_one_rank_does(void **state) {
    (void)state;
    expect_job(2, "2", "all", "solver", false);
    expect_job(4, "4", "all", "solver", false);
    expect_job(4, "2", "some", "solver", true);
}

static void attention_by_positions_trains_as_one_rank_does(void **state) {
    (void)state;
    expect_job(2, "2", "some", "uneven", true);
    expect_job(4, "4", "some", "uneven", false);
    expect_job(4, "2", "some", "uneven", false);
}

static void experts_are_cut_by_their_features(void **state) {
    (void)state;
    expect_job(2, "2", "some", "experts", false);
    expect_job(4, "4", "some", "experts", true);
    if (unit_sweep(0, 1)) expect_job(4, "2", "some", "experts", false);
}

/* In make check of 8 with data ranks with partitions, and as two stages, to the bit as without. */
static void ranks_of_two_axes_train_as_one_rank_does(void **state) {
    (void)state;
    expect_job(4, "4", "some", "axes", false);
    if (unit_sweep(0, 1)) expect_job(8, "4", "some", "axes", true);
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, body);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_trains_on_two_ranks),
        cmocka_unit_test(families_train_on_four_ranks),
        cmocka_unit_test(policies_and_messages_change_nothing_that_counts),
        cmocka_unit_test(data_ranks_and_partitions_stand_beside),
        cmocka_unit_test(families_train_with_positions_cut),
        cmocka_unit_test(policies_and_partitions_stand_beside_positions),
        cmocka_unit_test(adapters_are_cut_as_their_weights_are),
        cmocka_unit_test(adapters_beside_fewer_bits_train_as_on_one_rank),
        cmocka_unit_test(stages_change_no_bit),
        cmocka_unit_test(what_the_solver_chose_trains_as_one_rank_does),
        cmocka_unit_test(attention_by_positions_trains_as_one_rank_does),
        cmocka_unit_test(experts_are_cut_by_their_features),
        cmocka_unit_test(ranks_of_two_axes_train_as_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
