/* Updates against plain loops in double: the rules, the clip factor, and quantized moments and weights. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"
#include "support/plain_case.h"
#include "support/unit.h"

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
    struct op_instance instance = plain_case_make("clip_factor", DTYPE_F32);
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
    struct op_instance instance = plain_case_make(name, dtype);
    enum update_rule rule = update_rule_of(instance.node->op);
    bool master = dtype == DTYPE_BF16, second = update_rule_moments(rule) > 1;
    const char *const moments[] = {update_rule_moment(rule, 0), second ? update_rule_moment(rule, 1) : moments[0]};
    const char *weight = master ? "master" : "weight";
    int64_t count = shape_elements(&instance.node->in[0]->shape);
    double *g = plain_case_values(&instance, "gradient"), *w = plain_case_values(&instance, weight);
    double *m = plain_case_values(&instance, moments[0]), *v = plain_case_values(&instance, moments[1]);
    double clip = instance.node->in[1] ? ((double *)instance.data[instance.node->in[1]->id])[1] : 1;
    assert_true(clip == (instance.node->in[1] ? 0.7 : 1));
    for (int64_t i = 0; i < count; i++)
        plain_update(&instance, clip, g[i], &w[i], &m[i], &v[i]);
    op_instance_run_all(&instance);
    double *found[] = {plain_case_values(&instance, moments[0]), plain_case_values(&instance, moments[1]),
                       plain_case_values(&instance, weight), plain_case_values(&instance, "weight")};
    plain_case_expect(moments[0], found[0], m, count, 1e-6);
    if (second) plain_case_expect(moments[1], found[1], v, count, 1e-6);
    plain_case_expect("weight", found[2], w, count, 1e-6);
    for (int64_t i = 0; i < count && master; i++)
        assert_true(found[3][i] == (double)bf16_to_float(bf16_from_float((float)found[2][i])));
    double *all[] = {g, m, v, w, found[0], found[1], found[2], found[3]};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&instance);
}

/* A factor that is NaN changes nothing, but a weight is its master, rounded, whatever it was. */
static void expect_no_change(const char *name) {
    struct op_instance instance = plain_case_make(name, DTYPE_BF16);
    int outputs = 2 + update_rule_moments(update_rule_of(instance.node->op));
    double *before[OP_OUTPUTS_MAX];
    for (int i = 0; i < outputs; i++)
        before[i] = op_instance_read(&instance, instance.node->out[i]);
    const double *master = before[outputs - 1];
    assert_true((op_updates(instance.node) & 1) == 0);
    for (int64_t i = 0; i < shape_elements(&instance.node->out[0]->shape); i++)
        before[0][i] = (double)bf16_to_float(bf16_from_float((float)master[i]));
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
    struct op_instance with = plain_case_make(name, dtype), without = plain_case_make(unclipped, dtype);
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

/* ---- masters in two halves ---- */

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void numbers_are_the_sum_of_their_halves(void **state) {
    (void)state;
    static const uint32_t numbers[] = {0,          0x80000000, 0x3f808000, 0x3f818000, 0x3f807fff, 0xbf808001,
                                       0x00008000, 0x7f7fffff, 0xff800000, 0x7f800000, 0x00000001, 0x3fffffff};
    uint16_t upper, lower;
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        float_split(float_from_bits(numbers[i]), &upper, &lower);
        assert_int_equal(upper, (numbers[i] + 0x8000) >> 16);
        assert_int_equal(bits_of(float_join(upper, lower)), numbers[i]);
    }
    static const uint32_t nans[] = {0x7f800001, 0xffffffff, 0x7fc00000};
    for (unsigned i = 0; i < sizeof nans / sizeof *nans; i++) {
        float_split(float_from_bits(nans[i]), &upper, &lower);
        assert_true(isnan(bf16_to_float(upper)) && isnan(float_join(upper, lower)));
    }
}

/* The masters before a step, out of their halves. */
static void take_masters(const struct op_instance *halves, struct op_instance *whole) {
    const struct tensor *weight = op_case_tensor(halves->graph, "weight"),
                        *low = op_case_tensor(halves->graph, "master_low");
    const uint16_t *upper = halves->data[weight->id], *lower = halves->data[low->id];
    float *masters = whole->data[op_case_tensor(whole->graph, "master")->id];
    for (int64_t i = 0; i < shape_elements(&weight->shape); i++)
        masters[i] = float_join(upper[i], lower[i]);
}

/* The same bits as masters in one piece, but for the weight, whose ties are rounded the other way. */
static void expect_whole_masters(const char *name, const char *split) {
    struct op_instance whole = plain_case_make(name, DTYPE_BF16), halves = plain_case_make(split, DTYPE_BF16);
    int moments = update_rule_moments(update_rule_of(whole.node->op));
    const struct node *from = halves.node, *to = whole.node;
    int64_t count = shape_elements(&to->out[0]->shape), other = 0;
    take_values(&halves, from->in[0], &whole, to->in[0]);
    for (int i = 1; i < OP_OUTPUTS_MAX && from->out[i]; i++)
        if (i != 1 + moments) take_values(&halves, from->out[i], &whole, to->out[i]);
    take_masters(&halves, &whole);
    op_instance_run_all(&whole);
    op_instance_run_all(&halves);
    for (int i = 1; i < OP_OUTPUTS_MAX && from->out[i]; i++)
        if (i != 1 + moments)
            assert_memory_equal(whole.data[to->out[i]->id], halves.data[from->out[i]->id],
                                (size_t)shape_bytes(&to->out[i]->shape));
    const uint16_t *upper = halves.data[from->out[0]->id], *lower = halves.data[from->out[1 + moments]->id];
    const uint16_t *rounded = whole.data[to->out[0]->id];
    const float *masters = whole.data[to->out[1 + moments]->id];
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(masters[i]), joined = bits_of(float_join(upper[i], lower[i]));
        if (joined != bits || upper[i] != (bits + 0x8000) >> 16)
            fail_msg("%s: %08x of %lld is %04x and %04x", split, bits, (long long)i, upper[i], lower[i]);
        other += upper[i] != rounded[i];
        if (upper[i] != rounded[i]) assert_int_equal(bits & 0xffff, 0x8000);
    }
    assert_true(other * 1000 < count);
    op_instance_free(&whole);
    op_instance_free(&halves);
}

static void masters_in_two_halves_have_the_same_numbers(void **state) {
    (void)state;
    expect_whole_masters("adamw", "adamw.split_master");
    expect_whole_masters("adamw.bf16_state", "adamw.split_master.bf16_state");
    expect_whole_masters("adamw.int8_state", "adamw.split_master.int8_state");
    expect_whole_masters("lion", "lion.split_master");
    expect_whole_masters("sgd", "sgd.split_master");
    if (op_instance_has_kernel(&op_muon)) expect_whole_masters("muon", "muon.split_master");
}

/* ---- stochastic rounding ---- */

/* bf16 with stochastic rounding, as backend/kernel_parts.h says it. */
static double rounded_stochastically(float value, uint32_t bits) {
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
    double map[256], *values = plain_case_values(instance, name);
    const struct tensor *tensor = op_case_tensor(instance->graph, name);
    if (tensor->shape.dtype != DTYPE_U8) return values;
    char scales_name[64];
    snprintf(scales_name, sizeof scales_name, "%s_absmax", name);
    double *scales = plain_case_values(instance, scales_name);
    fill_map(strcmp(name, "exp_avg_sq") != 0, map);
    for (int64_t i = 0; i < shape_elements(&tensor->shape); i++)
        values[i] = (double)((float)map[(int)values[i]] * (float)scales[i / 256]);
    mem_free(scales);
    return values;
}

/* The same step with all in fp32, from the values that the instance has: what is rounded. */
static void run_in_fp32(const struct op_instance *instance, struct op_instance *out) {
    static const char *const names[] = {"gradient", "exp_avg", "exp_avg_sq"};
    *out = plain_case_make("adamw", DTYPE_F32);
    for (int i = 0; i < 3; i++) {
        double *values = numbers_of(instance, names[i]);
        op_instance_write(out, op_case_tensor(out->graph, names[i]), values);
        mem_free(values);
    }
    bool master = op_case_tensor(instance->graph, "master") != NULL;
    double *weight = plain_case_values(instance, master ? "master" : "weight");
    op_instance_write(out, op_case_tensor(out->graph, "weight"), weight);
    mem_free(weight);
    memcpy(out->scalars, instance->scalars, SCALAR_COUNT * sizeof *out->scalars);
    op_instance_run_all(out);
}

/* Both ways are taken, and the mean of all errors is near 0: each has a standard deviation of at most half of `step`,
 * the distance of neighbours. */
static void check_probabilities(const char *name, const double *exact, const double *found, int64_t count) {
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

static void check_stochastic(const char *name, enum dtype dtype, bool weight) {
    struct op_instance instance = plain_case_make(name, dtype), exact;
    run_in_fp32(&instance, &exact);
    op_instance_run_all(&instance);
    int64_t count = shape_elements(&instance.node->in[0]->shape);
    const struct {
        const char *name;
        bool stochastic;
        uint32_t stream;
        int shift;
    } parts[] = {{"exp_avg", true, RANDOM_ROUND_STATE, 0},
                 {"exp_avg_sq", true, RANDOM_ROUND_STATE, 16},
                 {"weight", weight, RANDOM_ROUND_WEIGHT, 0}};
    for (int p = 0; p < 3; p++) {
        if (!parts[p].stochastic) continue;
        double *found = plain_case_values(&instance, parts[p].name), *full = plain_case_values(&exact, parts[p].name);
        for (int64_t i = 0; i < count; i++) {
            double expected =
                rounded_stochastically((float)full[i], drawn(&instance, parts[p].stream, i) >> parts[p].shift);
            if (found[i] != expected)
                fail_msg("%s: %s[%lld] is %g, not %g, of %g", name, parts[p].name, (long long)i, found[i], expected,
                         full[i]);
        }
        check_probabilities(parts[p].name, full, found, count);
        mem_free(found);
        mem_free(full);
    }
    op_instance_free(&instance);
    op_instance_free(&exact);
}

static void bf16_state_is_rounded_stochastically(void **state) {
    (void)state;
    check_stochastic("adamw.bf16_state", DTYPE_F32, false);
    check_stochastic("adamw.bf16_state", DTYPE_BF16, false);
    check_stochastic("adamw.no_master", DTYPE_BF16, true);
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
            double min = HUGE_VAL;
            for (int code = 0; code < 256; code++)
                min = fmin(min, fabs(map[code] * scale - exact[i]));
            if (!(fabs(found[i] - exact[i]) <= min + 1e-6 * (scale * 1e-6 + fabs(exact[i]))))
                fail_msg("%s[%lld] is %.9g for %.9g, off by more than %g", name, (long long)i, found[i], exact[i], min);
        }
    }
}

static void check_int8(const char *name, enum dtype dtype) {
    struct op_instance instance = plain_case_make(name, dtype), exact;
    for (int step = 0; step < 3; step++) {
        run_in_fp32(&instance, &exact);
        op_instance_run_all(&instance);
        int64_t count = shape_elements(&instance.node->in[0]->shape);
        for (int i = 0; i < 2; i++) {
            const char *moment = update_rule_moment(UPDATE_ADAMW, i);
            double *full = plain_case_values(&exact, moment), *found = numbers_of(&instance, moment);
            expect_nearest(moment, full, found, count);
            mem_free(full);
            mem_free(found);
        }
        bool master = op_case_tensor(instance.graph, "master") != NULL;
        double *full = plain_case_values(&exact, "weight"),
               *found = plain_case_values(&instance, master ? "master" : "weight");
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

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) unit_skip_all("%s", why);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clip_factor_is_that_of_plain_c),
        cmocka_unit_test(updates_are_those_of_plain_c),
        cmocka_unit_test(numbers_are_the_sum_of_their_halves),
        cmocka_unit_test(masters_in_two_halves_have_the_same_numbers),
        cmocka_unit_test(bf16_state_is_rounded_stochastically),
        cmocka_unit_test(moments_in_8_bits_are_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
