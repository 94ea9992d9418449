/* A device accepts plans made on a device of its kind, or for a description of it. */
#include <stdio.h>
#include <string.h>

#include "profile/described_device.h"
#include "session/options.h"
#include "support/tiny_run.h"
#include "support/unit.h"

/* A GPU as the CUDA backend would find it. */
static const char *isa_here;

static enum status check(void) { return STATUS_OK; }
static const char *isa(void) { return isa_here; }

static struct backend gpu_with(const char *its_isa) {
    struct backend gpu = backend_cuda;
    isa_here = its_isa;
    gpu.check = check;
    gpu.isa = isa;
    gpu.choose_micro_batch_tokens = NULL;
    return gpu;
}

static struct cluster h100(void) {
    struct cluster cluster;
    expect_status(cluster_read(BALLAST_SOURCE "/clusters/h100-sxm.json", &cluster), STATUS_OK, NULL);
    return cluster;
}

static const struct model_config gpt2 = {.layers = 12, .hidden = 768, .context = 1024};

static struct plan resolve(const struct backend *backend, const struct plan *base, enum status expected,
                           const char *message) {
    struct plan_options options;
    struct plan plan = {0};
    plan_options_init(&options);
    if (!base) SETTINGS_GIVE(&options, batch, 32);
    expect_status(plan_options_resolve(&options, NULL, backend, &gpt2, base, "plan.json", &plan), expected, message);
    return plan;
}

static struct plan plan_for_h100(void) {
    struct cluster cluster = h100();
    const struct backend *backend;
    expect_status(described_device_find("h100", &cluster, &backend_cpu, &backend), STATUS_OK, NULL);
    return resolve(backend, NULL, STATUS_OK, NULL);
}

/* The GPU's micro-batches are the GPU's in any build: 16384 tokens for GPT-2 124M
 * (tests/plan/test_gpu_micro_batch.c). */
static void micro_batches_of_a_described_gpu(void **state) {
    (void)state;
    struct plan plan = plan_for_h100();
    assert_int_equal(plan.recipe.micro_batch_sequences, 16);
    assert_string_equal(plan.recipe.isa, "sm_90-132sm");
}

/* The GPU adds its libraries' versions, and all else stays. */
static void a_described_plan_on_the_gpu(void **state) {
    (void)state;
    struct plan described = plan_for_h100();
    struct backend gpu = gpu_with("sm_90-132sm+cublaslt-13.0.2");
    struct plan actual = resolve(&gpu, &described, STATUS_OK, NULL);
    assert_string_equal(actual.recipe.isa, isa_here);
    snprintf(described.recipe.isa, sizeof described.recipe.isa, "%s", isa_here);
    expect_status(recipe_require_equal(&described.recipe, &actual.recipe), STATUS_OK, NULL);
    assert_null(actual.recipe.products);
}

/* What has another number of multiprocessors, architecture or set of kernels is another device. */
static void a_described_plan_elsewhere(void **state) {
    (void)state;
    static const char *const others[] = {"sm_90-114sm+cublaslt-13.0.2", "sm_80-108sm+cublaslt-13.0.2",
                                         "sm_90-1320sm+cublaslt-13.0.2"};
    const struct plan described = plan_for_h100();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct backend gpu = gpu_with(others[i]);
        (void)resolve(&gpu, &described, STATUS_BAD_INPUT, "it was made with sm_90-132sm, this machine has sm_");
        assert_non_null(strstr(status_hint_text(), "described by a cluster file"));
    }
    struct plan vague = described; /* of an architecture alone */
    snprintf(vague.recipe.isa, sizeof vague.recipe.isa, "sm_90");
    struct backend gpu = gpu_with("sm_90-132sm+cublaslt-13.0.2");
    (void)resolve(&gpu, &vague, STATUS_BAD_INPUT, "it was made with sm_90, this machine has sm_90-132sm+");
    struct backend newer = gpu_with("sm_90-132sm+cublaslt-13.0.2");
    char refusal[128];
    snprintf(refusal, sizeof refusal,
             "plan.json: recipe.kernels_version: %d is an older version of the cuda kernels; Ballast ",
             newer.kernels_version++);
    (void)resolve(&newer, &described, STATUS_BAD_INPUT, refusal);
}

/* The message names the version, the hint the Ballast that has it. */
static void another_version_of_the_kernels_is_refused(void **state) {
    (void)state;
    struct plan plan = resolve(&backend_cpu, NULL, STATUS_OK, NULL);
    plan.recipe.kernels_version = 8;
    (void)resolve(&backend_cpu, &plan, STATUS_BAD_INPUT, "recipe.kernels_version: 8 is an older version of the cpu");
    assert_string_equal(status_hint_text(), "use commit a24fee9d (2026-11-24), the last with version 8");
    plan.recipe.kernels_version = 9; /* which differs in the loss that balances experts alone */
    assert_int_equal(resolve(&backend_cpu, &plan, STATUS_OK, NULL).recipe.kernels_version, 9);
    plan.recipe.kernels_version = 99;
    (void)resolve(&backend_cpu, &plan, STATUS_BAD_INPUT, "recipe.kernels_version: 99 needs a newer Ballast; Ballast ");
    assert_string_equal(status_hint_text(), "update Ballast to the release that wrote the file");
    struct plan_options options;
    plan_options_init(&options);
    SETTINGS_GIVE(&options, plan_path, "plan.json");
    expect_status(plan_options_resolve(&options, NULL, &backend_cpu, &gpt2, &plan, "plan.json", &(struct plan){0}),
                  STATUS_BAD_INPUT, "99 needs a newer Ballast");
    assert_non_null(strstr(status_hint_text(), "or make the plan again: `ballast plan MODEL_DIR -o FILE`"));
}

/* Each backend counts its own versions. */
static void another_backend_is_refused_by_its_isa(void **state) {
    (void)state;
    const struct plan described = plan_for_h100();
    assert_int_not_equal(described.recipe.kernels_version, backend_cpu.kernels_version);
    (void)resolve(&backend_cpu, &described, STATUS_BAD_INPUT, "isa is another here: it was made with sm_90-132sm");
}

/* What was trained with other libraries has other bits. */
static void a_plan_of_a_gpu(void **state) {
    (void)state;
    struct plan described = plan_for_h100();
    struct backend gpu = gpu_with("sm_90-132sm+cublaslt-13.0.2");
    struct plan actual = resolve(&gpu, &described, STATUS_OK, NULL);
    (void)resolve(&gpu, &actual, STATUS_OK, NULL);
    gpu = gpu_with("sm_90-132sm+cublaslt-13.1.0");
    (void)resolve(&gpu, &actual, STATUS_BAD_INPUT, "isa is another here");
    assert_string_equal(status_hint_text(), "");
}

/* Of a processor's instruction sets none is a part of another. */
static void no_set_of_a_processor_is_part_of_another(void **state) {
    (void)state;
    struct backend processor = backend_cpu;
    isa_here = "avx512+amx";
    processor.isa = isa;
    assert_true(backend_runs_isa(&processor, "avx512+amx"));
    assert_false(backend_runs_isa(&processor, "avx512"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_of_a_described_gpu),
        cmocka_unit_test(a_described_plan_on_the_gpu),
        cmocka_unit_test(a_described_plan_elsewhere),
        cmocka_unit_test(another_version_of_the_kernels_is_refused),
        cmocka_unit_test(another_backend_is_refused_by_its_isa),
        cmocka_unit_test(a_plan_of_a_gpu),
        cmocka_unit_test(no_set_of_a_processor_is_part_of_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
