/* Evaluation with known results: a model for which all tokens are equally likely. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static char long_text[4001];

static void expect_near(double found, double expected) {
    if (!(fabs(found - expected) <= 1e-6 * expected)) fail_msg("%.9g, not %.9g", found, expected);
}

static struct eval_result evaluate(const char *model, const char *const *paths, size_t count) {
    struct plan_options plan;
    struct eval_result result;
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan, batch, 4);
    SETTINGS_GIVE(&plan, sequence_length, 32);
    SETTINGS_GIVE(&plan, threads, 2);
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    struct eval_options options = {.data_paths = paths, .data_path_count = count};
    expect_status(evaluate_files(model, &plan, &options, &result), STATUS_OK, NULL);
    return result;
}

/* A token a byte, one of 512: 9 bits. */
static void a_token_a_byte_has_its_loss_in_bits(void **state) {
    char model[512], text[512];
    snprintf(model, sizeof model, "%s/bytes", (const char *)*state);
    snprintf(text, sizeof text, "%s/bytes.txt", (const char *)*state);
    text_model_make(model, "a", 256, 512, true);
    temp_write_text(text, long_text);
    const char *paths[] = {text};
    struct eval_result result = evaluate(model, paths, 1);
    expect_near(result.files[0].loss, log(512));
    expect_near(result.files[0].perplexity, 512);
    expect_near(result.files[0].bits_per_byte, 9);
    expect_near(result.total.bits_per_byte, 9);
    eval_result_free(&result);
}

/* "ab" is a token, one of 1024: of 4000 bytes "abab…" are 2000 tokens of 10 bits; a file of 3999 bytes "aaa…" has a
 * token a byte. */
static void files_and_total_agree(void **state) {
    char model[512], pairs[512], single[512];
    snprintf(model, sizeof model, "%s/pairs", (const char *)*state);
    snprintf(pairs, sizeof pairs, "%s/pairs.txt", (const char *)*state);
    snprintf(single, sizeof single, "%s/single.txt", (const char *)*state);
    text_model_make(model, "ab ab ab", 257, 1024, true);
    for (size_t i = 0; i < 4000; i++)
        long_text[i] = i % 2 ? 'b' : 'a';
    temp_write_text(pairs, long_text);
    memset(long_text, 'a', 3999);
    long_text[3999] = '\0';
    temp_write_text(single, long_text);
    const char *paths[] = {pairs, single};
    struct eval_result result = evaluate(model, paths, 2);
    expect_near(result.files[0].bits_per_byte, 2000.0 * 10 / 4000);
    expect_near(result.files[1].bits_per_byte, 10);
    expect_near(result.total.bits_per_byte, (2000.0 + 3999) * 10 / (4000 + 3999));
    expect_near(result.total.perplexity, 1024);
    assert_int_equal(result.total.tokens, result.files[0].tokens + result.files[1].tokens);
    eval_result_free(&result);
}

static int prepare(void **state) {
    for (size_t i = 0; i + 1 < sizeof long_text; i++)
        long_text[i] = (char)('a' + i * i % 23);
    return temp_folder_make(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_a_byte_has_its_loss_in_bits),
        cmocka_unit_test(files_and_total_agree),
    };
    return cmocka_run_group_tests(tests, prepare, temp_folder_drop);
}
