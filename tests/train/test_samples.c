/* Samples during training change no bit, take no memory of their own, and are the same after a stop and resume. Also
 * generates texts with the parts of `generate`. */
/* ctest: PROCESSORS 2 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/text_writer.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static const char text[] = "the river ran by the old mill and the river ran on to the sea, to the sea by the mill";

struct text_run {
    char model[512], data[512];
    struct tiny_run run;
};

static void make_run(const char *folder, struct text_run *out) {
    static char longer[40 * sizeof text];
    tiny_run_make(folder, "llama", &out->run);
    snprintf(out->model, sizeof out->model, "%s/text-model", folder);
    snprintf(out->data, sizeof out->data, "%s/text.txt", folder);
    if (!file_exists(out->model)) {
        text_model_make(out->model, text, 270, 300, false);
        for (size_t i = 0; i < sizeof longer - 1; i++)
            longer[i] = text[i % (sizeof text - 1)];
        temp_write_text(out->data, longer);
    }
    memcpy(out->run.model, out->model, sizeof out->model);
    out->run.data_paths[0] = out->data;
    out->run.options.data_path_count = 1;
    out->run.options.valid_path_count = 0;
    out->run.options.sample_every = 2;
    out->run.options.sample_tokens = 9;
    out->run.options.sample_prompt = "the river";
}

struct seen {
    int samples;
    int64_t bytes;
};

static void keep_bytes(void *payload, const struct session_plan *plan, const char *folder, int64_t first, int64_t steps,
                       int64_t tokens) {
    (void)folder, (void)first, (void)steps, (void)tokens;
    ((struct seen *)payload)->bytes = plan->programs.tier_bytes[TIER_DEVICE];
}

static void count_sample(void *payload, int64_t step, const char *prompt, const char *sample) {
    struct seen *seen = payload;
    seen->samples++;
    assert_true(step % 2 == 0 && strcmp(prompt, "the river") == 0);
    assert_non_null(sample);
}

static void samples_change_nothing(void **state) {
    struct text_run with, without;
    struct seen seen = {0}, unseen = {0};
    char a[512], b[512];
    make_run(*state, &with);
    make_run(*state, &without);
    without.run.options.sample_every = 0;
    snprintf(a, sizeof a, "%s/with", (const char *)*state);
    snprintf(b, sizeof b, "%s/without", (const char *)*state);
    struct train_events events = {.begin = keep_bytes, .sampled = count_sample, .payload = &seen};
    expect_status(tiny_run_begin(&with.run, a, &events), STATUS_OK, NULL);
    events.payload = &unseen;
    expect_status(tiny_run_begin(&without.run, b, &events), STATUS_OK, NULL);
    assert_int_equal(seen.samples, 3);
    assert_int_equal(unseen.samples, 0);
    assert_int_equal(seen.bytes, unseen.bytes);
    assert_false(file_exists(temp_path(b, "samples.jsonl")));
    char *x = tiny_run_metrics(a), *y = tiny_run_metrics(b);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    assert_true(files_equal(temp_path(a, "model/model.safetensors"), temp_path(b, "model/model.safetensors")));
}

static void samples_are_the_same_after_resume(void **state) {
    struct text_run run;
    char whole[512], parts[512];
    make_run(*state, &run);
    snprintf(whole, sizeof whole, "%s/whole", (const char *)*state);
    snprintf(parts, sizeof parts, "%s/parts", (const char *)*state);
    expect_status(tiny_run_begin(&run.run, whole, NULL), STATUS_OK, NULL);
    run.run.options.steps = 3;
    SETTINGS_GIVE(&run.run.options, schedule_steps, 6);
    expect_status(tiny_run_begin(&run.run, parts, NULL), STATUS_OK, NULL);
    /* As if it had been killed after its sample of step 2 and a part of the next. */
    assert_int_equal(folder_remove(temp_path(parts, "checkpoints/step-00000003")), STATUS_OK);
    expect_status(tiny_run_resume(parts, 6, NULL), STATUS_OK, NULL);
    assert_true(files_equal(temp_path(whole, "samples.jsonl"), temp_path(parts, "samples.jsonl")));
}

/* The last sample is what `generate` writes with the run's seed. */
static void generate(const char *model, struct generate_options *options, char *out) {
    struct plan_options plan = text_writer_plan(TINY_TOKENS);
    struct generate_result result;
    expect_status(text_writer_run(model, &plan, options, "the river", out, &result), STATUS_OK, NULL);
    assert_true(result.tokens <= options->tokens);
}

static void generate_writes_the_same(void **state) {
    struct text_run run;
    char folder[512], found[TEXT_WRITER_BYTES], *samples, path[600];
    size_t bytes;
    make_run(*state, &run);
    snprintf(folder, sizeof folder, "%s/compared", (const char *)*state);
    expect_status(tiny_run_begin(&run.run, folder, NULL), STATUS_OK, NULL);
    snprintf(path, sizeof path, "%s/model", folder);
    struct generate_options options;
    generate_options_init(&options);
    options.tokens = 9;
    generate(path, &options, found);
    assert_int_equal(file_read(temp_path(folder, "samples.jsonl"), 1 << 16, &samples, &bytes), STATUS_OK);
    samples[bytes - 1] = '\0';
    json_t *last = json_loads(strrchr(samples, '\n') + 1, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(last, "text")), found);
    json_decref(last);
    mem_free(samples);
    /* Texts that stop are the beginnings of those that do not. */
    char stopped[TEXT_WRITER_BYTES], end[3] = {found[4], found[5], '\0'};
    const char *stops[] = {end};
    options.stops = stops;
    options.stop_count = 1;
    generate(path, &options, stopped);
    char *at = strstr(found, end);
    assert_non_null(at);
    *at = '\0';
    assert_string_equal(stopped, found);
    end[0] = '\0';
    struct plan_options plan = text_writer_plan(TINY_TOKENS);
    expect_status(text_writer_run(path, &plan, &options, "the river", stopped, NULL), STATUS_BAD_INPUT, "stop");
}

static void require_beside(const struct program *training, const struct program *generating) {
    int64_t kept = 0;
    for (size_t i = 0; i < training->buffers.count; i++) {
        const struct buffer *buffer = &training->buffers.items[i];
        if (buffer->persistent && buffer->offset + buffer->bytes > kept) kept = buffer->offset + buffer->bytes;
    }
    for (size_t i = 0; i < generating->buffers.count; i++) {
        const struct buffer *buffer = &generating->buffers.items[i];
        assert_int_equal(buffer->shared && buffer->offset < kept, buffer->kind == BUFFER_PARAMETERS);
        if (buffer->kind != BUFFER_PARAMETERS) assert_true(buffer->offset >= kept);
    }
}

/* Three programs in one arena: parameters of all at one place, caches of two, and nothing else in what is kept. */
static void programs_share_an_arena(void **state) {
    struct text_run run;
    struct session session;
    struct session_plan plan;
    make_run(*state, &run);
    expect_status(session_begin(run.model, PROGRAMS_TO_TRAIN, &run.run.plan, &run.run.options, &session, &plan),
                  STATUS_OK, NULL);
    const struct programs *programs = &plan.programs;
    assert_non_null(programs->of[PROGRAM_PREFILL]);
    require_beside(programs->of[PROGRAM_STEP]->program, programs->of[PROGRAM_PREFILL]->program);
    require_beside(programs->of[PROGRAM_STEP]->program, programs->of[PROGRAM_DECODE]->program);
    int caches = 0;
    for (size_t i = 0; i < programs->of[PROGRAM_PREFILL]->program->buffers.count; i++) {
        const struct buffer *a = &programs->of[PROGRAM_PREFILL]->program->buffers.items[i],
                            *b = &programs->of[PROGRAM_DECODE]->program->buffers.items[i];
        if (a->kind != BUFFER_CACHE) continue;
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->offset, b->offset);
        caches++;
    }
    assert_int_equal(caches, 4);
    session_plan_free(&plan);
    session_close(&session);
}

static struct text_run swept;

static enum status generate_once(void *payload) {
    struct plan_options plan = text_writer_plan(TINY_TOKENS);
    struct generate_options options;
    char out[TEXT_WRITER_BYTES];
    (void)payload;
    SETTINGS_GIVE(&plan, threads, 1);
    generate_options_init(&options);
    options.tokens = 3;
    return text_writer_run(swept.model, &plan, &options, "the river", out, NULL);
}

static void faults_in_generation_are_reported(void **state) {
    make_run(*state, &swept);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, generate_once, NULL) > 100);
    assert_true(fault_sweep(FAULT_OPEN, false, generate_once, NULL) > 0);
}

static void bad_prompts_are_refused(void **state) {
    struct text_run run;
    char folder[512];
    make_run(*state, &run);
    snprintf(folder, sizeof folder, "%s/refused", (const char *)*state);
    run.run.options.sample_prompt = "";
    expect_status(tiny_run_begin(&run.run, folder, NULL), STATUS_BAD_INPUT, "prompt: is empty");
    assert_false(file_exists(folder));
    tiny_run_make(*state, "llama", &run.run);
    run.run.options.sample_every = 1;
    expect_status(tiny_run_begin(&run.run, folder, NULL), STATUS_BAD_INPUT, "tokenizer.json");
    assert_false(file_exists(folder));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_change_nothing),
        cmocka_unit_test(samples_are_the_same_after_resume),
        cmocka_unit_test(generate_writes_the_same),
        cmocka_unit_test(programs_share_an_arena),
        cmocka_unit_test(faults_in_generation_are_reported),
        cmocka_unit_test(bad_prompts_are_refused),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
