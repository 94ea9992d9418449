/* Generating with key-value caches: the tokens that transformers finds, greedily and in fp32, for every family
 * (tests/reference/generated_cases.py); logits as of the whole sequence at once; texts that outgrow the caches. */
/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "support/harness.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/decode.h"
#include "train/sampler.h"

struct text_engine {
    struct train_setup setup;
    struct engine engine;
};

static void open_text(const char *folder, enum dtype dtype, int64_t positions, struct text_engine *out) {
    struct plan_options plan;
    plan_options_init(&plan);
    plan.threads = 2;
    plan.dtype = dtype;
    plan.sequence_length = positions;
    plan.memory.device_bytes = 256 << 20;
    expect_status(train_setup_create(folder, SETUP_GENERATE, &plan, NULL, &out->setup), STATUS_OK, NULL);
    expect_status(engine_open(&out->setup, &out->engine), STATUS_OK, NULL);
    expect_status(engine_load_weights(&out->engine), STATUS_OK, NULL);
}

static void close_text(struct text_engine *text) {
    engine_close(&text->engine);
    train_setup_free(&text->setup);
}

static struct token_ids read_ids(const json_t *object, const char *key) {
    struct token_ids ids = {0};
    size_t i;
    const json_t *id;
    json_array_foreach(json_object_get(object, key), i, id)
        assert_int_equal(vec_push(&ids, (uint32_t)json_integer_value(id)), STATUS_OK);
    assert_true(ids.count > 0);
    return ids;
}

static uint32_t draw_greedily(struct decoding *decoding, const struct token_ids *ids) {
    struct generate_options options = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};
    int64_t vocab = decoding->engine->setup->model->config.vocab_size;
    struct sampler sampler;
    struct sampler_input input = {.ids = ids->items, .count = ids->count};
    uint32_t token;
    expect_status(sampler_create(&options, 1, vocab, &sampler), STATUS_OK, NULL);
    expect_status(decoding_run(decoding, ids->items, ids->count, &input.logits), STATUS_OK, NULL);
    expect_status(sampler_draw(&sampler, &input, 0, &token), STATUS_OK, NULL);
    sampler_free(&sampler);
    return token;
}

static void check_tokens(const char *folder, const json_t *recorded) {
    struct text_engine text;
    struct decoding decoding;
    struct token_ids ids = read_ids(recorded, "prompt"), expected = read_ids(recorded, "tokens");
    open_text(folder, DTYPE_F32, (int64_t)(ids.count + expected.count), &text);
    decoding_begin(&text.engine, &decoding);
    for (size_t i = 0; i < expected.count; i++) {
        uint32_t token = draw_greedily(&decoding, &ids);
        if (token != expected.items[i])
            fail_msg("%s: new token %zu is %u, transformers has %u", folder, i, token, expected.items[i]);
        assert_int_equal(vec_push(&ids, token), STATUS_OK);
    }
    vec_free(&ids);
    vec_free(&expected);
    close_text(&text);
}

static void test_tokens_of_transformers(void **state) {
    (void)state;
    DIR *cases = opendir(BALLAST_FIXTURES "/models");
    assert_non_null(cases);
    int checked = 0;
    for (const struct dirent *entry; (entry = readdir(cases));) {
        char folder[512], path[600];
        if (entry->d_name[0] == '.') continue;
        snprintf(folder, sizeof folder, "%s/models/%.200s", BALLAST_FIXTURES, entry->d_name);
        snprintf(path, sizeof path, "%s/generated.json", folder);
        json_t *recorded;
        expect_status(json_read_object(path, 1 << 16, &recorded), STATUS_OK, NULL);
        check_tokens(folder, recorded);
        json_decref(recorded);
        checked++;
    }
    closedir(cases);
    assert_true(checked >= 28);
}

enum { LENGTH = 29 };

/* Logits [LENGTH][vocab] of the same tokens, all at once. */
static void compute_at_once(const char *folder, enum dtype dtype, const int32_t *tokens, float *logits) {
    struct harness_options options = {.folder = folder,
                                      .purpose = MODEL_LOGITS,
                                      .dtype = dtype,
                                      .batch = 1,
                                      .sequence_length = LENGTH,
                                      .grain_sequences = 1,
                                      .grains_per_pass = 1};
    struct harness harness;
    harness_open(&options, &harness);
    harness_set_inputs(&harness, tokens, NULL);
    harness_step(&harness, 0, false);
    memcpy(logits, runner_data(harness.runner, harness.output), LENGTH * TINY_VOCAB * sizeof *logits);
    harness_close(&harness);
}

static double distance(const float *a, const float *b) {
    double error = 0, norm = 0;
    for (int i = 0; i < TINY_VOCAB; i++) {
        error += pow((double)a[i] - (double)b[i], 2);
        norm += pow((double)b[i], 2);
    }
    return sqrt(error / norm);
}

/* Tokens go in by ones and by more at a time; the caches still hold another text. */
static void check_logits(const char *name, enum dtype dtype, double bound) {
    static float expected[LENGTH * TINY_VOCAB];
    char folder[512];
    snprintf(folder, sizeof folder, "%s/models/%s", BALLAST_FIXTURES, name);
    int32_t tokens[LENGTH];
    uint32_t ids[LENGTH], others[LENGTH];
    for (int i = 0; i < LENGTH; i++) {
        tokens[i] = (i * i * 31 + 7) % TINY_VOCAB;
        ids[i] = (uint32_t)tokens[i];
        others[i] = (uint32_t)(i % TINY_VOCAB);
    }
    compute_at_once(folder, dtype, tokens, expected);
    struct text_engine text;
    struct decoding decoding;
    const float *logits;
    open_text(folder, dtype, LENGTH, &text);
    decoding_begin(&text.engine, &decoding);
    expect_status(decoding_run(&decoding, others, LENGTH, &logits), STATUS_OK, NULL);
    static const size_t counts[] = {5, 6, 7, 15, 16, LENGTH - 1, LENGTH};
    decoding_begin(&text.engine, &decoding);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        expect_status(decoding_run(&decoding, ids, counts[i], &logits), STATUS_OK, NULL);
        double found = distance(logits, expected + (counts[i] - 1) * TINY_VOCAB);
        if (!(found <= bound)) fail_msg("%s: logits after %zu tokens off by %g", name, counts[i], found);
    }
    close_text(&text);
}

static void test_logits_of_the_whole(void **state) {
    (void)state;
    static const char *const names[] = {"gpt2", "llama", "mistral", "opt", "phi3", "qwen2", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_logits(names[i], DTYPE_F32, 1e-5);
        check_logits(names[i], DTYPE_BF16, 3e-2);
    }
}

/* A long text has the logits of its end by itself, by the rule of decoding_run. */
static void test_outgrown_caches(void **state) {
    (void)state;
    enum { POSITIONS = 8, COUNT = 20 };
    const char *folder = BALLAST_FIXTURES "/models/llama";
    struct text_engine text;
    struct decoding decoding;
    const float *logits;
    uint32_t ids[COUNT];
    float found[COUNT + 1][TINY_VOCAB];
    for (uint32_t i = 0; i < COUNT; i++)
        ids[i] = i * i * 17 % TINY_VOCAB;
    open_text(folder, DTYPE_F32, POSITIONS, &text);
    decoding_begin(&text.engine, &decoding);
    size_t start = 10 - POSITIONS;
    for (size_t count = 10; count <= COUNT; count++) {
        expect_status(decoding_run(&decoding, ids, count, &logits), STATUS_OK, NULL);
        if (count - start > POSITIONS) start = count - POSITIONS / 2;
        assert_int_equal(decoding.start, start);
        assert_int_equal(decoding.filled, count - start);
        memcpy(found[count], logits, sizeof found[count]);
    }
    start = 10 - POSITIONS;
    for (size_t count = 10; count <= COUNT; count++) {
        if (count - start > POSITIONS) start = count - POSITIONS / 2;
        decoding_begin(&text.engine, &decoding);
        expect_status(decoding_run(&decoding, ids + start, count - start, &logits), STATUS_OK, NULL);
        assert_true(distance(found[count], logits) < 1e-5);
    }
    close_text(&text);
}

/* Two caches of every layer, at the same place in both programs, and shown by kind. */
static void test_caches_are_in_the_plan(void **state) {
    (void)state;
    struct text_engine text;
    open_text(BALLAST_FIXTURES "/models/llama", DTYPE_BF16, 100, &text);
    const struct model_config *config = &text.setup.model->config;
    int64_t bytes = 2 * config->layers * 100 * config->kv_heads * config->head_dim * 2;
    assert_int_equal(text.setup.memory[TIER_DEVICE].by_kind[BUFFER_CACHE], bytes);
    const struct program *prefill = text.setup.prefill->program, *decode = text.setup.decode->program;
    int64_t caches = 0;
    for (size_t i = 0; i < prefill->buffers.count; i++) {
        const struct buffer *a = &prefill->buffers.items[i], *b = &decode->buffers.items[i];
        if (a->kind != BUFFER_CACHE && a->kind != BUFFER_PARAMETERS) break;
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->offset, b->offset);
        caches += a->kind == BUFFER_CACHE;
    }
    assert_int_equal(caches, 2 * config->layers);
    close_text(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_of_transformers),
        cmocka_unit_test(test_logits_of_the_whole),
        cmocka_unit_test(test_outgrown_caches),
        cmocka_unit_test(test_caches_are_in_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
