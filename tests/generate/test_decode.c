/* Generation with key-value caches: the tokens of transformers, with greedy decoding in fp32, for every family
 * (tests/reference/generated_cases.py). Logits equal those of the whole sequence at once. Texts may outgrow the
 * caches. The bits depend neither on other texts nor on earlier contents of the caches. */
/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "generate/writer.h"
#include "support/harness.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "support/weight_files.h"

struct text_engine {
    struct session session;
    struct session_plan plan;
    struct engine engine;
    struct decoding decoding;
};

static void open_texts(const char *folder, enum dtype dtype, int64_t positions, int64_t texts,
                       struct text_engine *out) {
    struct plan_options plan;
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan, threads, 2);
    SETTINGS_GIVE(&plan, dtype, dtype);
    SETTINGS_GIVE(&plan, sequence_length, positions);
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    SETTINGS_GIVE(&plan, batch, texts);
    expect_status(session_begin(folder, PROGRAMS_TO_WRITE, &plan, NULL, &out->session, &out->plan), STATUS_OK, NULL);
    expect_status(engine_open(&out->plan, &out->engine), STATUS_OK, NULL);
    expect_status(engine_load_weights(&out->engine), STATUS_OK, NULL);
    expect_status(decoding_create(&out->engine, &out->decoding), STATUS_OK, NULL);
}

static void open_text(const char *folder, enum dtype dtype, int64_t positions, struct text_engine *out) {
    open_texts(folder, dtype, positions, 1, out);
}

/* By the program that a text's next token is for. */
static void find_logits(struct decoding *decoding, int64_t text, const uint32_t *ids, size_t count,
                        const float **logits) {
    struct decoding_token token = {text, ids[count - 1]};
    enum status status = decoding_continues(decoding, text, count) ? decoding_step(decoding, &token, 1, logits)
                                                                   : decoding_read(decoding, text, ids, count, logits);
    expect_status(status, STATUS_OK, NULL);
}

static void close_text(struct text_engine *text) {
    decoding_free(&text->decoding);
    engine_close(&text->engine);
    session_plan_free(&text->plan);
    session_close(&text->session);
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
    int64_t vocab = engine_model(decoding->engine)->config.vocab_size;
    struct sampler sampler;
    struct sampler_input input = {.ids = ids->items, .count = ids->count};
    uint32_t token;
    expect_status(sampler_create(&options, 1, vocab, &sampler), STATUS_OK, NULL);
    find_logits(decoding, 0, ids->items, ids->count, &input.logits);
    expect_status(sampler_draw(&sampler, &input, 0, 0, &token), STATUS_OK, NULL);
    sampler_free(&sampler);
    return token;
}

static void check_tokens(const char *folder, const json_t *recorded) {
    struct text_engine text;
    struct token_ids ids = read_ids(recorded, "prompt"), expected = read_ids(recorded, "tokens");
    open_text(folder, DTYPE_F32, (int64_t)(ids.count + expected.count), &text);
    for (size_t i = 0; i < expected.count; i++) {
        uint32_t token = draw_greedily(&text.decoding, &ids);
        if (token != expected.items[i])
            fail_msg("%s: new token %zu is %u, transformers has %u", folder, i, token, expected.items[i]);
        assert_int_equal(vec_push(&ids, token), STATUS_OK);
    }
    vec_free(&ids);
    vec_free(&expected);
    close_text(&text);
}

static void tokens_are_those_of_transformers(void **state) {
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
                                      .micro_batch_sequences = 1,
                                      .micro_batches_per_wave = 1};
    struct harness harness;
    harness_open(&options, &harness);
    harness_set_inputs(&harness, tokens, NULL);
    harness_step(&harness, 0, false);
    memcpy(logits, harness_logits(&harness), LENGTH * TINY_VOCAB * sizeof *logits);
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
    const float *logits;
    open_text(folder, dtype, LENGTH, &text);
    find_logits(&text.decoding, 0, others, LENGTH, &logits);
    static const size_t counts[] = {5, 6, 7, 15, 16, LENGTH - 1, LENGTH};
    decoding_keep(&text.decoding, 0, 0);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        find_logits(&text.decoding, 0, ids, counts[i], &logits);
        double found = distance(logits, expected + (counts[i] - 1) * TINY_VOCAB);
        if (!(found <= bound)) fail_msg("%s: logits after %zu tokens off by %g", name, counts[i], found);
    }
    close_text(&text);
}

static void logits_are_those_of_the_whole(void **state) {
    (void)state;
    for (int i = 0; i < model_family_count; i++) {
        check_logits(model_families[i]->name, DTYPE_F32, 1e-5);
        check_logits(model_families[i]->name, DTYPE_BF16, 3e-2);
    }
}

/* A long text has the logits of its end by itself, by the rule of decoding_read. */
static void outgrown_caches_are_reported(void **state) {
    (void)state;
    enum { POSITIONS = 8, COUNT = 20 };
    const char *folder = BALLAST_FIXTURES "/models/llama";
    struct text_engine text;
    const float *logits;
    uint32_t ids[COUNT];
    float found[COUNT + 1][TINY_VOCAB];
    for (uint32_t i = 0; i < COUNT; i++)
        ids[i] = i * i * 17 % TINY_VOCAB;
    open_text(folder, DTYPE_F32, POSITIONS, &text);
    size_t start = 10 - POSITIONS;
    for (size_t count = 10; count <= COUNT; count++) {
        find_logits(&text.decoding, 0, ids, count, &logits);
        if (count - start > POSITIONS) start = count - POSITIONS / 2;
        assert_int_equal(text.decoding.texts[0].start, start);
        assert_int_equal(text.decoding.texts[0].filled, count - start);
        memcpy(found[count], logits, sizeof found[count]);
    }
    start = 10 - POSITIONS;
    for (size_t count = 10; count <= COUNT; count++) {
        if (count - start > POSITIONS) start = count - POSITIONS / 2;
        decoding_keep(&text.decoding, 0, 0);
        find_logits(&text.decoding, 0, ids + start, count - start, &logits);
        assert_true(distance(found[count], logits) < 1e-5);
    }
    close_text(&text);
}

/* Two caches of every layer, at the same place in both programs, and shown by kind. */
static void caches_are_in_the_plan(void **state) {
    (void)state;
    struct text_engine text;
    open_texts(BALLAST_FIXTURES "/models/llama", DTYPE_BF16, 100, 3, &text);
    const struct model_config *config = &text.session.model->config;
    int64_t bytes = 3 * 2 * config->layers * 100 * config->kv_heads * config->head_dim * 2;
    assert_int_equal(text.plan.memory[TIER_DEVICE].by_kind[BUFFER_CACHE], bytes);
    const struct program *prefill = text.plan.programs.of[PROGRAM_PREFILL]->program,
                         *decode = text.plan.programs.of[PROGRAM_DECODE]->program;
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

/* Larger than the fixtures, with a context of several chunks, and sizes that no vector divides. */
static void make_model(const char *folder, const char *family) {
    struct model_config config;
    struct model *model;
    expect_status(model_config_init(family, &config), STATUS_OK, NULL);
    config.vocab_size = TINY_VOCAB;
    config.hidden = 5 * 38;
    config.layers = 2;
    config.heads = 5;
    config.ffn = 333;
    config.context = 128;
    if (strcmp(family, "mistral") == 0) model_config_set_window(&config, 50);
    expect_status(model_create(&config, &model), STATUS_OK, NULL);
    expect_status(folder_create(folder), STATUS_OK, NULL);
    struct model_targets targets = model_targets_make(model, DTYPE_F32);
    (void)model_initialise_weights(model, 3, targets.items, targets.count);
    expect_status(model_write(model, folder, targets.items, targets.count, NULL), STATUS_OK, NULL);
    model_targets_drop(&targets);
    model_free(model);
}

static const char *const families[] = {"llama", "mistral", "gpt2", "opt"};

enum { TEXTS = 10, WRITTEN = 4, PROMPT_MAX = 90, POSITIONS = PROMPT_MAX + WRITTEN };

static size_t prompt_length(int64_t text) { return (size_t)(3 + text * text * 7 % (PROMPT_MAX - 3)); }

static uint32_t prompt_id(int64_t text, size_t i) {
    return (uint32_t)((text * 1009 + (int64_t)i * (int64_t)i * 31 + 5) % TINY_VOCAB);
}

static uint32_t largest(const float *logits) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < TINY_VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

struct text_under_way {
    uint32_t ids[POSITIONS];
    size_t count;
    float logits[WRITTEN][TINY_VOCAB];
};

static void begin_text(int64_t text, struct text_under_way *out) {
    out->count = prompt_length(text);
    for (size_t i = 0; i < out->count; i++)
        out->ids[i] = prompt_id(text, i);
}

static void take(struct text_under_way *text, int at, const float *logits) {
    memcpy(text->logits[at], logits, sizeof text->logits[at]);
    text->ids[text->count++] = largest(logits);
}

/* A text by itself, in some place of the caches, and at some row of the decode program. */
static void write_alone(struct decoding *decoding, int64_t text, int64_t place, struct text_under_way *out) {
    const float *logits;
    begin_text(text, out);
    decoding_keep(decoding, place, 0);
    for (int i = 0; i < WRITTEN; i++) {
        find_logits(decoding, place, out->ids, out->count, &logits);
        take(out, i, logits);
    }
}

/* All at once, in groups of DECODE_TEXTS that are formed anew at each step. */
static void write_together(struct decoding *decoding, struct text_under_way texts[TEXTS]) {
    const float *logits;
    for (int64_t t = 0; t < TEXTS; t++) {
        begin_text(t, &texts[t]);
        decoding_keep(decoding, t, 0);
        expect_status(decoding_read(decoding, t, texts[t].ids, texts[t].count, &logits), STATUS_OK, NULL);
        take(&texts[t], 0, logits);
    }
    for (int i = 1; i < WRITTEN; i++)
        for (int64_t first = 0, count; first < TEXTS; first += count) {
            struct decoding_token tokens[DECODE_TEXTS];
            count = TEXTS - first < 1 + i % DECODE_TEXTS ? TEXTS - first : 1 + i % DECODE_TEXTS;
            for (int64_t k = 0; k < count; k++) {
                int64_t text = (first + k) * 3 % TEXTS; /* a permutation, as 3 and TEXTS have no common divisor */
                tokens[k] = (struct decoding_token){text, texts[text].ids[texts[text].count - 1]};
            }
            expect_status(decoding_step(decoding, tokens, (size_t)count, &logits), STATUS_OK, NULL);
            for (int64_t k = 0; k < count; k++)
                take(&texts[tokens[k].text], i, logits + k * TINY_VOCAB);
        }
}

/* Whatever is computed next to a text, and wherever it lies: the same bits. */
static void check_texts_apart(const char *folder, enum dtype dtype) {
    static struct text_under_way together[TEXTS], alone;
    struct text_engine many, one;
    open_texts(folder, dtype, POSITIONS, TEXTS, &many);
    open_texts(folder, dtype, POSITIONS, 1, &one);
    write_together(&many.decoding, together);
    for (int64_t t = 0; t < TEXTS; t++)
        for (int where = 0; where < 2; where++) {
            if (where != t % 2 && !unit_sweep(0, 1)) continue;
            write_alone(where ? &many.decoding : &one.decoding, t, where ? (t + 5) % TEXTS : 0, &alone);
            assert_memory_equal(alone.ids, together[t].ids, alone.count * sizeof *alone.ids);
            assert_memory_equal(alone.logits, together[t].logits, sizeof alone.logits);
        }
    close_text(&one);
    close_text(&many);
}

static void texts_do_not_see_each_other(void **state) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *folder = temp_path(*state, families[i]);
        make_model(folder, families[i]);
        check_texts_apart(folder, DTYPE_F32);
        check_texts_apart(folder, DTYPE_BF16);
    }
}

/* What is kept of a text, by whatever programs it came, gives the bits that the whole has from nothing. */
static void check_kept(const char *folder, enum dtype dtype) {
    static struct text_under_way text;
    float kept[TINY_VOCAB];
    struct text_engine engine;
    const float *logits;
    open_text(folder, dtype, POSITIONS, &engine);
    static const struct {
        size_t common, there; /* tokens that both have; that stay */
    } cases[] = {{0, 0}, {5, 5}, {70, 70}, {PROMPT_MAX - 9, PROMPT_MAX - 9}, {PROMPT_MAX, PROMPT_MAX - 8}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        decoding_keep(&engine.decoding, 0, 0);
        for (size_t i = 0; i < POSITIONS; i++)
            text.ids[i] = prompt_id(1, i);
        find_logits(&engine.decoding, 0, text.ids, PROMPT_MAX - 8, &logits);
        for (size_t count = PROMPT_MAX - 7; count <= PROMPT_MAX; count++)
            find_logits(&engine.decoding, 0, text.ids, count, &logits);
        for (size_t i = cases[c].common; i < POSITIONS; i++)
            text.ids[i] = prompt_id(2, i);
        assert_int_equal(decoding_keep(&engine.decoding, 0, cases[c].common), cases[c].there);
        expect_status(decoding_read(&engine.decoding, 0, text.ids, POSITIONS, &logits), STATUS_OK, NULL);
        memcpy(kept, logits, sizeof kept);
        decoding_keep(&engine.decoding, 0, 0);
        expect_status(decoding_read(&engine.decoding, 0, text.ids, POSITIONS, &logits), STATUS_OK, NULL);
        assert_memory_equal(kept, logits, sizeof kept);
    }
    close_text(&engine);
}

static void kept_beginnings_change_no_bit(void **state) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *folder = temp_path(*state, families[i]);
        check_kept(folder, DTYPE_F32);
        check_kept(folder, DTYPE_BF16);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_do_not_see_each_other),      cmocka_unit_test(kept_beginnings_change_no_bit),
        cmocka_unit_test(tokens_are_those_of_transformers), cmocka_unit_test(logits_are_those_of_the_whole),
        cmocka_unit_test(outgrown_caches_are_reported),     cmocka_unit_test(caches_are_in_the_plan),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
