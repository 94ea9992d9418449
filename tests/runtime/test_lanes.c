/* Lanes and rounds on one rank: gradients and loss of a step equal, to the bit, the tree sum of runs over each
 * lane's micro-batches. No policy changes them. */
/* ctest: PROCESSORS 2 TIMEOUT 900 LABELS long */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "collective/lane_tree.h"
#include "support/outcome.h"
#include "support/policy_features.h"
#include "support/policy_subject.h"
#include "support/unit.h"

enum { TOKENS = 13, MICRO_BATCH = 2, ROWS_MAX = 40 };

struct subject {
    const char *model, *lora, *freeze;
    enum dtype dtype;
};

struct cut {
    struct lane_shape lanes;
    int64_t round_micro_batches, rows, micro_batches_per_wave;
    enum dtype reduce_dtype;
};

/* ---- the gradients of a run ---- */

/* As the squared norms read them, and the sum of the losses. */
struct gradients {
    const struct program *program;
    size_t tensors;
    float **of;        /* by the parameter's tensor id */
    int64_t *elements; /* of each */
    double loss;
};

static struct gradients gradients_create(size_t tensors) {
    struct gradients gradients = {.tensors = tensors};
    gradients.of = mem_array(tensors, sizeof *gradients.of);
    gradients.elements = mem_array(tensors, sizeof *gradients.elements);
    assert_true(gradients.of && gradients.elements);
    return gradients;
}

static void keep_gradient(void *payload, const struct runner *runner, int32_t index, int64_t repetition) {
    struct gradients *gradients = payload;
    const struct instruction *instruction = &gradients->program->instructions.items[index];
    if (!instruction->node || strcmp(instruction->node->op->name, "squared_sums") != 0) return;
    const struct tensor *gradient = instruction->node->in[0];
    float **kept = &gradients->of[gradient->parameter->id];
    assert_null(*kept); /* once a step */
    gradients->elements[gradient->parameter->id] = shape_elements(&gradient->shape);
    *kept = mem_array((size_t)shape_elements(&gradient->shape), sizeof **kept);
    assert_non_null(*kept);
    assert_int_equal(runner_read_operand(runner, &instruction->operands[0], repetition, *kept), STATUS_OK);
}

/* Rows [first, first + batch) of those that there are; the others count nothing, as those that fill up a micro-batch.
 */
static void set_rows(struct harness *harness, int64_t first, int64_t all) {
    int64_t rows = harness->options.batch, count = rows * TOKENS;
    int32_t tokens[ROWS_MAX * TOKENS], targets[ROWS_MAX * TOKENS];
    for (int64_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)(first * TOKENS + i);
        bool unpadded = at < (uint64_t)(all * TOKENS);
        tokens[i] = unpadded ? (int32_t)(random_u64(5, RANDOM_TEST, 9, at) % OUTCOME_VOCAB) : 0;
        targets[i] = !unpadded ? TARGET_PADDING : at % 11 == 0 ? -100 : (tokens[i] * 7 + 3) % OUTCOME_VOCAB;
    }
    harness_set_inputs(harness, tokens, targets);
}

/* One step over rows [first, first + cut->rows) of `all`, whose loss is scaled alike in all runs. */
static struct gradients run(const struct subject *subject, const struct cut *cut, int64_t first, int64_t all) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/models/%s", BALLAST_FIXTURES, subject->model);
    struct harness_options options = {.folder = folder,
                                      .lora = subject->lora,
                                      .freeze = subject->freeze,
                                      .purpose = MODEL_LOSS,
                                      .dtype = subject->dtype,
                                      .batch = cut->rows,
                                      .sequence_length = TOKENS,
                                      .micro_batch_sequences = MICRO_BATCH,
                                      .micro_batches_per_wave = cut->micro_batches_per_wave,
                                      .lanes = cut->lanes,
                                      .round_micro_batches = cut->round_micro_batches,
                                      .reduce_dtype = cut->reduce_dtype,
                                      .clip_norm = 0.5,
                                      .seed = 4};
    struct harness harness;
    const double scalars[SCALAR_COUNT] = {
        [SCALAR_LOSS_SCALE] = 1.0 / 61, [SCALAR_BIAS_CORRECTION] = 1, [SCALAR_BIAS_CORRECTION_SQ] = 1};
    harness_open(&options, &harness);
    struct gradients gradients = gradients_create(harness_graph(&harness)->tensors.count);
    gradients.program = harness.executable->program;
    set_rows(&harness, first, all);
    runner_set_observer(harness.runner, keep_gradient, &gradients);
    assert_int_equal(runner_step(harness.runner, scalars), STATUS_OK);
    const double *losses = harness_data(&harness, "loss");
    assert_int_equal(step_collectives_loss(&harness.engine.collectives, losses, &gradients.loss), STATUS_OK);
    harness_close(&harness);
    return gradients;
}

static void gradients_free(struct gradients *gradients) {
    for (size_t i = 0; i < gradients->tensors; i++)
        mem_free(gradients->of[i]);
    mem_free(gradients->of);
    mem_free(gradients->elements);
}

/* ---- the same, each lane by itself ---- */

/* One round: what each lane gives alone. */
struct round {
    struct lane_tree tree;
    struct gradients *lane;
    bool *empty, *absent;       /* by lane, by node */
    struct lane_values *values; /* by lane: of one gradient */
    bool rounds;                /* edges do, to bf16 */
};

static struct round round_run(const struct subject *subject, const struct recipe *recipe, int64_t number) {
    struct round round;
    assert_int_equal(lane_tree_of_shape(&recipe->lanes, &round.tree), STATUS_OK);
    size_t lanes = (size_t)round.tree.lanes;
    round.rounds = recipe->reduce_dtype == DTYPE_BF16;
    round.lane = mem_array(lanes, sizeof *round.lane);
    round.empty = mem_array(lanes, sizeof *round.empty);
    round.absent = mem_array(2 * lanes, sizeof *round.absent);
    round.values = mem_array(lanes, sizeof *round.values);
    assert_true(round.lane && round.empty && round.absent && round.values);
    for (int l = 0; l < round.tree.lanes; l++) {
        struct micro_batch_range micro_batches = lane_shares_micro_batches(recipe, l, number);
        struct cut alone = {.rows = micro_batches.count * MICRO_BATCH, .micro_batches_per_wave = 1};
        round.empty[l] = micro_batches.count == 0;
        if (!round.empty[l]) round.lane[l] = run(subject, &alone, micro_batches.first * MICRO_BATCH, recipe->batch);
    }
    lane_find_absent(&round.tree, round.empty, round.absent);
    return round;
}

static void round_free(struct round *round) {
    for (int l = 0; l < round->tree.lanes; l++)
        if (!round->empty[l]) gradients_free(&round->lane[l]);
    lane_tree_free(&round->tree);
    mem_free(round->lane);
    mem_free(round->empty);
    mem_free(round->absent);
    mem_free(round->values);
}

/* Adds the sum of its lanes to the total of the rounds before. */
static void round_add(struct round *round, struct gradients *total) {
    for (size_t i = 0; i < total->tensors; i++) {
        int64_t elements = total->elements[i] = round->lane[0].elements[i];
        if (!round->lane[0].of[i]) continue;
        float *sum = mem_array((size_t)elements, sizeof *sum);
        assert_non_null(sum);
        for (int l = 0; l < round->tree.lanes; l++)
            round->values[l].plain = round->empty[l] ? NULL : round->lane[l].of[i];
        lane_tree_sum(&round->tree, 0, round->absent, round->values, elements, round->rounds, sum);
        if (total->of[i]) lane_add(sum, total->of[i], sum, elements, false);
        mem_free(total->of[i]);
        total->of[i] = sum;
    }
}

static struct gradients run_apart(const struct subject *subject, const struct recipe *recipe, size_t tensors) {
    struct gradients total = gradients_create(tensors);
    int64_t in_lane = recipe_lane_micro_batches(recipe), in_share = recipe_share_micro_batches(recipe), rounds = 0;
    int lanes = lane_shape_lanes(&recipe->lanes);
    double *losses = mem_array((size_t)(in_lane * lanes), sizeof *losses);
    assert_non_null(losses);
    struct lane_tree tree;
    assert_int_equal(lane_tree_of_shape(&recipe->lanes, &tree), STATUS_OK);
    for (; rounds * in_share < in_lane; rounds++) {
        struct round round = round_run(subject, recipe, rounds);
        for (int l = 0; l < lanes; l++)
            losses[rounds * lanes + l] = round.empty[l] ? 0 : round.lane[l].loss;
        round_add(&round, &total);
        round_free(&round);
    }
    total.loss = lane_shares_total(recipe, &tree, losses);
    lane_tree_free(&tree);
    mem_free(losses);
    return total;
}

static void require_equal(const char *what, const struct gradients *one, const struct gradients *apart) {
    int compared = 0;
    if (memcmp(&one->loss, &apart->loss, sizeof one->loss) != 0)
        fail_msg("%s: loss %.17g, of lanes by themselves %.17g", what, one->loss, apart->loss);
    for (size_t i = 0; i < one->tensors; i++) {
        assert_int_equal(!one->of[i], !apart->of[i]);
        if (!one->of[i]) continue;
        if (memcmp(one->of[i], apart->of[i], (size_t)one->elements[i] * sizeof(float)) != 0)
            fail_msg("%s: the gradient of tensor %zu is another", what, i);
        compared++;
    }
    assert_true(compared > 1);
}

static const struct subject subjects[] = {{"llama", NULL, NULL, DTYPE_F32},
                                          {"gpt2", NULL, NULL, DTYPE_BF16}, /* tied, and positions next to tokens */
                                          {"llama_tied", NULL, NULL, DTYPE_F32},
                                          {"qwen3_bias", "2,4,all-linear", NULL, DTYPE_BF16},
                                          {"opt", NULL, "*.0.*", DTYPE_F32}};

/* Rows: the last micro-batch is short in the odd ones; lanes may be short, and more than the micro-batches. */
static const struct cut cuts[] = {
    {{1, 8}, 0, 31, 1, DTYPE_F32}, {{2, 4}, 0, 31, 2, DTYPE_BF16}, {{1, 3}, 0, 13, 3, DTYPE_F32},
    {{1, 8}, 0, 5, 1, DTYPE_BF16}, {{1, 5}, 1, 25, 1, DTYPE_F32},  {{2, 3}, 2, 37, 2, DTYPE_BF16},
    {{1, 1}, 2, 9, 2, DTYPE_F32},  {{3, 1}, 1, 13, 1, DTYPE_BF16}, {{1, 7}, 0, 17, 1, DTYPE_F32}};

static void lanes_add_up_to_what_each_gives_alone(void **state) {
    (void)state;
    size_t count = sizeof cuts / sizeof *cuts;
    uint64_t each = unit_sweep(3, count);
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++)
        for (size_t c = 0; c < each; c++) {
            const struct cut *cut = &cuts[(s * each + c) % count];
            struct gradients one = run(&subjects[s], cut, 0, cut->rows);
            const struct recipe recipe = {.batch = cut->rows,
                                          .sequence_length = TOKENS,
                                          .micro_batch_sequences = MICRO_BATCH,
                                          .lanes = cut->lanes,
                                          .round_micro_batches = cut->round_micro_batches,
                                          .reduce_dtype = cut->reduce_dtype};
            struct gradients apart = run_apart(&subjects[s], &recipe, one.tensors);
            char what[160], shape[LANE_SHAPE_BYTES];
            snprintf(what, sizeof what, "%s, lanes %s, rounds of %lld micro-batches, %lld rows, sums in %s",
                     subjects[s].model, lane_shape_print(&cut->lanes, shape), (long long)cut->round_micro_batches,
                     (long long)cut->rows, dtype_name(cut->reduce_dtype));
            print_message("%s\n", what);
            require_equal(what, &one, &apart);
            gradients_free(&one);
            gradients_free(&apart);
        }
}

/* ---- policies ---- */

static void no_policy_changes_the_bits_of_lanes(void **state) {
    (void)state;
    static const struct policy_way ways[] = {
        {.lanes = {1, 8}}, {.lanes = {1, 3}}, {.lanes = {2, 2}, .round_micro_batches = 1}, {.round_micro_batches = 2}};
    uint64_t each = unit_sweep(2, 40), lanes = sizeof ways / sizeof *ways;
    for (size_t s = 0; s < policy_subject_count; s++) {
        const struct policy_subject *subject = &policy_subjects[s];
        struct policy_way way = ways[s % lanes];
        struct outcome plain = policy_train(subject, &way);
        for (uint64_t i = 1; i <= each; i++) {
            char what[160], shape[LANE_SHAPE_BYTES];
            way.policy_seed = 5000 * (s + 1) + i;
            way.interleaved = i % 2 == 0;
            struct outcome other = policy_train(subject, &way);
            snprintf(what, sizeof what, "%s, lanes %s: policy of seed %llu", subject->name,
                     lane_shape_print(&way.lanes, shape), (unsigned long long)way.policy_seed);
            outcome_require_equal(what, &plain, &other);
        }
    }
}

/* Otherwise the cases above would not see which lane is added to which. */
static void another_tree_has_other_bits(void **state) {
    (void)state;
    const struct policy_subject *subject = &policy_subjects[0];
    struct outcome one = policy_train(subject, &(struct policy_way){0});
    struct outcome five = policy_train(subject, &(struct policy_way){.lanes = {1, 5}});
    struct outcome apart = policy_train(subject, &(struct policy_way){.lanes = {5, 1}});
    struct outcome rounds = policy_train(subject, &(struct policy_way){.lanes = {1, 5}, .round_micro_batches = 1});
    struct outcome three = policy_train(subject, &(struct policy_way){.lanes = {1, 3}});
    assert_true(one.weights != five.weights && one.weights != three.weights && five.weights != three.weights);
    struct policy_way rounded = {.lanes = {1, 5}, .reduce_dtype = DTYPE_BF16}, alone = {.reduce_dtype = DTYPE_BF16};
    struct outcome in_bf16 = policy_train(subject, &rounded), one_lane = policy_train(subject, &alone);
    assert_true(in_bf16.weights != five.weights);
    outcome_require_equal("one lane has no edge that rounds", &one, &one_lane);
    outcome_require_equal("5x1 is the tree of 5", &five, &apart);
    outcome_require_equal("one micro-batch a lane is one round", &five, &rounds);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lanes_add_up_to_what_each_gives_alone),
                                       cmocka_unit_test(no_policy_changes_the_bits_of_lanes),
                                       cmocka_unit_test(another_tree_has_other_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
