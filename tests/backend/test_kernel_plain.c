/* Kernels against plain loops in double, where the reference tensors say nothing: windows and segments, the head with a
 * bias, the optimizer. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"
#include "support/op_instance.h"
#include "support/unit.h"

static const struct op_case *find_case(const char *name) {
    for (int i = 0; i < op_case_count; i++)
        if (strcmp(op_cases[i].name, name) == 0) return &op_cases[i];
    fail_msg("no case %s", name);
    return NULL;
}

static struct op_instance create(const char *name, enum dtype dtype) {
    const struct op_case *op_case = find_case(name);
    struct op_instance instance;
    if (op_instance_create(op_case_build(op_case, dtype, &op_case->sizes), &instance) != STATUS_OK)
        fail_msg("%s: %s", name, status_message());
    op_instance_fill(&instance, 31);
    return instance;
}

/* Values of a tensor by name, zeros when the case has none. */
static double *values_of(const struct op_instance *instance, const char *name) {
    const struct tensor *tensor = op_case_tensor(instance->graph, name);
    double *values = tensor ? op_instance_read(instance, tensor) : mem_array(1 << 20, sizeof *values);
    assert_non_null(values);
    return values;
}

static void expect_close(const char *what, const double *found, const double *expected, int64_t count, double most) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    if (!(sqrt(difference) <= most * sqrt(norm)))
        fail_msg("%s: off by %.2e, more than %.0e", what, sqrt(difference / norm), most);
}

struct plain_attention {
    const struct attention_attributes *attributes;
    int64_t sequences, length;
    double *q, *k, *v, *segments, *sinks, *y, *lse;
};

static bool sees(const struct plain_attention *plain, int64_t s, int64_t query, int64_t key) {
    int64_t window = plain->attributes->window;
    const double *segments = plain->segments + s * plain->length;
    return key <= query && (window == 0 || query - key < window) && segments[query] == segments[key];
}

static double soft_cap(double value, double softcap) { return softcap > 0 ? softcap * tanh(value / softcap) : value; }

static void plain_row(struct plain_attention *plain, int64_t s, int64_t head, int64_t query) {
    const struct attention_attributes *at = plain->attributes;
    int64_t dim = at->head_dim, kv_head = head * at->kv_heads / at->heads;
    const double *q = plain->q + ((s * plain->length + query) * at->heads + head) * dim;
    double *y = plain->y + ((s * plain->length + query) * at->heads + head) * dim;
    double total = plain->sinks ? exp(plain->sinks[head]) : 0;
    for (int64_t key = 0; key < plain->length; key++) {
        if (!sees(plain, s, query, key)) continue;
        int64_t row = ((s * plain->length + key) * at->kv_heads + kv_head) * dim;
        double score = 0;
        for (int64_t i = 0; i < dim; i++)
            score += q[i] * plain->k[row + i] * at->scale;
        score = soft_cap(score, at->softcap);
        total += exp(score);
        for (int64_t i = 0; i < dim; i++)
            y[i] += exp(score) * plain->v[row + i];
    }
    for (int64_t i = 0; i < dim; i++)
        y[i] /= total;
    plain->lse[(s * at->heads + head) * plain->length + query] = log(total);
}

static void check_attention(const char *name, enum dtype dtype, double most) {
    struct op_instance instance = create(name, dtype);
    op_instance_run_all(&instance);
    const struct shape *shape = &instance.node->in[0]->shape, *lse_shape = &instance.node->out[1]->shape;
    struct plain_attention plain = {
        .attributes = NODE_ATTRIBUTES(instance.node, attention_attributes),
        .sequences = shape->dims[0],
        .length = shape->dims[1],
        .q = values_of(&instance, "q"),
        .k = values_of(&instance, "k"),
        .v = values_of(&instance, "v"),
        .segments = values_of(&instance, "segments"),
        .sinks = instance.node->in[4] ? values_of(&instance, "sinks") : NULL,
        .y = mem_array((size_t)shape_elements(shape), sizeof(double)),
        .lse = mem_array((size_t)shape_elements(lse_shape), sizeof(double)),
    };
    for (int64_t s = 0; s < plain.sequences; s++)
        for (int64_t head = 0; head < plain.attributes->heads; head++)
            for (int64_t query = 0; query < plain.length; query++)
                plain_row(&plain, s, head, query);
    double *y = values_of(&instance, "y"), *lse = values_of(&instance, "lse");
    expect_close(name, y, plain.y, shape_elements(shape), most);
    expect_close("its lse", lse, plain.lse, shape_elements(lse_shape), 1e-5);
    double *all[] = {plain.q, plain.k, plain.v, plain.segments, plain.sinks, plain.y, plain.lse, y, lse};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&instance);
}

static void attention_is_that_of_plain_c(void **state) {
    (void)state;
    const char *const names[] = {
        "attention",        "attention.window",        "attention.window_1", "attention.segments",    "attention.wide",
        "attention.capped", "attention.capped.window", "attention.sinks",    "attention.sinks.window"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        check_attention(names[i], DTYPE_F32, 1e-6);
        check_attention(names[i], DTYPE_BF16, 5e-3);
    }
}

/* One query over the cache's rows up to its own. */
static void plain_cached_row(const struct attention_cache_attributes *cache, int64_t end, const double *q,
                             const double *k, const double *v, const double *sink, double *y) {
    const struct attention_attributes *at = &cache->attention;
    int64_t dim = at->head_dim, stride = at->kv_heads * dim;
    double total = sink ? exp(*sink) : 0;
    for (int64_t key = at->window > 0 && end > at->window ? end - at->window : 0; key < end; key++) {
        double score = 0;
        for (int64_t i = 0; i < dim; i++)
            score += q[i] * k[key * stride + i] * at->scale;
        score = soft_cap(score, at->softcap);
        total += exp(score);
        for (int64_t i = 0; i < dim; i++)
            y[i] += exp(score) * v[key * stride + i];
    }
    for (int64_t i = 0; i < dim; i++)
        y[i] /= total;
}

struct plain_cache {
    double *keys, *values, *q, *k, *v, *sinks, *y; /* keys and values: as they were before */
};

/* New rows stand in the caches, all others are as they were, and what does not count is zero. */
static void check_cached(const char *name, enum dtype dtype, double most) {
    struct op_instance instance = create(name, dtype);
    const struct attention_cache_attributes *cache = NODE_ATTRIBUTES(instance.node, attention_cache_attributes);
    const struct attention_attributes *at = &cache->attention;
    const struct shape *shape = &instance.node->in[0]->shape;
    struct plain_cache plain = {values_of(&instance, "keys"),
                                values_of(&instance, "values"),
                                values_of(&instance, "q"),
                                values_of(&instance, "k"),
                                values_of(&instance, "v"),
                                NULL,
                                NULL};
    if (instance.node->in[4]) plain.sinks = values_of(&instance, "sinks");
    plain.y = mem_array((size_t)shape_elements(shape), sizeof(double));
    op_instance_run_all(&instance);
    int64_t kv = at->kv_heads * at->head_dim, tokens = shape->dims[0] * shape->dims[1];
    for (int64_t i = 0; i < tokens; i++) {
        int64_t row = op_case_cache_row(instance.node, i / shape->dims[1], i % shape->dims[1]);
        if (row < 0) continue;
        memcpy(plain.keys + row * kv, plain.k + i * kv, (size_t)kv * sizeof(double));
        memcpy(plain.values + row * kv, plain.v + i * kv, (size_t)kv * sizeof(double));
        int64_t end = row % cache->positions + 1, text = (row + 1 - end) * kv;
        for (int64_t head = 0; head < at->heads; head++) {
            int64_t to = (i * at->heads + head) * at->head_dim, first = head * at->kv_heads / at->heads * at->head_dim;
            plain_cached_row(cache, end, plain.q + to, plain.keys + text + first, plain.values + text + first,
                             plain.sinks ? plain.sinks + head : NULL, plain.y + to);
        }
    }
    double *y = values_of(&instance, "y"), *keys = values_of(&instance, "keys"),
           *values = values_of(&instance, "values");
    expect_close(name, y, plain.y, shape_elements(shape), most);
    size_t bytes = (size_t)shape_elements(&instance.node->out[1]->shape) * sizeof(double);
    assert_memory_equal(keys, plain.keys, bytes);
    assert_memory_equal(values, plain.values, bytes);
    double *all[] = {plain.keys, plain.values, plain.q, plain.k, plain.v, plain.sinks, plain.y, y, keys, values};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&instance);
}

static void attention_over_a_cache_is_that_of_plain_c(void **state) {
    (void)state;
    const char *const names[] = {"attention_cache",     "attention_cache.window", "attention_cache.wide",
                                 "attention_cache.one", "attention_cache.capped", "attention_cache.sinks"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        check_cached(names[i], DTYPE_F32, 1e-6);
        check_cached(names[i], DTYPE_BF16, 5e-3);
    }
}

static void the_last_token_is_that_of_plain_c(void **state) {
    (void)state;
    struct op_instance instance = create("last_token.views", DTYPE_BF16);
    op_instance_run_all(&instance);
    double *x = values_of(&instance, "x"), *y = op_instance_read(&instance, instance.node->out[0]);
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
    struct op_instance loss = create(loss_case, DTYPE_F32), logits = create(logits_case, DTYPE_F32);
    double softcap = NODE_ATTRIBUTES(loss.node, head_attributes)->softcap;
    const struct shape *shape = &loss.node->in[0]->shape;
    int64_t rows = shape_rows(shape), columns = shape_columns(shape), vocab = loss.node->in[1]->shape.dims[0];
    double *x = values_of(&loss, "x"), *weight = values_of(&loss, "weight"), *bias = values_of(&loss, "bias");
    double *targets = values_of(&loss, "targets"), expected = *(double *)loss.data[loss.node->out[0]->id];
    const char *const shared[] = {"x", "weight", "bias"};
    double *const shared_values[] = {x, weight, bias};
    for (int i = 0; i < 3; i++)
        op_instance_write(&logits, op_case_tensor(logits.graph, shared[i]), shared_values[i]);
    op_instance_run_all(&loss);
    op_instance_run_all(&logits);
    double *found = op_instance_read(&logits, logits.node->out[0]), *row = mem_array((size_t)vocab, sizeof *row);
    for (int64_t r = 0; r < rows; r++) {
        plain_logits(x + r * columns, weight, bias, vocab, columns, softcap, row);
        expect_close("logits", found + r * vocab, row, vocab, 1e-6);
        double total = 0;
        for (int64_t v = 0; v < vocab; v++)
            total += exp(row[v]);
        if (targets[r] >= 0) expected += log(total) - row[(int64_t)targets[r]];
    }
    expect_close("loss", (double *)loss.data[loss.node->out[0]->id], &expected, 1, 1e-6);
    double *all[] = {x, weight, bias, targets, found, row};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&loss);
    op_instance_free(&logits);
}

static void log_probabilities_are_those_of_plain_c(void **state) {
    (void)state;
    if (!op_instance_has_kernel(&op_head_log_probability)) skip();
    struct op_instance own = create("head_log_probability.capped", DTYPE_F32);
    double softcap = NODE_ATTRIBUTES(own.node, head_attributes)->softcap;
    int64_t columns = shape_columns(&own.node->in[0]->shape), rows = shape_rows(&own.node->in[0]->shape),
            vocab = own.node->in[1]->shape.dims[0];
    double *x = values_of(&own, "x"), *weight = values_of(&own, "weight"), *bias = values_of(&own, "bias"),
           *targets = values_of(&own, "targets"), *logits = mem_array((size_t)vocab, sizeof *logits);
    op_instance_run_all(&own);
    double *found = op_instance_read(&own, own.node->out[0]);
    for (int64_t r = 0; r < rows; r++) {
        double total = 0, expected = 0;
        plain_logits(x + r * columns, weight, bias, vocab, columns, softcap, logits);
        for (int64_t v = 0; v < vocab; v++)
            total += exp(logits[v]);
        if (targets[r] >= 0) expected = logits[(int64_t)targets[r]] - log(total);
        expect_close("log-probability", found + r, &expected, 1, 1e-6);
    }
    double *all[] = {x, weight, bias, targets, logits, found};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&own);
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
    struct op_instance own = create(name, DTYPE_F32);
    const struct preference_attributes *attributes = NODE_ATTRIBUTES(own.node, preference_attributes);
    double figures[PREFERENCE_FIGURES];
    const struct tensor *labels = op_case_tensor(own.graph, "targets");
    int64_t length = own.node->in[0]->shape.dims[1], sequences = own.node->in[0]->shape.dims[0];
    double *targets = values_of(&own, "targets");
    for (int64_t i = 0; i < 2 * length && blank; i++)
        targets[i] = -100;
    for (int64_t i = 0; i < length / 3; i++)
        targets[(sequences - 1) * length + i] = -100; /* answers of unequal lengths */
    op_instance_write(&own, labels, targets);
    double *y = values_of(&own, "y"), *reference = values_of(&own, "reference");
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
    expect_close("figures", own.data[own.node->out[0]->id], figures, PREFERENCE_FIGURES, 1e-12);
    expect_close("dy", found, expected, sequences * length, 1e-6);
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
    struct op_instance own = create(name, DTYPE_F32);
    const struct head_attributes *attributes = NODE_ATTRIBUTES(own.node, head_attributes);
    const struct vocabulary_part *part = &attributes->part;
    int64_t columns = shape_columns(&own.node->in[0]->shape), rows = shape_rows(&own.node->in[0]->shape);
    double *x = values_of(&own, "x"), *weight = values_of(&own, "weight"), *targets = values_of(&own, "targets");
    double *bias = own.node->in[3] ? values_of(&own, "bias") : mem_array((size_t)part->rows, sizeof *bias);
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
        expect_close("statistics", found + r * HEAD_STATISTICS, expected, HEAD_STATISTICS, 1e-6);
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
    struct op_instance instance = create(name, dtype);
    bool zigzag = strstr(name, ".zigzag") != NULL;
    bool joins = instance.node->op == &op_from_parts;
    const struct shape *shape = &instance.node->in[0]->shape, *whole = joins ? &instance.node->out[0]->shape : shape;
    op_instance_run_all(&instance);
    double *x = values_of(&instance, "x"), *y = values_of(&instance, "y");
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
        double most = instance.node->out[0]->shape.dtype == DTYPE_BF16 ? 4e-3 * fabs(expected) : 0;
        if (!(fabs(found - expected) <= most))
            fail_msg("%s: element %lld: %g, not %g", name, (long long)i, found, expected);
        checked++;
    }
    assert_int_equal(checked, own >= 0 ? part_elements : shape_elements(whole));
    mem_free(x);
    mem_free(y);
    op_instance_free(&instance);
}

static void check_copy(const char *name, enum dtype dtype) {
    struct op_instance instance = create(name, dtype);
    op_instance_run_all(&instance);
    double *x = values_of(&instance, "x"), *y = values_of(&instance, "y");
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
    struct op_instance instance = create(name, dtype);
    const struct select_heads_attributes *own = NODE_ATTRIBUTES(instance.node, select_heads_attributes);
    int64_t queries = own->heads * own->group / 2, head_dim = own->head_dim;
    op_instance_run_all(&instance);
    double *x = values_of(&instance, "x"), *y = values_of(&instance, "y");
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
    struct op_instance instance = create("squared_sums", DTYPE_F32);
    op_instance_run_all(&instance);
    double *values = values_of(&instance, "gradient"), expected[64] = {0};
    int64_t count = shape_elements(&instance.node->in[0]->shape), blocks = gradient_norm_blocks(count);
    assert_true(blocks > 16 && blocks < 64 && count % GRADIENT_NORM_BLOCK % 16 != 0);
    for (int64_t i = 0; i < count; i++)
        expected[i / GRADIENT_NORM_BLOCK] += values[i] * values[i];
    for (int64_t i = 0; i < blocks; i++)
        expect_close("squared sums", (double *)instance.data[instance.node->out[0]->id] + i, &expected[i], 1, 1e-12);
    mem_free(values);
    op_instance_free(&instance);

    instance = create("squared_norm", DTYPE_F32);
    op_instance_run_all(&instance);
    double *sums = values_of(&instance, "squares"), total = 0;
    for (int64_t i = 0; i < shape_elements(&instance.node->in[0]->shape); i++)
        total += sums[i];
    expect_close("squared norm", (double *)instance.data[instance.node->out[0]->id], &total, 1, 1e-12);
    mem_free(sums);
    op_instance_free(&instance);

    instance = create("gradient_sum", DTYPE_F32);
    op_instance_run_all(&instance);
    double *a = values_of(&instance, "a"), *b = values_of(&instance, "b");
    double *sum = op_instance_read(&instance, instance.node->out[0]);
    for (int64_t i = 0; i < shape_elements(&instance.node->out[0]->shape); i++)
        assert_true(sum[i] == (double)((float)a[i] + (float)b[i]));
    mem_free(a);
    mem_free(b);
    mem_free(sum);
    op_instance_free(&instance);
}

static void expect_clip(struct op_instance *instance, double square, double norm, double factor) {
    double *squares = instance->data[instance->node->in[0]->id];
    memset(squares, 0, (size_t)shape_bytes(&instance->node->in[0]->shape));
    squares[1] = square;
    op_instance_run_all(instance);
    const double *found = instance->data[instance->node->out[0]->id];
    if (isnan(factor)) {
        assert_true(isnan(found[1]) && !isfinite(found[0]));
        return;
    }
    if (found[0] != norm || fabs(found[1] - factor) > 1e-15)
        fail_msg("norm^2 %g: norm %g, factor %.17g, expected %g and %.17g", square, found[0], found[1], norm, factor);
}

static void the_clip_factor_is_that_of_plain_c(void **state) {
    (void)state;
    struct op_instance instance = create("clip_factor", DTYPE_F32);
    expect_clip(&instance, 16, 4, 1 / (4 + 1e-6));
    expect_clip(&instance, 0.25, 0.5, 1);
    expect_clip(&instance, 0, 0, 1);
    expect_clip(&instance, (double)INFINITY, 0, (double)NAN);
    expect_clip(&instance, (double)NAN, 0, (double)NAN);
    ((struct clip_attributes *)(uintptr_t)instance.node->attributes)->limit = 0;
    expect_clip(&instance, 16, 4, 1);
    op_instance_free(&instance);
}

/* One step in double (Muon's is in test_kernel_muon.c): AdamW in the order of torch.optim.AdamW, Lion as its paper has
 * it, torch.optim.SGD. */
static void plain_update(const struct op_instance *instance, double clip, double gradient, double *w, double *m,
                         double *v) {
    const struct update_attributes *at = NODE_ATTRIBUTES(instance->node, update_attributes);
    double rate = instance->scalars[SCALAR_LEARNING_RATE], g = gradient * clip, blend;
    switch (update_rule_of(instance->node->op)) {
    case UPDATE_ADAMW:
        *w -= rate * at->weight_decay * *w;
        *m = at->beta1 * *m + (1 - at->beta1) * g;
        *v = at->beta2 * *v + (1 - at->beta2) * g * g;
        *w -= rate * instance->scalars[SCALAR_BIAS_CORRECTION] * *m /
              (sqrt(*v) * instance->scalars[SCALAR_BIAS_CORRECTION_SQ] + at->epsilon);
        break;
    case UPDATE_LION:
        blend = at->beta1 * *m + (1 - at->beta1) * g;
        *w -= rate * ((blend > 0) - (blend < 0) + at->weight_decay * *w);
        *m = at->beta2 * *m + (1 - at->beta2) * g;
        break;
    default:
        g += at->weight_decay * *w;
        *m = at->beta1 * *m + g;
        *w -= rate * *m;
    }
}

static void check_update(const char *name, enum dtype dtype) {
    struct op_instance instance = create(name, dtype);
    enum update_rule rule = update_rule_of(instance.node->op);
    bool master = dtype == DTYPE_BF16, second = update_rule_moments(rule) > 1;
    const char *const moments[] = {update_rule_moment(rule, 0), second ? update_rule_moment(rule, 1) : moments[0]};
    const char *weight = master ? "master" : "weight";
    int64_t count = shape_elements(&instance.node->in[0]->shape);
    double *g = values_of(&instance, "gradient"), *w = values_of(&instance, weight);
    double *m = values_of(&instance, moments[0]), *v = values_of(&instance, moments[1]);
    double clip = instance.node->in[1] ? ((double *)instance.data[instance.node->in[1]->id])[1] : 1;
    assert_true(clip == (instance.node->in[1] ? 0.7 : 1));
    for (int64_t i = 0; i < count; i++)
        plain_update(&instance, clip, g[i], &w[i], &m[i], &v[i]);
    op_instance_run_all(&instance);
    double *found[] = {values_of(&instance, moments[0]), values_of(&instance, moments[1]), values_of(&instance, weight),
                       values_of(&instance, "weight")};
    expect_close(moments[0], found[0], m, count, 1e-6);
    if (second) expect_close(moments[1], found[1], v, count, 1e-6);
    expect_close("weight", found[2], w, count, 1e-6);
    for (int64_t i = 0; i < count && master; i++)
        assert_true(found[3][i] == (double)bf16_to_float(bf16_from_float((float)found[2][i])));
    double *all[] = {g, m, v, w, found[0], found[1], found[2], found[3]};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&instance);
}

/* A factor that is NaN changes nothing. */
static void expect_no_change(const char *name) {
    struct op_instance instance = create(name, DTYPE_BF16);
    int outputs = 2 + update_rule_moments(update_rule_of(instance.node->op));
    double *before[OP_OUTPUTS_MAX];
    for (int i = 0; i < outputs; i++)
        before[i] = op_instance_read(&instance, instance.node->out[i]);
    ((double *)instance.data[instance.node->in[1]->id])[1] = (double)NAN;
    op_instance_run_all(&instance);
    for (int i = 0; i < outputs; i++) {
        double *after = op_instance_read(&instance, instance.node->out[i]);
        assert_memory_equal(before[i], after, (size_t)shape_elements(&instance.node->out[i]->shape) * sizeof *after);
        mem_free(before[i]);
        mem_free(after);
    }
    op_instance_free(&instance);
}

static void take_values(const struct op_instance *from, const struct tensor *tensor, struct op_instance *to,
                        const struct tensor *taker) {
    double *values = op_instance_read(from, tensor);
    op_instance_write(to, taker, values);
    mem_free(values);
}

/* Without a clip factor: the bits of one that is 1. */
static void expect_factor_of_one(const char *name, const char *unclipped, enum dtype dtype) {
    struct op_instance with = create(name, dtype), without = create(unclipped, dtype);
    assert_null(without.node->in[1]);
    ((double *)with.data[with.node->in[1]->id])[1] = 1;
    take_values(&with, with.node->in[0], &without, without.node->in[0]);
    for (int i = 0; i < OP_OUTPUTS_MAX && with.node->out[i]; i++)
        take_values(&with, with.node->out[i], &without, without.node->out[i]);
    op_instance_run_all(&with);
    op_instance_run_all(&without);
    for (int i = 0; i < OP_OUTPUTS_MAX && with.node->out[i]; i++)
        assert_memory_equal(with.data[with.node->out[i]->id], without.data[without.node->out[i]->id],
                            (size_t)shape_bytes(&with.node->out[i]->shape));
    op_instance_free(&with);
    op_instance_free(&without);
}

static void updates_are_those_of_plain_c(void **state) {
    (void)state;
    for (int rule = 0; rule < UPDATE_RULE_COUNT; rule++) {
        const char *name = update_rule_name((enum update_rule)rule);
        char unclipped[64];
        snprintf(unclipped, sizeof unclipped, "%s.unclipped", name);
        if (rule == UPDATE_MUON && !op_instance_has_kernel(&op_muon)) continue;
        for (int i = 0; i < 2; i++) {
            enum dtype dtype = i ? DTYPE_BF16 : DTYPE_F32;
            expect_factor_of_one(name, unclipped, dtype);
            if (rule == UPDATE_MUON) continue;
            check_update(name, dtype);
            check_update(unclipped, dtype);
        }
        expect_no_change(name);
    }
}

/* bf16 by chance, as backend/update_step.h says it. */
static double rounded_by_chance(float value, uint32_t bits) {
    uint32_t raw;
    memcpy(&raw, &value, sizeof raw);
    return (double)bf16_to_float((uint16_t)((raw + (bits & 0xffff)) >> 16));
}

static uint32_t drawn(const struct op_instance *instance, uint32_t stream, int64_t element) {
    const struct update_attributes *at = NODE_ATTRIBUTES(instance->node, update_attributes);
    uint32_t words[4];
    random_block(at->seed, stream, (uint32_t)instance->scalars[SCALAR_STEP],
                 (uint64_t)at->number << 32 | (uint64_t)(element / 4), words);
    return words[element % 4];
}

/* Plain C for bitsandbytes' create_dynamic_map: ascending. */
static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill_map(bool is_signed, double map[256]) {
    int count = 0;
    for (int power = 0; power < 7; power++) {
        int numbers = (is_signed ? 1 : 2) << power;
        for (int k = 0; k < numbers; k++) {
            double number = pow(10, power - 6) * (0.1 + 0.9 * (k + 0.5) / numbers);
            map[count++] = number;
            if (is_signed) map[count++] = -number;
        }
    }
    map[count++] = 0;
    map[count++] = 1;
    assert_int_equal(count, 256);
    qsort(map, 256, sizeof *map, compare_doubles);
}

/* The numbers of a tensor: of moments in 8 bits, what the codes stand for. */
static double *numbers_of(const struct op_instance *instance, const char *name) {
    double map[256], *values = values_of(instance, name);
    const struct tensor *tensor = op_case_tensor(instance->graph, name);
    if (tensor->shape.dtype != DTYPE_U8) return values;
    char scales_name[64];
    snprintf(scales_name, sizeof scales_name, "%s_absmax", name);
    double *scales = values_of(instance, scales_name);
    fill_map(strcmp(name, "exp_avg_sq") != 0, map);
    for (int64_t i = 0; i < shape_elements(&tensor->shape); i++)
        values[i] = (double)((float)map[(int)values[i]] * (float)scales[i / 256]);
    mem_free(scales);
    return values;
}

/* The same step with all in fp32, from the values that the instance has: what is rounded. */
static void run_in_fp32(const struct op_instance *instance, struct op_instance *out) {
    static const char *const names[] = {"gradient", "exp_avg", "exp_avg_sq"};
    *out = create("adamw", DTYPE_F32);
    for (int i = 0; i < 3; i++) {
        double *values = numbers_of(instance, names[i]);
        op_instance_write(out, op_case_tensor(out->graph, names[i]), values);
        mem_free(values);
    }
    bool master = op_case_tensor(instance->graph, "master") != NULL;
    double *weight = values_of(instance, master ? "master" : "weight");
    op_instance_write(out, op_case_tensor(out->graph, "weight"), weight);
    mem_free(weight);
    memcpy(out->scalars, instance->scalars, SCALAR_COUNT * sizeof *out->scalars);
    op_instance_run_all(out);
}

/* Both ways are taken, and the mean of all errors is near 0: each has a standard deviation of at most half of `step`,
 * the distance of neighbours. */
static void check_chances(const char *name, const double *exact, const double *found, int64_t count) {
    int64_t up = 0, down = 0;
    double sum = 0, square = 0;
    for (int64_t i = 0; i < count; i++) {
        double error = found[i] - exact[i];
        up += error > 0;
        down += error < 0;
        sum += error;
        square += error * error;
    }
    if (up < count / 3 || down < count / 3) fail_msg("%s: %lld up, %lld down", name, (long long)up, (long long)down);
    if (fabs(sum) > 4 * sqrt(square)) fail_msg("%s: errors add up to %g of %g", name, sum, sqrt(square));
}

static void check_by_chance(const char *name, enum dtype dtype, bool weight) {
    struct op_instance instance = create(name, dtype), exact;
    run_in_fp32(&instance, &exact);
    op_instance_run_all(&instance);
    int64_t count = shape_elements(&instance.node->in[0]->shape);
    const struct {
        const char *name;
        bool by_chance;
        uint32_t stream;
        int shift;
    } parts[] = {{"exp_avg", true, RANDOM_ROUND_STATE, 0},
                 {"exp_avg_sq", true, RANDOM_ROUND_STATE, 16},
                 {"weight", weight, RANDOM_ROUND_WEIGHT, 0}};
    for (int p = 0; p < 3; p++) {
        if (!parts[p].by_chance) continue;
        double *found = values_of(&instance, parts[p].name), *full = values_of(&exact, parts[p].name);
        for (int64_t i = 0; i < count; i++) {
            double expected = rounded_by_chance((float)full[i], drawn(&instance, parts[p].stream, i) >> parts[p].shift);
            if (found[i] != expected)
                fail_msg("%s: %s[%lld] is %g, not %g, of %g", name, parts[p].name, (long long)i, found[i], expected,
                         full[i]);
        }
        check_chances(parts[p].name, full, found, count);
        mem_free(found);
        mem_free(full);
    }
    op_instance_free(&instance);
    op_instance_free(&exact);
}

static void bf16_state_is_rounded_by_chance(void **state) {
    (void)state;
    check_by_chance("adamw.bf16_state", DTYPE_F32, false);
    check_by_chance("adamw.bf16_state", DTYPE_BF16, false);
    check_by_chance("adamw.no_master", DTYPE_BF16, true);
}

/* Each found number is the nearest that its block can have, whose scale is its largest magnitude. */
static void expect_nearest(const char *name, const double *exact, const double *found, int64_t count) {
    double map[256];
    fill_map(strcmp(name, "exp_avg_sq") != 0, map);
    for (int64_t block = 0; block < count; block += 256) {
        double scale = 0;
        int64_t end = block + 256 < count ? block + 256 : count;
        for (int64_t i = block; i < end; i++)
            scale = fmax(scale, fabs(exact[i]));
        for (int64_t i = block; i < end; i++) {
            double least = HUGE_VAL;
            for (int code = 0; code < 256; code++)
                least = fmin(least, fabs(map[code] * scale - exact[i]));
            if (!(fabs(found[i] - exact[i]) <= least + 1e-6 * (scale * 1e-6 + fabs(exact[i]))))
                fail_msg("%s[%lld] is %.9g for %.9g, off by more than %g", name, (long long)i, found[i], exact[i],
                         least);
        }
    }
}

static void check_int8(const char *name, enum dtype dtype) {
    struct op_instance instance = create(name, dtype), exact;
    for (int step = 0; step < 3; step++) {
        run_in_fp32(&instance, &exact);
        op_instance_run_all(&instance);
        int64_t count = shape_elements(&instance.node->in[0]->shape);
        for (int i = 0; i < 2; i++) {
            const char *moment = update_rule_moment(UPDATE_ADAMW, i);
            double *full = values_of(&exact, moment), *found = numbers_of(&instance, moment);
            expect_nearest(moment, full, found, count);
            mem_free(full);
            mem_free(found);
        }
        bool master = op_case_tensor(instance.graph, "master") != NULL;
        double *full = values_of(&exact, "weight"), *found = values_of(&instance, master ? "master" : "weight");
        for (int64_t i = 0; i < count && (master || dtype == DTYPE_F32); i++)
            if (!(fabs(found[i] - full[i]) <= 1e-4 * (fabs(full[i]) + 0.1)))
                fail_msg("%s: weight[%lld] is %.9g, not %.9g", name, (long long)i, found[i], full[i]);
        mem_free(full);
        mem_free(found);
        op_instance_free(&exact);
    }
    op_instance_free(&instance);
}

/* Steps after the first begin from codes that a step wrote. */
static void moments_in_8_bits_are_the_nearest(void **state) {
    (void)state;
    check_int8("adamw.int8_state", DTYPE_F32);
    check_int8("adamw.int8_state", DTYPE_BF16);
    check_int8("adamw.int8_state.no_master", DTYPE_BF16);
}

/* NaN and infinity come through, so that a step that went wrong is seen. */
static void check_not_finite(const char *name, const char *input, double value) {
    struct op_instance instance = create(name, DTYPE_F32);
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
    const char *const with_x[] = {"linear",    "rms_norm",  "layer_norm", "gelu_tanh",   "gelu_erf", "relu",
                                  "silu",      "rope",      "head_loss",  "head_logits", "swiglu",   "add",
                                  "attention", "attention", "attention",  "squared_sums"};
    const char *const inputs[] = {"x", "x", "x",    "x", "x", "x", "x", "x",
                                  "x", "x", "gate", "a", "q", "k", "v", "gradient"};
    for (unsigned i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        check_not_finite(with_x[i], inputs[i], (double)NAN);
        check_not_finite(with_x[i], inputs[i], (double)INFINITY);
    }
}

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) {
        printf("skipped: %s\n", why);
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_a_cache_is_that_of_plain_c),
        cmocka_unit_test(the_last_token_is_that_of_plain_c),
        cmocka_unit_test(attention_is_that_of_plain_c),
        cmocka_unit_test(the_head_is_that_of_plain_c),
        cmocka_unit_test(log_probabilities_are_those_of_plain_c),
        cmocka_unit_test(the_loss_of_pairs_is_that_of_plain_c),
        cmocka_unit_test(statistics_of_a_part_are_those_of_plain_c),
        cmocka_unit_test(parts_are_those_of_plain_c),
        cmocka_unit_test(selected_heads_are_those_that_queries_read),
        cmocka_unit_test(norms_and_sums_are_those_of_plain_c),
        cmocka_unit_test(the_clip_factor_is_that_of_plain_c),
        cmocka_unit_test(updates_are_those_of_plain_c),
        cmocka_unit_test(bf16_state_is_rounded_by_chance),
        cmocka_unit_test(moments_in_8_bits_are_the_nearest),
        cmocka_unit_test(values_that_are_not_finite_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
