/* "Will it fit?" `ballast plan` answers before weights exist. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "support/data_files.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)

static void a_config_alone_can_be_planned(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    const char *plan = temp_path(folder, "plan.json");
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    assert_int_equal(unlink(temp_path(model, "model.safetensors")), 0);
    EXPECT(folder, 0, TEXTS("model: its weights are not here; config.json is enough"), "plan", model, "-o", plan);
    EXPECT(folder, 0, NULL, "plan", model, "--for", "generate");
    EXPECT(folder, 0, NULL, "profile", model);
    EXPECT(folder, 0, NULL, "simulate", plan);
    EXPECT(folder, 0, NULL, "report", plan);
    static const char weights[] = "holds neither model.safetensors nor";
    EXPECT(folder, 2, TEXTS(weights), "train", model, text, "-o", temp_path(folder, "run"));
    EXPECT(folder, 2, TEXTS(weights), "eval", model, text);
    EXPECT(folder, 2, TEXTS(weights), "generate", model, "--prompt", "a");
}

static void a_preset_can_be_planned(void **state) {
    const char *folder = *state, *text = temp_path(folder, "text.txt"), *plan = temp_path(folder, "plan.json");
    make_text(text, 1000);
    struct program_run run = PROGRAM(folder, "plan", "SmolLM-135M", "--for", "generate", "--seq", "32", "-o", plan);
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "135 M parameters"));
    program_run_free(&run);
    json_t *document = json_load_file(plan, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(document, "model")), "smollm-135m");
    json_decref(document);
    EXPECT(folder, 2, TEXTS("hint: did you mean the preset smollm-135m?"), "plan", "smolm-135m");
    static const char weights[] = "smollm-135m: no such directory; the preset of that name has no weights";
    EXPECT(folder, 2, TEXTS(weights, "HuggingFaceTB/SmolLM-135M"), "train", "smollm-135m", text, "-o",
           temp_path(folder, "run"));
    EXPECT(folder, 2, TEXTS(weights), "eval", "smollm-135m", text);
    EXPECT(folder, 2, TEXTS(weights), "generate", "smollm-135m", "--prompt", "a");
}

/* Between two numbers of the curve: the curve has it, and what is before does not end in time. */
static void the_fewest_devices_are_looked_for_in_whole_nodes(void **state) {
    const char *folder = *state;
    struct program_run run = PROGRAM(folder, "plan", "llama-3.1-70b", "--cluster", "h100x8", "--tokens", "1T",
                                     "--target-days", "30", "--json");
    assert_int_equal(run.status, 0);
    json_t *plan = json_loads(run.out, 0, NULL), *choice;
    json_int_t devices = json_integer_value(json_object_get(plan, "target_devices"));
    double days = 0, before = 0;
    size_t i;
    json_array_foreach(json_object_get(plan, "curve"), i, choice) {
        json_int_t size = json_integer_value(json_object_get(choice, "devices"));
        if (size == devices) days = json_real_value(json_object_get(choice, "days"));
        if (size < devices) before = json_real_value(json_object_get(choice, "days"));
    }
    assert_true(devices > 384 && devices < 512 && devices % 8 == 0);
    assert_true(days > 0 && days <= 30 && before > 30);
    json_decref(plan);
    program_run_free(&run);
}

static void many_devices_can_be_planned_for(void **state) {
    const char *folder = *state;
    struct program_run run = PROGRAM(folder, "plan", "llama-2-7b", "--cluster", "h100x8", "--devices", "1024",
                                     "--price", "2.5", "--tokens", "1T", "--target-days", "30");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "6.74 B parameters"));
    assert_non_null(strstr(run.out, "layouts for 1024 devices"));
    assert_non_null(strstr(run.out, "the smallest number of whole nodes"));
    program_run_free(&run);
    run = PROGRAM(folder, "plan", "llama-2-7b", "--cluster", "h100x8", "--devices", "1024", "--tokens", "1T", "--mtbf",
                  "6000", "--restart-time", "300");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "failures  of each node every 6000 hours on average; a checkpoint takes 60 s, a "
                                    "restart 300 s\n"));
    assert_non_null(strstr(run.out, "save every  useful"));
    program_run_free(&run);
    run = PROGRAM(folder, "plan", "gpt2", "--cluster", "h100x8", "--devices", "16384", "--tokens", "1000000T",
                  "--target-days", "0.001");
    assert_non_null(strstr(run.out, "no number of devices up to 16384 "));
    program_run_free(&run);
    EXPECT(folder, 2, TEXTS("--devices requires --cluster"), "plan", "gpt2", "--devices", "8");
    EXPECT(folder, 2, TEXTS("--micro-batch: is not supported"), "plan", "gpt2", "--devices", "8", "--micro-batch", "2");
    EXPECT(folder, 2, TEXTS("--tokens: many"), "plan", "gpt2", "--cluster", "h100x8", "--devices", "8", "--tokens",
           "many");
    EXPECT(folder, 2, TEXTS("--target-days requires --tokens"), "plan", "gpt2", "--cluster", "h100x8", "--target-days",
           "3");
    EXPECT(folder, 2, TEXTS("network: is missing"), "plan", "gpt2", "--devices", "8", "--cluster",
           BALLAST_SOURCE "/clusters/h100-sxm.json");
    json_t *cluster = json_load_file(BALLAST_SOURCE "/clusters/h100x8.json", 0, NULL);
    assert_int_equal(json_object_set_new(cluster, "rates", json_null()), 0);
    assert_int_equal(json_dump_file(cluster, temp_path(folder, "no-rates.json"), 0), 0);
    json_decref(cluster);
    EXPECT(folder, 2, TEXTS("no-rates.json: rates: is missing"), "plan", "gpt2", "--devices", "8", "--cluster",
           temp_path(folder, "no-rates.json"));
    EXPECT(folder, 3, TEXTS("no layout fits 8 devices"), "plan", "llama-3.1-405b", "--cluster", "rtx4090x8",
           "--devices", "8");
}

/* Heads that are not hidden / heads wide, and a gated MLP with GELU: all but the norms of each head is counted. */
static void many_devices_are_planned_for_the_model_s_own_sizes(void **state) {
    const char *folder = *state;
    static const struct {
        const char *name, *parameters;
    } models[] = {{"gemma-2-9b", "9.24 B parameters"},
                  {"qwen3-4b", "4.02 B parameters"},
                  {"mistral-nemo-12b", "12.2 B parameters"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct program_run run = PROGRAM(folder, "plan", models[i].name, "--cluster", "h100x8", "--devices", "16");
        assert_int_equal(run.status, 0);
        assert_non_null(strstr(run.out, models[i].parameters));
        program_run_free(&run);
    }
    EXPECT(folder, 2, TEXTS("mixtral: is a mixture of experts"), "plan",
           BALLAST_SOURCE "/tests/fixtures/models/mixtral", "--cluster", "h100x8", "--devices", "16");
}

/* Whether the Pareto front is drawn depends on --devices; what is there and no page is not written over. */
static void many_devices_have_a_page_and_drawings(void **state) {
    const char *folder = *state, *page = temp_path(folder, "page.html"), *drawings = temp_path(folder, "drawings");
    EXPECT(folder, 0, TEXTS("page.html: open it in any browser"), "plan", "gpt2", "--cluster", "h100x8", "--devices",
           "16", "--page", page, "--svg", drawings);
    for (int again = 0; again < 2; again++)
        EXPECT(folder, 0, NULL, "plan", "gpt2", "--cluster", "h100x8", "--tokens", "10B", "--target-days", "3",
               "--page", page, "--svg", temp_path(folder, "curve alone"));
    assert_true(file_exists(temp_path(drawings, "pareto_front.svg")));
    assert_true(file_exists(temp_path(temp_path(folder, "curve alone"), "timeline.svg")));
    assert_false(file_exists(temp_path(temp_path(folder, "curve alone"), "pareto_front.svg")));
    make_text(page, 100);
    make_text(temp_path(drawings, "memory.svg"), 100);
    EXPECT(folder, 2, TEXTS("page.html: exists and is not a page"), "plan", "gpt2", "--cluster", "h100x8", "--devices",
           "8", "--page", page);
    EXPECT(folder, 2, TEXTS("memory.svg: exists and is not a drawing"), "plan", "gpt2", "--cluster", "h100x8",
           "--devices", "8", "--svg", drawings);
}

static void expect_link(const char *path) {
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

/* As /dev/stdout, whose link must stay. */
static void an_output_through_a_link_leaves_the_link(void **state) {
    const char *folder = *state, *link = temp_path(folder, "link"), *linked = temp_path(folder, "linked");
    const char *printed = temp_path(folder, "printed");
    assert_int_equal(symlink("linked", link), 0);
    assert_int_equal(symlink(".stdout", printed), 0);
    EXPECT(folder, 2, TEXTS("link: is a symbolic link to a missing file"), "plan", "SmolLM-135M", "-o", link);
    temp_write_text(linked, "");
    for (int again = 0; again < 2; again++)
        EXPECT(folder, 0, NULL, "plan", "SmolLM-135M", "--for", "generate", "--seq", "32", "-o", link);
    expect_link(link);
    EXPECT(folder, 0, NULL, "report", linked, "-o", temp_path(folder, "page.html"));
    temp_write_text(linked, "");
    EXPECT(folder, 0, NULL, "plan", "gpt2", "--cluster", "h100x8", "--devices", "8", "--page", link);
    expect_link(link);
    EXPECT(folder, 2, TEXTS("printed: standard output or standard error is redirected to this file"), "plan",
           "SmolLM-135M", "-o", printed);
    EXPECT(folder, 2, TEXTS("printed: standard output or standard error is redirected to this file"), "plan", "gpt2",
           "--cluster", "h100x8", "--devices", "8", "--page", printed);
    expect_link(printed);
}

static void a_described_gpu_plans_experts(void **state) {
    EXPECT(*state, 0, NULL, "plan", BALLAST_FIXTURES "/models/mixtral", "--cluster",
           BALLAST_SOURCE "/clusters/h100-sxm.json");
    EXPECT(*state, 0, NULL, "plan", BALLAST_FIXTURES "/models/gpt_oss_mxfp4", "--lora", "2,4,all-linear", "--cluster",
           BALLAST_SOURCE "/clusters/h100-sxm.json");
}

/* A GPU that is elsewhere: its plan is whole, and says that nothing of it is measured. */
static void a_described_gpu_can_be_planned(void **state) {
    const char *folder = *state, *plan = temp_path(folder, "plan.json");
    struct program_run run = PROGRAM(folder, "plan", "gpt2", "--cluster", BALLAST_SOURCE "/clusters/h100-sxm.json",
                                     "--batch", "32", "-o", plan);
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "bf16, batch 32 x 1024 tokens"));
    assert_non_null(strstr(run.out, "2 micro-batches of 16 sequences, sm_90-132sm, seed 1\n"));
    assert_non_null(strstr(run.out, "step, predicted, not measured\n"));
    assert_non_null(strstr(run.out, "  range "));
    assert_non_null(strstr(run.out, "estimated operators on NVIDIA H100"));
    assert_non_null(strstr(run.out, "attention_grad "));
    assert_non_null(strstr(run.out, "of the data sheet's 989 TFLOP/s"));
    assert_non_null(strstr(run.out, "384 MiB of a GPU for CUDA graphs and libraries"));
    program_run_free(&run);
    json_t *document = json_load_file(plan, 0, NULL);
    const json_t *range = json_object_get(document, "step_range_s");
    double step_s = json_number_value(json_object_get(document, "step_s"));
    assert_true(step_s > 0.02);
    assert_true(json_number_value(json_array_get(range, 0)) < step_s);
    assert_true(json_number_value(json_array_get(range, 1)) > step_s);
    json_decref(document);
    run = PROGRAM(folder, "plan", "smollm-135m", "--device", "cpu", "--for", "generate", "--seq", "32", "--cluster",
                  BALLAST_SOURCE "/clusters/h100-sxm.json");
    assert_int_equal(run.status, 0);
    assert_null(strstr(run.out, "sm_90"));
    program_run_free(&run);
}

static json_t *read_json(const char *folder, const char *name) {
    json_t *value = json_load_file(temp_path(folder, name), 0, NULL);
    if (!value) fail_msg("%s: no JSON", name);
    return value;
}

static double float_of(const char *folder, const char *name, const char *field) {
    json_t *object = read_json(folder, name);
    double value = json_number_value(json_object_get(object, field));
    json_decref(object);
    return value;
}

/* A field of the line of metrics.jsonl that is for this step. */
static double metric(const char *run, int step, const char *field) {
    char line[4096];
    double value = -1;
    FILE *file = fopen(temp_path(run, "metrics.jsonl"), "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_integer_value(json_object_get(object, "step")) == step)
            value = json_number_value(json_object_get(object, field));
        json_decref(object);
    }
    fclose(file);
    return value;
}

/* metrics.jsonl has six digits of times. */
static bool is_printed(double printed, double exact) { return fabs(printed / exact - 1) < 1e-5; }

/* What was measured is forgotten, as on a machine where the plan was not made. */
static void forget_measured(const char *folder) {
    const char *cache = temp_path(folder, "ballast");
    struct names names;
    assert_int_equal(folder_list(cache, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        if (strncmp(names.items[i], "profile-", 8) == 0) assert_int_equal(unlink(temp_path(cache, names.items[i])), 0);
    names_free(&names);
}

/* The plan's predicted time is the run's, and every place that tells a step's time tells the same of the same step. */
static void one_step_has_one_number(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    const char *plan = temp_path(folder, "plan.json"), *out = temp_path(folder, "run");
    char headline[128];
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    EXPECT(folder, 0, NULL, "plan", model, "-o", plan, "--device", "cpu");
    double planned = float_of(folder, "plan.json", "step_s");
    assert_true(planned > 0);
    forget_measured(folder);
    struct program_run run =
        PROGRAM(folder, "train", model, text, "--plan", plan, "-o", out, "--steps", "5", "--save-every", "5");
    assert_int_equal(run.status, 0);
    assert_true(float_of(out, "plan.json", "step_s") == planned);
    assert_true(is_printed(metric(out, 3, "predicted_step_s"), planned));
    json_t *before = read_json(folder, "plan.json"), *after = read_json(out, "plan.json");
    assert_true(json_equal(json_object_get(before, "streams"), json_object_get(after, "streams")));
    assert_true(json_equal(json_object_get(before, "binds"), json_object_get(after, "binds")));
    json_decref(before);
    json_decref(after);

    double measured = float_of(out, "timeline.json", "wall_s");
    assert_true(is_printed(metric(out, 3, "step_s"), measured));
    snprintf(headline, sizeof headline, "step 3  predicted %.4g s", planned);
    if (!strstr(run.err, headline)) fail_msg("'%s' is not in: %s", headline, run.err);
    program_run_free(&run);
    snprintf(headline, sizeof headline, "measured step    %9.4f s (step 3 of the run)", measured);
    run = PROGRAM(folder, "simulate", out);
    if (!strstr(run.out, headline)) fail_msg("'%s' is not in: %s", headline, run.out);
    program_run_free(&run);
    assert_true(float_of(out, "timeline.json", "step") == 3);

    forget_measured(folder);
    EXPECT(folder, 0, NULL, "resume", out, "--steps", "6");
    assert_true(float_of(out, "plan.json", "step_s") == planned);
}

/* The amount of memory after each "--device-memory" of a hint, in the order of the text. */
static int read_amounts(const char *hint, double mib[8]) {
    int count = 0;
    for (const char *at = hint; count < 8 && (at = strstr(at, "--device-memory ")); count++) {
        char *unit;
        at += strlen("--device-memory ");
        mib[count] = strtod(at, &unit) * (*unit == 'G' ? 1024 : *unit == 'K' ? 1.0 / 1024 : 1);
    }
    return count;
}

/* Where other settings save nothing they are not suggested; where they do, they ask for less. */
static void suggestions_need_less_memory(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *caps[] = {"64K", "1M", "3M", "8M", "20M"};
    EXPECT(folder, 0, NULL, "init", model, "--arch", "llama", "--hidden", "128", "--layers", "1", "--heads", "2",
           "--vocab", "6000", "--context", "128");
    for (size_t c = 0; c < sizeof caps / sizeof *caps; c++)
        for (int few = 0; few < 2; few++) {
            double mib[8];
            struct program_run run = PROGRAM(folder, "plan", model, "--device-memory", caps[c], "--dtype", "fp32",
                                             "--batch", few ? "1" : "8", "--seq", few ? "64" : "128");
            const char *hint = strstr(run.err, "hint: ");
            assert_int_equal(run.status, 3);
            assert_non_null(hint);
            int amounts = read_amounts(hint, mib);
            assert_true(amounts >= 1);
            for (int i = 1; i < amounts; i++)
                if (mib[i] >= mib[0]) fail_msg("%s", hint);
            program_run_free(&run);
        }
}

/* A device tier that is given needs no look at the system's memory. */
static void without_proc_a_given_memory_is_enough(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    char command[8192];
#if defined(__SANITIZE_ADDRESS__)
    unit_skip("the sanitizer itself reads /proc; needs a plain build");
#endif
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    static const char hide[] = "unshare -rm sh -c \"mount -t tmpfs none /proc && %s\" >/dev/null 2>&1";
    snprintf(command, sizeof command, hide, "true");
    if (system(command) != 0) {
        unit_skip("/proc cannot be hidden; needs namespaces of mounts (root, or users' own)");
    }
    snprintf(command, sizeof command,
             "unshare -rm sh -c \"mount -t tmpfs none /proc && XDG_CACHE_HOME=%s '%s' plan %s --device-memory 64M && "
             "'%s' train %s %s --steps 2 --device-memory 64M -o %s/run\" >%s/out 2>%s/err",
             folder, BALLAST_PROGRAM, model, BALLAST_PROGRAM, model, text, folder, folder, folder);
    int status = system(command);
    if (status != 0) {
        snprintf(command, sizeof command, "cat %s/err >&2", folder);
        (void)!system(command);
    }
    assert_int_equal(status, 0);
}

static void sizes_nobody_means_are_refused(void **state) {
    const char *folder = *state;
    EXPECT(folder, 2, TEXTS("--device-memory: 24 without a unit is 24 bytes", "hint: did you mean 24G?"), "plan",
           "gpt2", "--device-memory", "24");
    EXPECT(folder, 2, TEXTS("--host-memory: 4096 without a unit", "hint: did you mean 4096M?"), "plan", "gpt2",
           "--host-memory", "4096");
    EXPECT(folder, 2, TEXTS("--disk: 100 without a unit", "hint: did you mean 100G?"), "plan", "gpt2", "--disk",
           ".:100");
}

static int64_t int_of(const json_t *object, const char *field) {
    assert_true(json_is_integer(json_object_get(object, field)));
    return (int64_t)json_integer_value(json_object_get(object, field));
}

static void ranks_that_are_not_here_can_be_planned_for(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    struct program_run run =
        PROGRAM(folder, "plan", model, "--ranks", "4", "--nodes", "4", "-o", temp_path(folder, "ranks.json"), "--batch",
                "4", "--micro-batch", "1", "--seq", "16");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "ranks     4: 4 nodes of 1"));
    assert_non_null(strstr(run.out, "the times exclude communication"));
    program_run_free(&run);
    json_t *document = read_json(folder, "ranks.json"), *sum = json_object_get(document, "communication");
    json_t *recipe = json_object_get(document, "recipe"), *policy = json_object_get(document, "policy");
    assert_string_equal(json_string_value(json_object_get(recipe, "lanes")), "4x1");
    assert_string_equal(json_string_value(json_object_get(policy, "ranks")), "4x1");
    assert_true(int_of(sum, "across_bytes") > 0);
    assert_int_equal(int_of(sum, "in_node_bytes"), 0);
    assert_int_equal(int_of(sum, "read_bytes"), 0);
    json_decref(document);
    EXPECT(folder, 2, TEXTS("--nodes: 4 ranks are not divisible by 3 nodes"), "plan", model, "--ranks", "4", "--nodes",
           "3");
    EXPECT(folder, 2, TEXTS("--nodes requires --ranks"), "plan", model, "--nodes", "3");
    EXPECT(folder, 2, TEXTS("policy.ranks"), "plan", model, "--ranks", "3", "--lanes", "8");
    EXPECT(folder, 2, TEXTS("--tensor-parallel", "use --ranks 2, or another multiple of 2"), "plan", model,
           "--tensor-parallel", "2");
    EXPECT(folder, 2, TEXTS("--pipeline-parallel", "use --ranks 2, or another multiple of 2"), "plan", model,
           "--pipeline-parallel", "2");
    EXPECT(folder, 2, TEXTS("4 with tensor_parallel 2 does not divide 4 ranks", "nearest legal value is 2"), "plan",
           model, "--ranks", "4", "--tensor-parallel", "2", "--pipeline-parallel", "4");
    EXPECT(folder, 2, TEXTS("unknown partition 'zero4'", "zero3"), "plan", model, "--ranks", "4", "--partition",
           "zero4");
}

/* Each operator has its cheapest strategy, and what does not divide its reason; without --explain there is none. */
static void strategies_are_explained(void **state) {
    const char *folder = *state;
    struct program_run run =
        PROGRAM(folder, "plan", "gpt2", "--ranks", "8", "--nodes", "1", "--cluster", "h100x8", "--explain");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "12 heads do not divide by the 8 devices of axis 0"));
    assert_null(strstr(run.out, "rows of the vocabulary do not divide"));
    assert_non_null(strstr(run.out, "layer.0.attn.c_attn"));
    program_run_free(&run);
    run = PROGRAM(folder, "plan", "gpt2", "--ranks", "8", "--nodes", "1", "--cluster", "h100x8");
    assert_null(strstr(run.out, "do not divide"));
    program_run_free(&run);
}

/* What Megatron-LM's assignment refuses has a plan, in whose file the solver's rates are kept. */
static void the_solvers_layout_is_explained(void **state) {
    const char *folder = *state;
    EXPECT(folder, 2, TEXTS("12 heads are not divisible by 8 ranks"), "plan", "gpt2", "--ranks", "8",
           "--tensor-parallel", "8", "--cluster", "h100x8");
    struct program_run run =
        PROGRAM(folder, "plan", "gpt2", "--ranks", "8", "--tensor-parallel", "8", "--cluster", "h100x8", "--layout",
                "solver", "--explain", "-o", temp_path(folder, "solved.json"));
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "layout: chosen by the solver"));
    assert_non_null(strstr(run.out, "Megatron-LM's layout is not divisible"));
    program_run_free(&run);
    json_t *document = read_json(folder, "solved.json");
    const json_t *recipe = json_object_get(document, "recipe");
    assert_string_equal(json_string_value(json_object_get(recipe, "layout")), "solver");
    assert_true(json_number_value(json_object_get(json_object_get(recipe, "layout_rates"), "flops_per_s")) > 1e12);
    json_decref(document);
    run = PROGRAM(folder, "plan", "gpt2", "--ranks", "4", "--tensor-parallel", "4", "--cluster", "h100x8", "--layout",
                  "solver", "--batch", "1", "--explain");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "of Megatron-LM's layout"));
    program_run_free(&run);
}

/* Of the nine legal triples of four ranks each has a line and an entry, and one that is asked for is taken. */
static void partitions_are_explained_and_requested(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    struct program_run run =
        PROGRAM(folder, "plan", model, "--ranks", "4", "--nodes", "2", "--explain", "-o", temp_path(folder, "all.json"),
                "--batch", "4", "--micro-batch", "1", "--seq", "16");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "in the plan"));
    assert_non_null(strstr(run.out, "2x2|2x2|2x2"));
    program_run_free(&run);
    json_t *document = read_json(folder, "all.json");
    assert_int_equal(json_array_size(json_object_get(document, "partitions")), 9);
    json_decref(document);
    run = PROGRAM(folder, "plan", model, "--ranks", "4", "--nodes", "2", "--partition", "zero3", "--collectives",
                  "flat", "-o", temp_path(folder, "zero3.json"), "--batch", "4", "--micro-batch", "1", "--seq", "16");
    assert_int_equal(run.status, 0);
    program_run_free(&run);
    document = read_json(folder, "zero3.json");
    const json_t *policy = json_object_get(document, "policy"), *widths = json_object_get(policy, "partition");
    assert_int_equal(int_of(widths, "parameters"), 4);
    assert_int_equal(int_of(widths, "optimizer"), 4);
    assert_true(json_is_true(json_object_get(policy, "flat")));
    json_decref(document);
    EXPECT(folder, 2, TEXTS("partition: 2x1|1x1|2x1 is not legal for 1 x 4 ranks"), "plan", model, "--ranks", "4",
           "--partition", "2|1|2");
}

/* Bytes of caches that a plan for texts prints. */
static long long cache_bytes(const char *folder, const char *model, const char *stages) {
    long long bytes = 0;
    struct program_run run =
        PROGRAM(folder, "plan", model, "--for", "generate", "--ranks", "2", "--pipeline-parallel", stages);
    const char *row = run.status == 0 ? strstr(run.out, "\n  cache ") : NULL;
    if (!row || sscanf(row, "\n  cache %lld B", &bytes) != 1) fail_msg("status %d: %s%s", run.status, run.out, run.err);
    program_run_free(&run);
    return bytes;
}

static void stages_are_planned_together(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    struct program_run run =
        PROGRAM(folder, "plan", model, "--ranks", "4", "--pipeline-parallel", "2", "--virtual-stages", "1",
                "--partition", "zero3", "-o", temp_path(folder, "staged.json"), "--batch", "8", "--micro-batch", "1",
                "--seq", "16", "--lanes", "2");
    if (run.status != 0) fail_msg("status %d: %s", run.status, run.err);
    assert_non_null(strstr(run.out, "pipeline stages (one rank of each, simulated together)\n  1 "));
    assert_non_null(strstr(run.out, "% of the time\n"));
    program_run_free(&run);
    json_t *document = read_json(folder, "staged.json");
    double step_s = json_number_value(json_object_get(document, "step_s")), compute_s = 0;
    const json_t *pipeline = json_object_get(document, "pipeline"), *stages = json_object_get(pipeline, "stages");
    assert_int_equal(json_array_size(stages), 2);
    for (size_t stage = 0; stage < 2; stage++)
        compute_s += json_number_value(json_object_get(json_array_get(stages, stage), "compute_s"));
    double bubble = json_number_value(json_object_get(pipeline, "bubble"));
    assert_true(bubble > 0 && fabs(bubble - (1 - compute_s / (2 * step_s))) < 1e-6);
    json_decref(document);
    EXPECT(folder, 0, NULL, "simulate", temp_path(folder, "staged.json"));
    EXPECT(folder, 2, TEXTS("--virtual-stages"), "plan", model, "--ranks", "2", "--pipeline-parallel", "2",
           "--virtual-stages", "0");
    EXPECT(folder, 2, TEXTS("policy.pipeline_parallel: 6 stages need at least 6 blocks"), "plan", model, "--ranks", "2",
           "--pipeline-parallel", "2", "--virtual-stages", "3");
    assert_int_equal(cache_bytes(folder, model, "1"), 2 * cache_bytes(folder, model, "2"));
}

/* Of all policies those that take all micro-batches in one pass alone fit: no gradient waits for a next pass. */
static void one_pass_fits_where_gradients_need_not_wait(void **state) {
    struct program_run run =
        PROGRAM(*state, "plan", "llama-2-7b", "--cluster", "rtx4090x8", "--host-memory", "56G", "--optimizer-dtype",
                "bf16", "--master-weights", "none", "--clip-norm", "0", "--seq", "2048", "--batch", "8");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "4 micro-batches of 2 sequences"));
    assert_non_null(strstr(run.out, "4 micro-batches per wave"));
    program_run_free(&run);
}

/* A disk that was given and is too small, or of no use: the hint names its free bytes and rates. */
static void a_disk_that_is_too_small_is_described(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    char small[700];
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    snprintf(small, sizeof small, "%s:4K", folder);
    EXPECT(folder, 3,
           TEXTS("no plan fits: the device tier", " free, of which the disk tier may take 4.00 KiB; it reads "), "plan",
           model, "--batch", "4", "--seq", "16", "--device-memory", "300K", "--disk", small);
    EXPECT(folder, 3, TEXTS("no plan fits: the device tier", " free; it reads ", " GB/s and writes ", "GB/s\n"), "plan",
           model, "--batch", "4", "--seq", "16", "--device-memory", "8K", "--disk", folder);
}

/* A V100's tensor cores have fp16 alone, which Ballast does not train in. */
static void bf16_is_planned_only_for_devices_that_have_it(void **state) {
    const char *folder = *state;
    struct program_run run = PROGRAM(folder, "plan", "gpt2", "--cluster", "v100x8", "--seq", "256");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "recipe    fp32, "));
    assert_non_null(strstr(run.err, "V100-SXM2-32GB has no bf16 tensor cores; the plan is in fp32"));
    program_run_free(&run);
    EXPECT(folder, 0, NULL, "plan", "gpt2", "--cluster", "v100x8", "--seq", "256", "--dtype", "fp32");
    EXPECT(folder, 2, TEXTS("--dtype: bf16: ", "has no bf16 tensor cores", "use --dtype fp32"), "plan", "gpt2",
           "--cluster", "v100x8", "--dtype", "bf16");
    EXPECT(folder, 2, TEXTS("v100x8: devices[0].bf16_matrix: false", "plans for many devices are in bf16"), "plan",
           "gpt2", "--cluster", "v100x8", "--devices", "16");
    EXPECT(folder, 0, NULL, "plan", "gpt2", "--cluster", "a100-80x8", "--seq", "256", "--dtype", "bf16");
}

/* 512 micro-batches of 16 sequences, in each of which ranks have collectives of activations 48 times: larger ones do
 * it. */
static void larger_micro_batches_have_few_enough_operations(void **state) {
    const char *folder = *state;
    struct program_run run = PROGRAM(folder, "plan", "gpt2", "--ranks", "4", "--nodes", "1", "--cluster", "h100x8",
                                     "--tensor-parallel", "2", "--pipeline-parallel", "2", "--batch", "8192");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.err, "micro-batches of 32 sequences instead of 16: smaller ones need more than 16000"));
    assert_non_null(strstr(run.out, "256 micro-batches of 32 sequences"));
    program_run_free(&run);
    EXPECT(folder, 3, TEXTS("more than 16000 sends and collectives", "larger --micro-batch"), "plan", "gpt2", "--ranks",
           "4", "--nodes", "1", "--cluster", "h100x8", "--tensor-parallel", "2", "--pipeline-parallel", "2", "--batch",
           "8192", "--micro-batch", "16");
    run = PROGRAM(folder, "plan", "gpt2", "--ranks", "4", "--nodes", "1", "--cluster", "h100x8", "--tensor-parallel",
                  "2", "--pipeline-parallel", "auto", "--batch", "8192");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "micro-batches of 32 sequences: smaller ones need too many sends"));
    program_run_free(&run);
    run = PROGRAM(folder, "plan", "gpt2", "--ranks", "4", "--nodes", "1", "--cluster", "h100x8", "--tensor-parallel",
                  "2", "--pipeline-parallel", "auto", "--batch", "8192", "--micro-batch", "16");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "not judged: more than 16000 sends and collectives"));
    program_run_free(&run);
}

/* Not the policy that needs least: 14B of weights and states do not fit the devices, but most of them does. */
static void each_shape_uses_the_devices_memory(void **state) {
    struct program_run run =
        PROGRAM(*state, "plan", "qwen3-14b", "--ranks", "8", "--nodes", "1", "--cluster", "rtx4090x8",
                "--tensor-parallel", "1", "--pipeline-parallel", "auto", "--batch", "32", "--seq", "2048", "--json");
    assert_int_equal(run.status, 0);
    json_t *document = json_loads(run.out, 0, NULL);
    const json_t *shapes = json_object_get(document, "shapes"), *shape;
    size_t i, planned = 0;
    json_array_foreach(shapes, i, shape) {
        if (strcmp(json_string_value(json_object_get(shape, "outcome")), "planned") != 0) continue;
        planned++;
        assert_true(json_integer_value(json_object_get(shape, "device_bytes")) > (json_int_t)15 << 30);
    }
    assert_int_equal(planned, 4);
    json_decref(document);
    program_run_free(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(bf16_is_planned_only_for_devices_that_have_it),
        CASE(larger_micro_batches_have_few_enough_operations),
        CASE(each_shape_uses_the_devices_memory),
        CASE(a_config_alone_can_be_planned),
        CASE(a_preset_can_be_planned),
        CASE(many_devices_can_be_planned_for),
        CASE(the_fewest_devices_are_looked_for_in_whole_nodes),
        CASE(many_devices_are_planned_for_the_model_s_own_sizes),
        CASE(many_devices_have_a_page_and_drawings),
        CASE(a_described_gpu_can_be_planned),
        CASE(a_described_gpu_plans_experts),
        CASE(one_pass_fits_where_gradients_need_not_wait),
        CASE(one_step_has_one_number),
        CASE(suggestions_need_less_memory),
        CASE(a_disk_that_is_too_small_is_described),
        CASE(without_proc_a_given_memory_is_enough),
        CASE(sizes_nobody_means_are_refused),
        CASE(ranks_that_are_not_here_can_be_planned_for),
        CASE(strategies_are_explained),
        CASE(the_solvers_layout_is_explained),
        CASE(partitions_are_explained_and_requested),
        CASE(stages_are_planned_together),
        CASE(an_output_through_a_link_leaves_the_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
