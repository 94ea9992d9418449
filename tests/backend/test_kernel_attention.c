/* Attention, its gradient and attention over caches against plain loops in double, with windows, segments, soft caps
 * and sinks. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* With tiles for bf16, the cases run again with dot products; on other processors, simply again. */
/* ctest-again: dots DNNL_MAX_CPU_ISA=AVX512_CORE_BF16 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "support/plain_case.h"
#include "support/unit.h"

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

static void check_attention(const char *name, enum dtype dtype, double max) {
    struct op_instance instance = plain_case_make(name, dtype);
    op_instance_run_all(&instance);
    const struct shape *shape = &instance.node->in[0]->shape, *lse_shape = &instance.node->out[1]->shape;
    struct plain_attention plain = {
        .attributes = NODE_ATTRIBUTES(instance.node, attention_attributes),
        .sequences = shape->dims[0],
        .length = shape->dims[1],
        .q = plain_case_values(&instance, "q"),
        .k = plain_case_values(&instance, "k"),
        .v = plain_case_values(&instance, "v"),
        .segments = plain_case_values(&instance, "segments"),
        .sinks = instance.node->in[4] ? plain_case_values(&instance, "sinks") : NULL,
        .y = mem_array((size_t)shape_elements(shape), sizeof(double)),
        .lse = mem_array((size_t)shape_elements(lse_shape), sizeof(double)),
    };
    for (int64_t s = 0; s < plain.sequences; s++)
        for (int64_t head = 0; head < plain.attributes->heads; head++)
            for (int64_t query = 0; query < plain.length; query++)
                plain_row(&plain, s, head, query);
    double *y = plain_case_values(&instance, "y"), *lse = plain_case_values(&instance, "lse");
    plain_case_expect(name, y, plain.y, shape_elements(shape), max);
    plain_case_expect("its lse", lse, plain.lse, shape_elements(lse_shape), 1e-5);
    double *all[] = {plain.q, plain.k, plain.v, plain.segments, plain.sinks, plain.y, plain.lse, y, lse};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&instance);
}

static void attention_is_that_of_plain_c(void **state) {
    (void)state;
    const char *const names[] = {
        "attention",       "attention.window",      "attention.window_1", "attention.segments",
        "attention.wide",  "attention.tiles",       "attention.capped",   "attention.capped.window",
        "attention.sinks", "attention.sinks.window"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        check_attention(names[i], DTYPE_F32, 1e-6);
        check_attention(names[i], DTYPE_BF16, 5e-3);
    }
}

/* Of one query and head, with what the softmax of the query's scores needs. */
struct plain_gradient {
    const struct attention_attributes *attributes;
    int64_t length;
    double *q, *k, *v, *dy, *segments, *dq, *dk, *dv;
};

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Adds to dq, dk and dv. */
static void plain_gradient_row(const struct plain_gradient *plain, int64_t s, int64_t head, int64_t query) {
    const struct attention_attributes *at = plain->attributes;
    const struct plain_attention sight = {.attributes = at, .length = plain->length, .segments = plain->segments};
    int64_t dim = at->head_dim, stride = at->kv_heads * dim;
    int64_t own = ((s * plain->length + query) * at->heads + head) * dim;
    int64_t keys = s * plain->length * stride + head * at->kv_heads / at->heads * dim;
    double *p = mem_array((size_t)plain->length, sizeof *p), total = 0, delta = 0;
    for (int64_t key = 0; key <= query; key++) {
        if (!sees(&sight, s, query, key)) continue;
        double score = dot(plain->q + own, plain->k + keys + key * stride, dim) * at->scale;
        total += p[key] = exp(soft_cap(score, at->softcap));
    }
    for (int64_t key = 0; key <= query; key++) {
        p[key] /= total;
        delta += p[key] * dot(plain->dy + own, plain->v + keys + key * stride, dim);
    }
    for (int64_t key = 0; key <= query; key++) {
        const double *k = plain->k + keys + key * stride, *v = plain->v + keys + key * stride;
        double ds = p[key] * (dot(plain->dy + own, v, dim) - delta) * at->scale;
        if (at->softcap > 0) ds *= 1 - pow(tanh(dot(plain->q + own, k, dim) * at->scale / at->softcap), 2);
        for (int64_t i = 0; i < dim; i++) {
            plain->dq[own + i] += ds * k[i];
            plain->dk[keys + key * stride + i] += ds * plain->q[own + i];
            plain->dv[keys + key * stride + i] += p[key] * plain->dy[own + i];
        }
    }
    mem_free(p);
}

static void check_gradient(const char *name, enum dtype dtype, double max) {
    struct op_instance instance = plain_case_make(name, dtype);
    op_instance_run_all(&instance);
    const struct shape *q = &instance.node->in[1]->shape, *k = &instance.node->in[2]->shape;
    int64_t queries = shape_elements(q), keys = shape_elements(k);
    struct plain_gradient plain = {
        .attributes = NODE_ATTRIBUTES(instance.node, attention_attributes),
        .length = q->dims[1],
        .q = plain_case_values(&instance, "q"),
        .k = plain_case_values(&instance, "k"),
        .v = plain_case_values(&instance, "v"),
        .dy = plain_case_values(&instance, "dy"),
        .segments = plain_case_values(&instance, "segments"),
        .dq = mem_array((size_t)queries, sizeof(double)),
        .dk = mem_array((size_t)keys, sizeof(double)),
        .dv = mem_array((size_t)keys, sizeof(double)),
    };
    for (int64_t s = 0; s < q->dims[0]; s++)
        for (int64_t head = 0; head < plain.attributes->heads; head++)
            for (int64_t query = 0; query < plain.length; query++)
                plain_gradient_row(&plain, s, head, query);
    double *dq = plain_case_values(&instance, "d.q"), *dk = plain_case_values(&instance, "d.k");
    double *dv = plain_case_values(&instance, "d.v");
    plain_case_expect(name, dq, plain.dq, queries, max);
    plain_case_expect(name, dk, plain.dk, keys, max);
    plain_case_expect(name, dv, plain.dv, keys, max);
    double *all[] = {plain.q, plain.k, plain.v, plain.dy, plain.segments, plain.dq, plain.dk, plain.dv, dq, dk, dv};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&instance);
}

static void gradients_of_attention_are_those_of_plain_c(void **state) {
    (void)state;
    const char *const names[] = {
        "attention_grad",       "attention_grad.window", "attention_grad.segments",     "attention_grad.wide",
        "attention_grad.tiles", "attention_grad.capped", "attention_grad.capped.window"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        check_gradient(names[i], DTYPE_F32, 1e-5);
        check_gradient(names[i], DTYPE_BF16, 6e-3);
    }
}

static void fill_with(struct op_instance *instance, const char *name, double value) {
    const struct tensor *tensor = op_case_tensor(instance->graph, name);
    double *values = op_instance_read(instance, tensor);
    for (int64_t i = 0; i < shape_elements(&tensor->shape); i++)
        values[i] = value;
    op_instance_write(instance, tensor, values);
    mem_free(values);
}

/* Exponentials of scores less their sum's log are at most 1, but not those of the zeros after a sequence's end. */
static void gradients_of_opposed_queries_are_finite(void **state) {
    (void)state;
    const char *const names[] = {"attention_grad.short", "attention_grad.tiles"};
    for (unsigned n = 0; n < 2 * sizeof names / sizeof *names; n++) {
        struct op_instance instance = plain_case_make(names[n / 2], n % 2 ? DTYPE_BF16 : DTYPE_F32);
        fill_with(&instance, "q", -20);
        fill_with(&instance, "k", 20);
        op_instance_run_all(&instance);
        double *dq = plain_case_values(&instance, "d.q");
        for (int64_t i = 0; i < shape_elements(&instance.node->out[0]->shape); i++)
            if (!isfinite(dq[i])) fail_msg("%s: element %lld of d.q is %g", names[n / 2], (long long)i, dq[i]);
        mem_free(dq);
        op_instance_free(&instance);
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
static void check_cached(const char *name, enum dtype dtype, double max) {
    struct op_instance instance = plain_case_make(name, dtype);
    const struct attention_cache_attributes *cache = NODE_ATTRIBUTES(instance.node, attention_cache_attributes);
    const struct attention_attributes *at = &cache->attention;
    const struct shape *shape = &instance.node->in[0]->shape;
    struct plain_cache plain = {plain_case_values(&instance, "keys"),
                                plain_case_values(&instance, "values"),
                                plain_case_values(&instance, "q"),
                                plain_case_values(&instance, "k"),
                                plain_case_values(&instance, "v"),
                                NULL,
                                NULL};
    if (instance.node->in[4]) plain.sinks = plain_case_values(&instance, "sinks");
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
    double *y = plain_case_values(&instance, "y"), *keys = plain_case_values(&instance, "keys"),
           *values = plain_case_values(&instance, "values");
    plain_case_expect(name, y, plain.y, shape_elements(shape), max);
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
int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) unit_skip_all("%s", why);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_that_of_plain_c),
        cmocka_unit_test(gradients_of_attention_are_those_of_plain_c),
        cmocka_unit_test(gradients_of_opposed_queries_are_finite),
        cmocka_unit_test(attention_over_a_cache_is_that_of_plain_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
