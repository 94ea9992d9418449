/* Kernels against plain loops in double, in cases that the reference tensors lack: the head with a bias, pairs,
 * parts of tensors. Attention has its own test. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "support/plain_case.h"
#include "support/unit.h"

static double soft_cap(double value, double softcap) { return softcap > 0 ? softcap * tanh(value / softcap) : value; }

static void the_last_token_is_that_of_plain_c(void **state) {
    (void)state;
    struct op_instance instance = plain_case_make("last_token.views", DTYPE_BF16);
    op_instance_run_all(&instance);
    double *x = plain_case_values(&instance, "x"), *y = op_instance_read(&instance, instance.node->out[0]);
    const struct shape *shape = &instance.node->in[0]->shape;
    int64_t columns = shape_columns(shape), last = shape->dims[1] - 2;
    for (int64_t s = 0; s < shape->dims[0]; s++)
        assert_memory_equal(y + s * columns, x + (s * shape->dims[1] + last) * columns,
                            (size_t)columns * sizeof(double));
    mem_free(x);
    mem_free(y);
    op_instance_free(&instance);
}

/* Logits of one token in double. */
static void plain_logits(const double *x, const double *weight, const double *bias, int64_t vocab, int64_t columns,
                         double softcap, double *logits) {
    for (int64_t v = 0; v < vocab; v++) {
        logits[v] = bias[v];
        for (int64_t c = 0; c < columns; c++)
            logits[v] += x[c] * weight[v * columns + c];
        logits[v] = soft_cap(logits[v], softcap);
    }
}

static void check_head(const char *loss_case, const char *logits_case) {
    struct op_instance loss = plain_case_make(loss_case, DTYPE_F32), logits = plain_case_make(logits_case, DTYPE_F32);
    double softcap = NODE_ATTRIBUTES(loss.node, head_attributes)->softcap;
    const struct shape *shape = &loss.node->in[0]->shape;
    int64_t rows = shape_rows(shape), columns = shape_columns(shape), vocab = loss.node->in[1]->shape.dims[0];
    double *x = plain_case_values(&loss, "x"), *weight = plain_case_values(&loss, "weight"),
           *bias = plain_case_values(&loss, "bias");
    double *targets = plain_case_values(&loss, "targets"), expected = *(double *)loss.data[loss.node->out[0]->id];
    const char *const shared[] = {"x", "weight", "bias"};
    double *const shared_values[] = {x, weight, bias};
    for (int i = 0; i < 3; i++)
        op_instance_write(&logits, op_case_tensor(logits.graph, shared[i]), shared_values[i]);
    op_instance_run_all(&loss);
    op_instance_run_all(&logits);
    double *found = op_instance_read(&logits, logits.node->out[0]), *row = mem_array((size_t)vocab, sizeof *row);
    for (int64_t r = 0; r < rows; r++) {
        plain_logits(x + r * columns, weight, bias, vocab, columns, softcap, row);
        plain_case_expect("logits", found + r * vocab, row, vocab, 1e-6);
        double total = 0;
        for (int64_t v = 0; v < vocab; v++)
            total += exp(row[v]);
        if (targets[r] >= 0) expected += log(total) - row[(int64_t)targets[r]];
    }
    plain_case_expect("loss", (double *)loss.data[loss.node->out[0]->id], &expected, 1, 1e-6);
    double *all[] = {x, weight, bias, targets, found, row};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&loss);
    op_instance_free(&logits);
}

static void log_probabilities_are_those_of_plain_c(void **state) {
    (void)state;
    if (!op_instance_has_kernel(&op_head_log_probability)) skip();
    struct op_instance own = plain_case_make("head_log_probability.capped", DTYPE_F32);
    double softcap = NODE_ATTRIBUTES(own.node, head_attributes)->softcap;
    int64_t columns = shape_columns(&own.node->in[0]->shape), rows = shape_rows(&own.node->in[0]->shape),
            vocab = own.node->in[1]->shape.dims[0];
    double *x = plain_case_values(&own, "x"), *weight = plain_case_values(&own, "weight"),
           *bias = plain_case_values(&own, "bias"), *targets = plain_case_values(&own, "targets"),
           *logits = mem_array((size_t)vocab, sizeof *logits);
    op_instance_run_all(&own);
    double *found = op_instance_read(&own, own.node->out[0]);
    for (int64_t r = 0; r < rows; r++) {
        double total = 0, expected = 0;
        plain_logits(x + r * columns, weight, bias, vocab, columns, softcap, logits);
        for (int64_t v = 0; v < vocab; v++)
            total += exp(logits[v]);
        if (targets[r] >= 0) expected = logits[(int64_t)targets[r]] - log(total);
        plain_case_expect("log-probability", found + r, &expected, 1, 1e-6);
    }
    double *all[] = {x, weight, bias, targets, logits, found};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&own);
}

/* A head whose logits lie where its weight's gradient will be, next to one with tiles of logits. */
static void check_beginning(const char *name, enum dtype dtype, double max) {
    struct op_case without = *plain_case_find(name);
    struct op_instance begins = plain_case_make(name, dtype), tiles;
    without.flags &= ~(unsigned)CASE_BEGINS;
    assert_int_equal(op_instance_create(op_case_build(&without, dtype, &without.sizes), &tiles), STATUS_OK);
    op_instance_fill(&tiles, 31);
    const struct tensor *dweight = op_case_tensor(tiles.graph, "d.weight");
    memset(tiles.data[dweight->id], 0, (size_t)shape_bytes(&dweight->shape));
    op_instance_run_all(&begins);
    op_instance_run_all(&tiles);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        const struct tensor *own = begins.node->out[i], *other = tiles.node->out[i];
        if (!own) continue;
        double *found = op_instance_read(&begins, own), *expected = op_instance_read(&tiles, other);
        plain_case_expect(own->name, found, expected, shape_elements(&own->shape), max);
        mem_free(found);
        mem_free(expected);
    }
    op_instance_free(&begins);
    op_instance_free(&tiles);
}

static void a_head_may_begin_the_gradient_of_its_weight(void **state) {
    (void)state;
    if (op_instance_on_cuda()) skip();
    static const char *const names[] = {"head_loss_grad.begins", "head_loss_grad.begins.all"};
    for (int i = 0; i < 2; i++) {
        check_beginning(names[i], DTYPE_F32, 1e-6);
        check_beginning(names[i], DTYPE_BF16, 4e-3);
    }
}

/* The loss of a pair, and what its slope is by each token of the chosen and of the rejected sequence. */
struct plain_pair {
    double loss, slope[2];
};

static struct plain_pair plain_pair_of(const struct preference_attributes *attributes, const double gain[2],
                                       const int tokens[2]) {
    double beta = attributes->beta, part = attributes->label_smoothing, m = beta * (gain[0] - gain[1]), slope;
    double right = -log(1 / (1 + exp(-m))), wrong = -log(1 / (1 + exp(m)));
    double away = gain[0] / tokens[0] - gain[1] / tokens[1] - 0.5 / beta;
    switch (attributes->loss) {
    case PAIR_LOSS_HINGE: return (struct plain_pair){fmax(0, 1 - m), {m < 1 ? -beta : 0, m < 1 ? beta : 0}};
    case PAIR_LOSS_IPO: return (struct plain_pair){away * away, {2 * away / tokens[0], -2 * away / tokens[1]}};
    case PAIR_LOSS_ROBUST:
        slope = beta * ((1 - part) / (1 + exp(m)) + part / (1 + exp(-m))) / (1 - 2 * part);
        return (struct plain_pair){((1 - part) * right - part * wrong) / (1 - 2 * part), {-slope, slope}};
    default:
        slope = beta * ((1 - part) / (1 + exp(m)) - part / (1 + exp(-m)));
        return (struct plain_pair){(1 - part) * right + part * wrong, {-slope, slope}};
    }
}

/* Pair 0 has no targets where `blank`. */
static void check_preference(const char *name, bool blank) {
    struct op_instance own = plain_case_make(name, DTYPE_F32);
    const struct preference_attributes *attributes = NODE_ATTRIBUTES(own.node, preference_attributes);
    double figures[PREFERENCE_FIGURES];
    const struct tensor *labels = op_case_tensor(own.graph, "targets");
    int64_t length = own.node->in[0]->shape.dims[1], sequences = own.node->in[0]->shape.dims[0];
    double *targets = plain_case_values(&own, "targets");
    for (int64_t i = 0; i < 2 * length && blank; i++)
        targets[i] = -100;
    for (int64_t i = 0; i < length / 3; i++)
        targets[(sequences - 1) * length + i] = -100; /* answers of unequal lengths */
    op_instance_write(&own, labels, targets);
    double *y = plain_case_values(&own, "y"), *reference = plain_case_values(&own, "reference");
    double *expected = mem_array((size_t)(sequences * length), sizeof *expected);
    memcpy(figures, own.data[own.node->out[0]->id], sizeof figures);
    op_instance_run_all(&own);
    for (int64_t s = blank ? 2 : 0; s < sequences; s += 2) {
        double gain[2] = {-reference[s], -reference[s + 1]};
        int tokens[2] = {0};
        for (int64_t i = 0; i < 2 * length; i++)
            if (targets[s * length + i] >= 0) gain[i / length] += y[s * length + i], tokens[i / length]++;
        struct plain_pair pair = plain_pair_of(attributes, gain, tokens);
        figures[PREFERENCE_LOSS] += pair.loss;
        figures[PREFERENCE_CHOSEN] += attributes->beta * gain[0];
        figures[PREFERENCE_REJECTED] += attributes->beta * gain[1];
        figures[PREFERENCE_RIGHT] += gain[0] > gain[1];
        for (int64_t i = 0; i < 2 * length; i++)
            if (targets[s * length + i] >= 0)
                expected[s * length + i] = own.scalars[SCALAR_LOSS_SCALE] * pair.slope[i / length];
    }
    double *found = op_instance_read(&own, own.node->out[1]);
    plain_case_expect("figures", own.data[own.node->out[0]->id], figures, PREFERENCE_FIGURES, 1e-12);
    plain_case_expect("dy", found, expected, sequences * length, 1e-6);
    double *all[] = {targets, y, reference, expected, found};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&own);
}

static void the_loss_of_pairs_is_that_of_plain_c(void **state) {
    (void)state;
    if (!op_instance_has_kernel(&op_preference_loss)) skip();
    check_preference("preference_loss_grad", false);
    check_preference("preference_loss_grad", true);
    check_preference("preference_loss_grad.smoothed", false);
    check_preference("preference_loss_grad.robust", true);
    check_preference("preference_loss_grad.hinge", false);
    check_preference("preference_loss_grad.ipo", false);
}

/* Of a part of the vocabulary, and rows of the weight that stand for no token. */
static void check_statistics(const char *name) {
    struct op_instance own = plain_case_make(name, DTYPE_F32);
    const struct head_attributes *attributes = NODE_ATTRIBUTES(own.node, head_attributes);
    const struct vocabulary_part *part = &attributes->part;
    int64_t columns = shape_columns(&own.node->in[0]->shape), rows = shape_rows(&own.node->in[0]->shape);
    double *x = plain_case_values(&own, "x"), *weight = plain_case_values(&own, "weight"),
           *targets = plain_case_values(&own, "targets");
    double *bias = own.node->in[3] ? plain_case_values(&own, "bias") : mem_array((size_t)part->rows, sizeof *bias);
    double *logits = mem_array((size_t)part->rows, sizeof *logits);
    op_instance_run_all(&own);
    double *found = op_instance_read(&own, own.node->out[0]);
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = (int64_t)targets[r] - part->first;
        double expected[HEAD_STATISTICS] = {[STATISTIC_LARGEST] = -INFINITY};
        plain_logits(x + r * columns, weight, bias, part->rows, columns, attributes->softcap, logits);
        for (int64_t v = 0; v < part->rows; v++)
            expected[STATISTIC_LARGEST] = fmax(expected[STATISTIC_LARGEST], logits[v]);
        for (int64_t v = 0; v < part->rows; v++)
            expected[STATISTIC_SUM] += exp(logits[v] - expected[STATISTIC_LARGEST]);
        if (target >= 0 && target < part->rows) expected[STATISTIC_TARGET] = logits[target];
        if (targets[r] < 0) memcpy(expected, (double[]){0, 1, 0}, sizeof expected);
        plain_case_expect("statistics", found + r * HEAD_STATISTICS, expected, HEAD_STATISTICS, 1e-6);
    }
    double *all[] = {x, weight, targets, bias, logits, found};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&own);
}

static void statistics_of_a_part_are_those_of_plain_c(void **state) {
    (void)state;
    check_statistics("head_statistics");
    check_statistics("head_statistics.capped");
}

static void the_head_is_that_of_plain_c(void **state) {
    (void)state;
    check_head("head_loss.bias", "head_logits.bias");
    check_head("head_loss.capped", "head_logits.capped");
}

enum { PARTS = 3 };

/* The part that has an element of a dimension, whose parts have `size`; the element's place there. */
static int64_t find_part(int64_t *at, int64_t size, bool zigzag) {
    int64_t run = zigzag ? size / 2 : size, number = *at / run;
    bool back = number >= PARTS;
    *at = *at % run + (back ? run : 0);
    return back ? 2 * PARTS - 1 - number : number;
}

/* Element by element of the whole [S,T,C], whose dimension is cut into three: the part that has it, and its place
 * there; `own` >= 0: only that part's are wanted. */
static void check_parts(const char *name, enum dtype dtype, int dimension, int64_t own) {
    struct op_instance instance = plain_case_make(name, dtype);
    bool zigzag = strstr(name, ".zigzag") != NULL;
    bool joins = instance.node->op == &op_from_parts;
    const struct shape *shape = &instance.node->in[0]->shape, *whole = joins ? &instance.node->out[0]->shape : shape;
    op_instance_run_all(&instance);
    double *x = plain_case_values(&instance, "x"), *y = plain_case_values(&instance, "y");
    int64_t part_dims[3], part_elements = shape_elements(whole) / PARTS, checked = 0;
    for (int d = 0; d < 3; d++)
        part_dims[d] = whole->dims[d] / (d == dimension ? PARTS : 1);
    for (int64_t i = 0; i < shape_elements(whole); i++) {
        int64_t at[3] = {i / whole->dims[2] / whole->dims[1], i / whole->dims[2] % whole->dims[1], i % whole->dims[2]};
        int64_t part = find_part(&at[dimension], part_dims[dimension], zigzag);
        int64_t place = (at[0] * part_dims[1] + at[1]) * part_dims[2] + at[2];
        if (own >= 0 && part != own) continue;
        int64_t in_parts = (own >= 0 ? 0 : part * part_elements) + place, from = joins ? in_parts : i;
        double found = y[joins ? i : in_parts], expected = x[from];
        double max = instance.node->out[0]->shape.dtype == DTYPE_BF16 ? 4e-3 * fabs(expected) : 0;
        if (!(fabs(found - expected) <= max))
            fail_msg("%s: element %lld: %g, not %g", name, (long long)i, found, expected);
        checked++;
    }
    assert_int_equal(checked, own >= 0 ? part_elements : shape_elements(whole));
    mem_free(x);
    mem_free(y);
    op_instance_free(&instance);
}

static void check_copy(const char *name, enum dtype dtype) {
    struct op_instance instance = plain_case_make(name, dtype);
    op_instance_run_all(&instance);
    double *x = plain_case_values(&instance, "x"), *y = plain_case_values(&instance, "y");
    assert_memory_equal(x, y, (size_t)shape_elements(&instance.node->out[0]->shape) * sizeof *x);
    mem_free(x);
    mem_free(y);
    op_instance_free(&instance);
}

static void parts_are_those_of_plain_c(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        enum dtype dtype = d ? DTYPE_BF16 : DTYPE_F32;
        check_parts("to_parts", dtype, 2, -1);
        check_parts("to_parts.views", dtype, 2, -1);
        check_parts("to_parts.length", dtype, 1, -1);
        check_parts("from_parts", dtype, 2, -1);
        check_parts("from_parts.length", dtype, 1, -1);
        check_parts("cut", dtype, 2, 1);
        check_parts("cut.length", dtype, 1, 1);
        check_parts("to_parts.zigzag", dtype, 1, -1);
        check_parts("from_parts.zigzag", dtype, 1, -1);
        check_parts("cut.zigzag", dtype, 1, 1);
        check_parts("cut.zigzag_tokens", dtype, 1, 1);
        check_copy("convert", dtype);
        check_copy("convert.views", dtype);
        check_copy("copy_in", dtype);
    }
}

/* Query heads of the second half, each by itself: the head that it reads. */
static void check_selected(const char *name, enum dtype dtype) {
    struct op_instance instance = plain_case_make(name, dtype);
    const struct select_heads_attributes *own = NODE_ATTRIBUTES(instance.node, select_heads_attributes);
    int64_t queries = own->heads * own->group / 2, head_dim = own->head_dim;
    op_instance_run_all(&instance);
    double *x = plain_case_values(&instance, "x"), *y = plain_case_values(&instance, "y");
    for (int64_t row = 0; row < shape_rows(&instance.node->out[0]->shape); row++)
        for (int64_t q = 0; q < queries; q++) {
            int64_t head = (queries + q) / own->group, selected = q * own->selected / queries;
            for (int64_t c = 0; c < head_dim; c++) {
                double expected = x[(row * own->heads + head) * head_dim + c];
                assert_true(y[(row * own->selected + selected) * head_dim + c] == expected);
            }
        }
    mem_free(x);
    mem_free(y);
    op_instance_free(&instance);
}

static void selected_heads_are_those_that_queries_read(void **state) {
    (void)state;
    static const char *const names[] = {"select_heads", "select_heads.many", "select_heads.uneven"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        check_selected(names[i], DTYPE_F32), check_selected(names[i], DTYPE_BF16);
}

static void norms_and_sums_are_those_of_plain_c(void **state) {
    (void)state;
    struct op_instance instance = plain_case_make("squared_sums", DTYPE_F32);
    op_instance_run_all(&instance);
    double *values = plain_case_values(&instance, "gradient"), expected[64] = {0};
    int64_t count = shape_elements(&instance.node->in[0]->shape), blocks = gradient_norm_blocks(count);
    assert_true(blocks > 16 && blocks < 64 && count % GRADIENT_NORM_BLOCK % 16 != 0);
    for (int64_t i = 0; i < count; i++)
        expected[i / GRADIENT_NORM_BLOCK] += values[i] * values[i];
    for (int64_t i = 0; i < blocks; i++)
        plain_case_expect("squared sums", (double *)instance.data[instance.node->out[0]->id] + i, &expected[i], 1,
                          1e-12);
    mem_free(values);
    op_instance_free(&instance);

    instance = plain_case_make("squared_norm", DTYPE_F32);
    op_instance_run_all(&instance);
    double *sums = plain_case_values(&instance, "squares"), total = 0;
    for (int64_t i = 0; i < shape_elements(&instance.node->in[0]->shape); i++)
        total += sums[i];
    plain_case_expect("squared norm", (double *)instance.data[instance.node->out[0]->id], &total, 1, 1e-12);
    mem_free(sums);
    op_instance_free(&instance);

    instance = plain_case_make("gradient_sum", DTYPE_F32);
    op_instance_run_all(&instance);
    double *a = plain_case_values(&instance, "a"), *b = plain_case_values(&instance, "b");
    double *sum = op_instance_read(&instance, instance.node->out[0]);
    for (int64_t i = 0; i < shape_elements(&instance.node->out[0]->shape); i++)
        assert_true(sum[i] == (double)((float)a[i] + (float)b[i]));
    mem_free(a);
    mem_free(b);
    mem_free(sum);
    op_instance_free(&instance);
}

/* NaN and infinity come through, so that a step that went wrong is seen. */
static void check_not_finite(const char *name, const char *input, double value) {
    struct op_instance instance = plain_case_make(name, DTYPE_F32);
    const struct tensor *x = op_case_tensor(instance.graph, input);
    double *values = op_instance_read(&instance, x);
    values[shape_elements(&x->shape) / 2] = value;
    op_instance_write(&instance, x, values);
    op_instance_run_all(&instance);
    double *y = op_instance_read(&instance, instance.node->out[0]);
    bool seen = false;
    for (int64_t i = 0; i < shape_elements(&instance.node->out[0]->shape); i++)
        seen = seen || !isfinite(y[i]);
    if (!seen) fail_msg("%s: %g in %s leaves no trace", name, value, input);
    mem_free(values);
    mem_free(y);
    op_instance_free(&instance);
}

static void values_that_are_not_finite_stay(void **state) {
    (void)state;
    static const struct {
        const char *name, *input;
    } cases[] = {{"linear", "x"},
                 {"rms_norm", "x"},
                 {"layer_norm", "x"},
                 {"rope", "x"},
                 {"head_loss", "x"},
                 {"head_logits", "x"},
                 {"swiglu", "gate"},
                 {"add", "a"},
                 {"attention", "q"},
                 {"attention", "k"},
                 {"attention", "v"},
                 {"squared_sums", "gradient"},
#define ACTIVATION_CASE(constant, name, ...) {name, "x"},
                 ACTIVATION_LIST(ACTIVATION_CASE)
#undef ACTIVATION_CASE
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_not_finite(cases[i].name, cases[i].input, (double)NAN);
        check_not_finite(cases[i].name, cases[i].input, (double)INFINITY);
    }
}

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) unit_skip_all("%s", why);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_token_is_that_of_plain_c),
        cmocka_unit_test(the_head_is_that_of_plain_c),
        cmocka_unit_test(log_probabilities_are_those_of_plain_c),
        cmocka_unit_test(a_head_may_begin_the_gradient_of_its_weight),
        cmocka_unit_test(the_loss_of_pairs_is_that_of_plain_c),
        cmocka_unit_test(statistics_of_a_part_are_those_of_plain_c),
        cmocka_unit_test(parts_are_those_of_plain_c),
        cmocka_unit_test(selected_heads_are_those_that_queries_read),
        cmocka_unit_test(norms_and_sums_are_those_of_plain_c),
        cmocka_unit_test(values_that_are_not_finite_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
