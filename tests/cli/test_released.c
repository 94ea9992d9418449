/* Files written by released versions of Ballast, and by commits before the first release
 * (tests/fixtures/released/make.sh). Each format can be read. Each run resumes to the bits of its own version, or is
 * refused by name. */
/* ctest: PROCESSORS 2 LABELS long */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/backend.h"
#include "base/file.h"
#include "data/token_file.h"
#include "plan/plan.h"
#include "profile/cache.h"
#include "profile/profile.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, temp_folder_drop)
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EXPECT(status, texts, ...) program_expect(*state, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define RELEASED BALLAST_FIXTURES "/released/"

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    if (setenv("XDG_CACHE_HOME", *state, 1) != 0) return -1;
    char *command = mem_format("cp -r %s0.1.0/model %s0.1.0/text.txt %s", RELEASED, RELEASED, (const char *)*state);
    int failed = system(command);
    mem_free(command);
    return failed;
}

static json_t *load(const char *path) {
    json_error_t error;
    json_t *object = json_load_file(path, 0, &error);
    if (!object) fail_msg("%s: %s", path, error.text);
    return object;
}

static const json_t *recipe_of(const json_t *settings) {
    return json_object_get(json_object_get(settings, "plan"), "recipe");
}

/* Copies a run next to the model and the text, which are at other paths here; returns the version of its kernels. */
static int take_run(const char *folder, const char *name) {
    char *command = mem_format("cp -r %s%s %s/run", RELEASED, name, folder);
    assert_int_equal(system(command), 0);
    mem_free(command);
    json_t *settings = load(temp_path(folder, "run/run.json"));
    json_object_set_new(settings, "model", json_string(temp_path(folder, "model")));
    json_object_set_new(json_object_get(settings, "options"), "data", json_pack("[s]", temp_path(folder, "text.txt")));
    assert_int_equal(json_dump_file(settings, temp_path(folder, "run/run.json"), 0), 0);
    int version = (int)json_integer_value(json_object_get(recipe_of(settings), "kernels_version"));
    json_decref(settings);
    return version;
}

static void expect_recorded_bits(const char *folder) {
    char recorded[32] = "";
    FILE *file = fopen(temp_path(folder, "run/bits"), "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%31s", recorded), 1);
    assert_int_equal(fclose(file), 0);
    json_t *reached = load(temp_path(folder, "run/checkpoints/step-00000006/state.json"));
    assert_string_equal(json_string_value(json_object_get(reached, "bits")), recorded);
    json_decref(reached);
}

/* A run of older kernels: what the message names, and that the change is recorded. */
static void expect_refused(void **state, int version) {
    char text[100], hint[100];
    const char *run = temp_path(*state, "run");
    snprintf(text, sizeof text, "run/run.json: recipe.kernels_version: %d is an older version of the cpu", version);
    snprintf(hint, sizeof hint, "hint: use %s, the last with version %d", kernel_version_last("cpu", version), version);
    EXPECT(2, TEXTS(text, hint, "; or --allow-recipe-change"), "resume", run, "--steps", "6");
    EXPECT(0, TEXTS("warning: recipe: kernels_version is "), "resume", run, "--steps", "6", "--allow-recipe-change");
    json_t *settings = load(temp_path(run, "run.json"));
    const json_t *change = json_array_get(json_object_get(settings, "changes"), 0);
    assert_int_equal(json_integer_value(json_object_get(change, "step")), 4);
    assert_string_equal(json_string_value(json_object_get(change, "field")), "kernels_version");
    assert_int_equal(atoi(json_string_value(json_object_get(change, "from"))), version);
    assert_int_equal(atoi(json_string_value(json_object_get(change, "to"))), backend_cpu.kernels_version);
    json_decref(settings);
}

static void resume(void **state, const char *name) {
    int version = take_run(*state, name);
    if (!kernel_versions_alike("cpu", version, backend_cpu.kernels_version)) {
        expect_refused(state, version);
        return;
    }
    EXPECT(0, NULL, "resume", temp_path(*state, "run"), "--steps", "6");
    expect_recorded_bits(*state);
}

static void a_run_of_0_1_0_resumes(void **state) { resume(state, "0.1.0/run"); }

/* The tokenizer's eos_token ends documents now; 0.1.0 took that of config.json. This checkpoint has no checksum of it.
 */
static void a_run_whose_tokens_change_is_refused(void **state) {
    (void)take_run(*state, "959b619d/run");
    const char *path = temp_path(*state, "run/checkpoints/step-00000004/tokenizer_config.json");
    json_t *settings = load(path);
    json_object_set_new(settings, "eos_token", json_string("a"));
    assert_int_equal(json_dump_file(settings, path, 0), 0);
    json_decref(settings);
    EXPECT(2,
           TEXTS("text.txt: Ballast 0.1.0 made other tokens of it: it did not read the special tokens",
                 "hint: resume a run of 0.1.0 with commit b4892385, or train anew"),
           "resume", temp_path(*state, "run"), "--steps", "6", "--allow-recipe-change");
}

/* Of the last commit with the keys of version 1: its run.json has version 2. */
static void a_run_with_changes_resumes(void **state) {
    static const char *const fields[] = {"round_micro_batches", "steps", "keep", "learning_rate"};
    resume(state, "4e810533/run");
    json_t *settings = load(temp_path(*state, "run/run.json"));
    const json_t *changes = json_object_get(settings, "changes");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *field = json_object_get(json_array_get(changes, i), "field");
        assert_string_equal(json_string_value(field), fields[i]);
    }
    json_decref(settings);
}

/* Two ranks with zero1 wrote it; one rank holds both lanes. */
static void a_run_of_0_1_0_on_two_ranks_resumes_on_one(void **state) { resume(state, "0.1.0/ranks"); }

static void a_checkpoint_of_format_4_resumes(void **state) { resume(state, "0241df19/run"); }

static void a_checkpoint_of_format_3_resumes(void **state) { resume(state, "959b619d/run"); }

/* On a processor with more than AVX2 the way back is named; on one with AVX2 alone the run goes on. */
static void another_instruction_set_is_refused(void **state) {
    int version = take_run(*state, "0.1.0/run");
    if (!kernel_versions_alike("cpu", version, backend_cpu.kernels_version)) return; /* it is refused for that */
    assert_int_equal(unsetenv("BALLAST_MAX_ISA"), 0);
    struct program_run done = PROGRAM(*state, "resume", temp_path(*state, "run"), "--steps", "6");
    assert_int_equal(setenv("BALLAST_MAX_ISA", "avx2", 1), 0);
    if (done.status == 0)
        expect_recorded_bits(*state);
    else if (done.status != 2 || !strstr(done.err, "recipe: isa is another here: it was made with avx2") ||
             !strstr(done.err, "hint: set BALLAST_MAX_ISA=avx2"))
        fail_msg("status %d: %s", done.status, done.err);
    program_run_free(&done);
}

static void a_plan_of_0_1_0_is_read(void **state) {
    const char *path = RELEASED "0.1.0/plan.json", *run = temp_path(*state, "run");
    struct plan plan;
    expect_status(plan_read(path, &plan), STATUS_OK, NULL);
    assert_int_equal(plan.recipe.batch, 4);
    assert_int_equal(plan.recipe.micro_batch_sequences, 1);
    assert_string_equal(plan.recipe.isa, "avx2");
    assert_string_equal(plan.recipe.lora, "4,8,q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj");
    assert_int_equal(plan.policy.chunk_bytes, 440);
    assert_int_equal(plan.policy.persistent_chunks, 3);
    assert_int_equal(plan.policy.optimizer, TIER_HOST);
    assert_int_equal(plan.policy.lookahead, 1);
    bool same = kernel_versions_alike("cpu", plan.recipe.kernels_version, backend_cpu.kernels_version);
    EXPECT(same ? 0 : 2, same ? NULL : TEXTS("or make the plan again: `ballast plan MODEL_DIR -o FILE`"), "train",
           temp_path(*state, "model"), temp_path(*state, "text.txt"), "-o", run, "--plan", path, "--host-memory", "60K",
           "--steps", "2");
}

static void a_cluster_of_0_1_0_is_read(void **state) {
    struct cluster cluster;
    expect_status(cluster_read(RELEASED "0.1.0/cluster.json", &cluster), STATUS_OK, NULL);
    assert_int_equal(cluster.device.cores, 2);
    assert_string_equal(cluster.device.isa, "avx2");
    assert_true(cluster.device.fp32_flops_per_s > 1e9);
    EXPECT(0, NULL, "plan", temp_path(*state, "model"), "--cluster", RELEASED "0.1.0/cluster.json", "--batch", "4");
}

/* Writes the fixture as this machine's costs, or as the other machine's that they are. */
static void place_costs(const struct profile_cache *cache, const char *machine) {
    json_t *costs = load(RELEASED "0.1.0/costs.json");
    if (machine) json_object_set_new(costs, "machine", json_string(machine));
    assert_int_equal(json_dump_file(costs, cache->path, 0), 0);
    json_decref(costs);
}

static void costs_of_0_1_0_are_read(void **state) {
    static const char key[] = "embedding 0w:int32[1,16] 1c:fp32[260,4] > 2w:fp32[1,16,4] - - - - -";
    const struct profile_options options = {.cache_folder = *state, .threads = 1};
    struct profile_cache cache;
    struct measurement found, product;
    for (int own = 0; own < 2; own++) {
        expect_status(profile_cache_open(&backend_cpu, &options, 0, &cache), STATUS_OK, NULL);
        place_costs(&cache, own ? cache.machine : NULL);
        profile_cache_close(&cache);
        expect_status(profile_cache_open(&backend_cpu, &options, 0, &cache), STATUS_OK, NULL);
        bool there = profile_cache_find(&cache, key, &found);
        assert_int_equal(there, own);
        assert_int_equal(profile_cache_find_product(&cache, DTYPE_F32, &product), own);
        profile_cache_close(&cache);
    }
    json_t *costs = load(RELEASED "0.1.0/costs.json");
    const json_t *kept = json_object_get(json_object_get(costs, "operators"), key);
    assert_true(found.seconds == json_number_value(json_array_get(kept, 0)));
    json_decref(costs);
}

/* A cache that is not taken is written again, as another file. */
static void tokens_of_0_1_0_are_read(void **state) {
    char *path = token_cache_path(temp_path(*state, "ballast"), temp_path(*state, "text.txt"));
    struct stat before, after;
    assert_int_equal(folder_create(temp_path(*state, "ballast")), STATUS_OK);
    assert_int_equal(file_copy(RELEASED "0.1.0/text.tokens", path), STATUS_OK);
    assert_int_equal(stat(path, &before), 0);
    EXPECT(0, NULL, "train", temp_path(*state, "model"), temp_path(*state, "text.txt"), "-o", temp_path(*state, "run"),
           "--batch", "4", "--seq", "16", "--steps", "1");
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    mem_free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_run_of_0_1_0_resumes),
        CASE(a_run_whose_tokens_change_is_refused),
        CASE(a_run_with_changes_resumes),
        CASE(a_run_of_0_1_0_on_two_ranks_resumes_on_one),
        CASE(a_checkpoint_of_format_4_resumes),
        CASE(a_checkpoint_of_format_3_resumes),
        CASE(another_instruction_set_is_refused),
        CASE(a_plan_of_0_1_0_is_read),
        CASE(a_cluster_of_0_1_0_is_read),
        CASE(costs_of_0_1_0_are_read),
        CASE(tokens_of_0_1_0_are_read),
    };
    setenv("BALLAST_MAX_ISA", "avx2", 1);
    if (backend_cpu.check() != STATUS_OK) unit_skip_all("%s; needs a processor with AVX2", status_message());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
