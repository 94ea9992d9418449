/* Complete runs on a device whose memory the CPU cannot address: metrics, checkpoints, models, samples, evaluations
 * and texts equal the CPU's, byte for byte. */
/* ctest: PROCESSORS 2 TIMEOUT 600 LABELS long */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "support/deferred_backend.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/text_writer.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static const char text[] = "the river ran by the old mill and the river ran on to the sea, to the sea by the mill";

/* A model with a tokenizer, trained in bf16 with samples and validation. */
static void make_run(const char *folder, struct tiny_run *run) {
    static char longer[40 * sizeof text];
    const char *model = temp_path(folder, "text-model");
    tiny_run_make(folder, "llama", run);
    if (!file_exists(model)) {
        text_model_make(model, text, 270, 300, false);
        for (size_t i = 0; i < sizeof longer - 1; i++)
            longer[i] = text[i % (sizeof text - 1)];
        temp_write_text(temp_path(folder, "text.txt"), longer);
    }
    snprintf(run->model, sizeof run->model, "%s", temp_path(folder, "text-model"));
    snprintf(run->data, sizeof run->data, "%s", temp_path(folder, "text.txt"));
    snprintf(run->valid, sizeof run->valid, "%s", run->data);
    SETTINGS_GIVE(&run->plan, dtype, DTYPE_BF16);
    run->options.sample_every = 2;
    run->options.sample_tokens = 9;
    run->options.sample_prompt = "the river";
}

static void require_same(const char *a, const char *b, const char *file) {
    char first[1024], second[1024];
    snprintf(first, sizeof first, "%s/%s", a, file);
    snprintf(second, sizeof second, "%s/%s", b, file);
    if (!files_equal(first, second)) fail_msg("%s and %s differ", first, second);
}

/* Takes out the values of a name: what the policy decides, and what was measured for it. */
static void take_out(char *metrics, const char *name) {
    for (char *at = strstr(metrics, name); at; at = strstr(at, name)) {
        at += strlen(name);
        size_t bytes = strcspn(at, ",}");
        memmove(at, at + bytes, strlen(at + bytes) + 1);
    }
}

static void take_out_policy(char *metrics) {
    take_out(metrics, "\"predicted_device_bytes\": ");
    take_out(metrics, "\"predicted_step_s\": ");
}

static void require_same_runs(const char *a, const char *b) {
    char *x = tiny_run_metrics(a), *y = tiny_run_metrics(b);
    take_out_policy(x);
    take_out_policy(y);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    require_same(a, b, "samples.jsonl");
    require_same(a, b, "model/model.safetensors");
    require_same(a, b, "checkpoints/step-00000006/model.safetensors");
    require_same(a, b, "checkpoints/step-00000006/optimizer.safetensors");
}

struct sizes {
    int64_t device, elsewhere;
    int64_t parameters;
    bool measured; /* the policy was chosen by costs of this device */
};

static void note_sizes(void *payload, const struct session_plan *plan, const char *folder, int64_t first, int64_t steps,
                       int64_t tokens) {
    (void)folder, (void)first, (void)steps, (void)tokens;
    const int64_t *bytes = plan->programs.tier_bytes;
    *(struct sizes *)payload =
        (struct sizes){bytes[TIER_DEVICE], bytes[TIER_HOST] + bytes[TIER_DISK], plan->figures.trained_parameters,
                       plan->costs.host_kernels && plan->costs.rates.measured};
}

/* `device_bytes` 0: as many as it takes. */
static struct sizes train(const char *parent, const char *name, const struct backend *backend, int64_t device_bytes,
                          char folder[512]) {
    struct tiny_run run;
    struct sizes sizes = {0};
    struct train_events events = {.begin = note_sizes, .payload = &sizes};
    make_run(parent, &run);
    snprintf(folder, 512, "%s/%s", parent, name);
    if (backend) SETTINGS_GIVE(&run.plan, backend, backend);
    if (device_bytes > 0) {
        SETTINGS_GIVE(&run.plan.memory, device_bytes, device_bytes);
        SETTINGS_GIVE(&run.plan.memory, host_bytes, 64 << 20);
        memory_options_set_disk(&run.plan.memory, parent);
    }
    expect_status(tiny_run_begin(&run, folder, &events), STATUS_OK, NULL);
    return sizes;
}

/* All on the device, and with what has to go elsewhere: 4 and 8 of the 12 bytes of optimizer states a parameter. They
 * can go whatever workspace the kernels of this machine ask for. */
static void a_device_trains(void **state) {
    char plain[512], other[512];
    struct sizes whole = train(*state, "plain", NULL, 0, plain);
    assert_int_equal(whole.elsewhere, 0);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        char name[32];
        snprintf(name, sizeof name, "device-%d", (int)seed);
        int64_t less = 4 * ((int64_t)seed - 2) * whole.parameters;
        struct sizes sizes = train(*state, name, deferred_begin(seed), seed > 2 ? whole.device - less : 0, other);
        assert_true(deferred_launches() > 0);
        deferred_end();
        assert_true((sizes.elsewhere > 0) == (seed > 2));
        assert_true(sizes.measured == (seed > 2));
        require_same_runs(plain, other);
    }
}

static void require_products(const char *folder, const char *expected) {
    static const char *const files[] = {"plan.json", "run.json", "checkpoints/step-00000006/state.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[1024];
        json_t *object;
        struct plan plan;
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        expect_status(json_read_object(path, 1 << 20, &object), STATUS_OK, NULL);
        const json_t *own = json_object_get(object, "plan");
        expect_status(plan_from_json(path, own ? own : object, &plan), STATUS_OK, NULL);
        assert_string_equal(plan.recipe.products ? plan.recipe.products : "", expected);
        json_decref(object);
    }
}

/* Another algorithm in run.json than the checkpoint was made with. */
static void change_products(const char *folder) {
    char path[1024];
    json_t *object;
    snprintf(path, sizeof path, "%s/run.json", folder);
    expect_status(json_read_object(path, 1 << 20, &object), STATUS_OK, NULL);
    json_t *recipe = json_object_get(json_object_get(object, "plan"), "recipe");
    json_object_set_new(json_object_get(recipe, "products"), "product", json_string("07"));
    expect_status(json_write(path, object), STATUS_OK, NULL);
    json_decref(object);
}

/* Stopped on the device and gone on with there: check_bits compares what was read with what is written. Another device
 * of the kind takes the algorithms that the first one chose. */
static void a_device_resumes(void **state) {
    char plain[512], other[512];
    struct tiny_run run;
    make_run(*state, &run);
    snprintf(plain, sizeof plain, "%s/plain", (const char *)*state);
    snprintf(other, sizeof other, "%s/resumed", (const char *)*state);
    run.options.steps = 4;
    SETTINGS_GIVE(&run.options, schedule_steps, 6);
    deferred_choose(1);
    SETTINGS_GIVE(&run.plan, backend, deferred_begin(3));
    expect_status(tiny_run_begin(&run, other, NULL), STATUS_OK, NULL);
    struct plan_options plan;
    deferred_end();
    deferred_choose(2);
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan, backend, deferred_begin(3));
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    expect_status(train_resume(other, &plan, TINY_RESUME(6), NULL), STATUS_OK, NULL);
    require_products(other, "product 01\n");
    require_products(plain, "");
    require_same(plain, other, "model/model.safetensors");
    require_same(plain, other, "checkpoints/step-00000006/optimizer.safetensors");
    change_products(other);
    expect_status(train_resume(other, &plan, TINY_RESUME(8), NULL), STATUS_BAD_INPUT, "plan.recipe.products");
    deferred_end();
}

static void generate(const struct tiny_run *run, const struct backend *backend, char out[TEXT_WRITER_BYTES]) {
    struct plan_options plan = text_writer_plan(32);
    struct generate_options options;
    struct generate_result result;
    if (backend) SETTINGS_GIVE(&plan, backend, backend);
    generate_options_init(&options);
    options.tokens = 40;
    expect_status(text_writer_run(run->model, &plan, &options, "the river ran by the old mill and the", out, &result),
                  STATUS_OK, NULL);
}

static void a_device_generates(void **state) {
    struct tiny_run run;
    char plain[TEXT_WRITER_BYTES], other[TEXT_WRITER_BYTES];
    make_run(*state, &run);
    generate(&run, NULL, plain);
    generate(&run, deferred_begin(1), other);
    assert_true(deferred_launches() > 0);
    deferred_end();
    assert_true(plain[0] != '\0');
    assert_string_equal(plain, other);
}

static double evaluate(const struct tiny_run *run, const struct backend *backend) {
    const char *paths[] = {run->valid};
    struct eval_options options = {.data_paths = paths, .data_path_count = 1};
    struct plan_options plan = run->plan;
    struct eval_result result;
    if (backend) SETTINGS_GIVE(&plan, backend, backend);
    expect_status(evaluate_files(run->model, &plan, &options, &result), STATUS_OK, NULL);
    double loss = result.total.loss;
    eval_result_free(&result);
    return loss;
}

static void a_device_evaluates(void **state) {
    struct tiny_run run;
    make_run(*state, &run);
    double plain = evaluate(&run, NULL), other = evaluate(&run, deferred_begin(1));
    deferred_end();
    assert_memory_equal(&plain, &other, sizeof plain);
}

/* What is measured is kept in the directory as well. */
static int set_up(void **state) { return temp_folder_make(state) == 0 ? setenv("XDG_CACHE_HOME", *state, 1) : -1; }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_device_trains), cmocka_unit_test(a_device_resumes),
                                       cmocka_unit_test(a_device_generates), cmocka_unit_test(a_device_evaluates)};
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
