/* Evaluating a run's model gives its last validation loss, bit for bit. Steps allocate nothing. */
/* ctest: PROCESSORS 2 */
#include <math.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/folder.h"
#include "base/json.h"
#include "support/temp_folder.h"
#include "support/text_writer.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "support/weight_files.h"

static void keep_loss(void *payload, const struct train_validation *validation) {
    *(double *)payload = validation->loss;
}

static void it_is_the_same_as_validation(void **state) {
    struct tiny_run run;
    char folder[512];
    double last = 0;
    tiny_run_make(*state, "llama", &run);
    snprintf(folder, sizeof folder, "%s/run", (const char *)*state);
    struct train_events events = {.validated = keep_loss, .payload = &last};
    expect_status(tiny_run_begin(&run, folder, &events), STATUS_OK, NULL);
    const char *paths[2] = {run.valid, run.data};
    struct eval_options options = {.data_paths = paths, .data_path_count = 2};
    struct eval_result result;
    expect_status(evaluate_files(temp_path(folder, "model"), &run.plan, &options, &result), STATUS_OK, NULL);
    assert_int_equal(result.file_count, 2);
    assert_int_equal(result.files[0].sequences, 5);
    assert_int_equal(result.files[0].tokens, 5 * TINY_TOKENS);
    assert_true(!(result.files[0].loss < last || result.files[0].loss > last));
    assert_true(fabs(result.files[0].perplexity - exp(last)) < 1e-9 * exp(last));
    assert_true(isnan(result.files[0].bits_per_byte));
    double tokens = (double)(result.files[0].tokens + result.files[1].tokens);
    double mean = (result.files[0].loss * (double)result.files[0].tokens +
                   result.files[1].loss * (double)result.files[1].tokens) /
                  tokens;
    assert_true(fabs(result.total.loss - mean) < 1e-12);
    eval_result_free(&result);
    options.max_batches = 1;
    expect_status(evaluate_files(temp_path(folder, "model"), &run.plan, &options, &result), STATUS_OK, NULL);
    assert_int_equal(result.files[0].sequences, TINY_BATCH);
    eval_result_free(&result);
    paths[1] = "/nowhere.bin";
    expect_status(evaluate_files(temp_path(folder, "model"), &run.plan, &options, &result), STATUS_BAD_INPUT,
                  "/nowhere.bin");
}

/* The loss that balances experts is one of training. */
static void the_balance_of_experts_is_left_out(void **state) {
    struct tiny_run run;
    double losses[2];
    tiny_run_make(*state, "mixtral_balanced", &run);
    const char *paths[] = {run.valid}, *folder = temp_path(*state, "unbalanced");
    struct eval_options options = {.data_paths = paths, .data_path_count = 1};
    json_t *config;
    expect_status(json_read_object(temp_path(run.model, "config.json"), 1 << 20, &config), STATUS_OK, NULL);
    assert_true(json_is_true(json_object_get(config, "output_router_logits")));
    json_object_set_new(config, "output_router_logits", json_false());
    expect_status(folder_create(folder), STATUS_OK, NULL);
    assert_int_equal(json_dump_file(config, temp_path(folder, "config.json"), 0), 0);
    copy_file(temp_path(run.model, "model.safetensors"), temp_path(folder, "model.safetensors"));
    for (int i = 0; i < 2; i++) {
        struct eval_result result;
        expect_status(evaluate_files(i == 0 ? run.model : folder, &run.plan, &options, &result), STATUS_OK, NULL);
        losses[i] = result.total.loss;
        eval_result_free(&result);
    }
    assert_true(!(losses[0] < losses[1] || losses[0] > losses[1]));
    json_decref(config);
}

static void count_allocations(void *payload, const struct train_step *step) {
    int64_t *counts = payload;
    counts[step->step - 1] = fault_count(FAULT_ALLOCATE);
}

static void steps_allocate_nothing(void **state) {
    struct tiny_run run;
    int64_t counts[6] = {0};
    tiny_run_make(*state, "llama", &run);
    run.options.save_every = 100;
    run.options.valid_every = 0;
    struct train_events events = {.step = count_allocations, .payload = counts};
    expect_status(tiny_run_begin(&run, temp_path(*state, "counted"), &events), STATUS_OK, NULL);
    assert_true(counts[0] > 0);
    /* After the third step, before it is told of, its timeline is written. */
    for (int s = 1; s < 6; s++)
        if (s != 2) assert_int_equal(counts[s], counts[s - 1]);
}

static void generation_needs_a_tokenizer(void **state) {
    (void)state;
    struct plan_options plan = text_writer_plan(TINY_TOKENS);
    struct generate_options options;
    char text[TEXT_WRITER_BYTES];
    generate_options_init(&options);
    expect_status(text_writer_run(BALLAST_FIXTURES "/models/llama", &plan, &options, "a", text, NULL), STATUS_BAD_INPUT,
                  "tokenizer.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_same_as_validation),
        cmocka_unit_test(the_balance_of_experts_is_left_out),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(generation_needs_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
