/* Runs that resume on another number of ranks, with other shards and tiers of model states, and evaluation on any
 * number of ranks, have the bits of one process. BALLAST_TEST_MPI names the MPI. */
/* ctest: TIMEOUT 900 PROCESSORS 2 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/random.h"
#include "session/checkpoint/run_folder.h"
#include "support/mpi_job.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static struct program_place place;

static int set_up(void **state) {
    (void)state;
    return program_place_make(&place, 20000);
}

static int tear_down(void **state) {
    (void)state;
    return program_place_drop(&place);
}

static int begin_case(void **state) {
    (void)state;
    return program_case_begin(&place);
}

static int end_case(void **state) {
    (void)state;
    return program_case_end(&place);
}
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_case, end_case)

/* bf16, so that there are masters; validation, and a short last micro-batch. */
#define SETTINGS                                                                                                       \
    "--lanes", "4", "--batch", "7", "--micro-batch", "1", "--seq", "16", "--threads", "1", "--lr", "1e-2",             \
        "--schedule-steps", "40", "--keep", "0", "--valid-fraction", "0.05", "--valid-every", "5", "--valid-batches",  \
        "5", "--device-memory", "1G"
#define TRAIN(run, ranks, steps, every)                                                                                \
    "train", place.model, place.text, "-o", run, "--ranks", ranks, "--steps", steps, "--save-every", every, SETTINGS

static void expect(int status, const char *message, const char *const *arguments) {
    const char *const texts[] = {message, NULL};
    program_expect(place.folder, status, message ? texts : NULL, arguments);
}

static void expect_same_file(const char *a, const char *b, const char *name) {
    char x[800], y[800];
    snprintf(x, sizeof x, "%s/%s", a, name);
    snprintf(y, sizeof y, "%s/%s", b, name);
    if (!files_equal(x, y)) fail_msg("%s and %s differ", x, y);
}

static void expect_same_runs(const char *a, const char *b) {
    expect_same_file(a, b, "model/model.safetensors");
    char *x = tiny_run_metrics(a), *y = tiny_run_metrics(b);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    expect(0, NULL, (const char *const[]){"inspect", "--verify", a, NULL});
}

static void expect_same_checkpoints(const char *a, const char *b, int last, const char *weights) {
    const char *const files[] = {weights, "optimizer.safetensors"};
    char name[100];
    for (int step = 2; step <= last; step += 2)
        for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
            snprintf(name, sizeof name, "checkpoints/step-%08d/%s", step, files[f]);
            expect_same_file(a, b, name);
        }
}

static void checkpoints_are_those_of_one_rank(void **state) {
    (void)state;
    char one[700], four[700];
    snprintf(one, sizeof one, "%s/one", place.here);
    snprintf(four, sizeof four, "%s/four", place.here);
    expect(0, NULL, (const char *const[]){TRAIN(one, "1", "6", "2"), NULL});
    expect(0, NULL, (const char *const[]){TRAIN(four, "4", "6", "2"), NULL});
    expect_same_checkpoints(one, four, 6, "model.safetensors");
    expect_same_file(one, four, "model/ballast_manifest.json");
    expect_same_file(one, four, "checkpoints/step-00000006/config.json");
    expect_same_file(one, four, "checkpoints/step-00000006/tokenizer.json");
    expect_same_runs(one, four);
}

/* What each rank has of model states: parameters, gradients and optimizer states in so many shards. */
#define SAMPLES "--sample-every", "4", "--sample-prompt", "the", "--sample-tokens", "6"
static void train_in_shards(const char *run, const char *partition, const char *const *more) {
    const char *arguments[64] = {TRAIN(run, partition ? "4" : "1", "4", "2"), SAMPLES, NULL};
    size_t count = 0;
    while (arguments[count])
        count++;
    if (partition) {
        arguments[count++] = "--partition";
        arguments[count++] = partition;
    }
    while (*more)
        arguments[count++] = *more++;
    expect(0, NULL, arguments);
}

static void checkpoints_do_not_depend_on_the_ranks(void **state) {
    static const char *const partitions[] = {"1|1|4", "1|4|4", "4|4|4", "2|2|4", "1|2|2"};
    static const struct {
        const char *weights, *more[5];
    } kinds[] = {
        {"model.safetensors", {"--nodes", "2", NULL}},
        {"model.safetensors", {"--dtype", "fp32", NULL}},
        {"adapter_model.safetensors", {"--lora", "2,4,q_proj,v_proj", NULL}},
    };
    (void)state;
    char one[700], shards[700], model[100];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool nodes = strcmp(kinds[k].more[0], "--nodes") == 0;
        snprintf(one, sizeof one, "%s/one-%zu", place.here, k);
        snprintf(model, sizeof model, "model/%s", kinds[k].weights);
        train_in_shards(one, NULL, kinds[k].more + (nodes ? 2 : 0));
        for (size_t p = 0; p < sizeof partitions / sizeof *partitions; p++) {
            if (p % 3 != k && !unit_sweep(0, 1)) continue; /* each partition once */
            snprintf(shards, sizeof shards, "%s/shards-%zu-%zu", place.here, k, p);
            train_in_shards(shards, partitions[p], kinds[k].more);
            expect_same_checkpoints(one, shards, 4, kinds[k].weights);
            expect_same_file(one, shards, model);
            expect_same_file(one, shards, "samples.jsonl");
            char *x = tiny_run_metrics(one), *y = tiny_run_metrics(shards);
            assert_string_equal(x, y);
            mem_free(x);
            mem_free(y);
            expect(0, NULL, (const char *const[]){"inspect", "--verify", shards, NULL});
            assert_int_equal(folder_remove(shards), STATUS_OK);
        }
    }
}

static void a_run_goes_on_on_any_ranks_that_hold_its_lanes(void **state) {
    (void)state;
    char whole[700];
    snprintf(whole, sizeof whole, "%s/whole", place.here);
    expect(0, NULL, (const char *const[]){TRAIN(whole, "1", "14", "3"), NULL});
    expect(0, NULL, (const char *const[]){TRAIN(place.run, "4", "4", "3"), NULL});
    /* Most of it off the device; then again on it. */
    expect(0, "on 2 ranks, it was 4: the policy is chosen anew",
           (const char *const[]){"resume", place.run, "--ranks", "2", "--steps", "7", "--device-memory", "360K",
                                 "--host-memory", "1G", "--disk", place.folder, NULL});
    expect(0, "on 1 rank, it was 2: the policy is chosen anew",
           (const char *const[]){"resume", place.run, "--steps", "10", "--device-memory", "1G", NULL});
    expect(0, "on 4 ranks, it was 1: the policy is chosen anew",
           (const char *const[]){"resume", place.run, "--ranks", "4", "--steps", "14", NULL});
    expect_same_runs(place.run, whole);
}

/* Saved in shards, resumed in others, on more and on fewer ranks. The checkpoint's hash of all bits is compared too. */
static void a_run_goes_on_in_any_shards(void **state) {
    (void)state;
    static const struct {
        const char *ranks, *partition, *steps;
    } parts[] = {{"2", "2|2|2", "6"},  {"1", "1|1|1", "8"},  {"4", "2|2|4", "10"},
                 {"4", "1|1|2", "12"}, {"2", "1|1|2", "14"}, {"4", "4|4|4", "16"}};
    char whole[700];
    size_t count = unit_sweep(3, sizeof parts / sizeof *parts);
    const char *steps = parts[count - 1].steps;
    snprintf(whole, sizeof whole, "%s/whole", place.here);
    expect(0, NULL, (const char *const[]){TRAIN(whole, "1", steps, "2"), NULL});
    expect(0, NULL, (const char *const[]){TRAIN(place.run, "4", "4", "2"), "--partition", "4|4|4", NULL});
    for (size_t i = 0; i < count; i++)
        expect(0, NULL,
               (const char *const[]){"resume", place.run, "--ranks", parts[i].ranks, "--partition", parts[i].partition,
                                     "--steps", parts[i].steps, "--device-memory", i % 2 ? "600K" : "1G",
                                     "--host-memory", "1G", "--disk", place.folder, NULL});
    expect_same_runs(place.run, whole);
    expect_same_checkpoints(place.run, whole, atoi(steps), "model.safetensors");
}

/* Saved by one number of stages, resumed by others, with data parallelism and with state on the disk. Validation and
 * samples go through the stages too. */
static void a_run_goes_on_in_any_stages(void **state) {
    (void)state;
    static const struct {
        const char *ranks, *stages, *steps;
    } parts[] = {{"1", "1", "6"}, {"4", "2", "8"}, {"3", "3", "10"}, {"2", "1", "12"}};
    char whole[700];
    size_t count = unit_sweep(2, sizeof parts / sizeof *parts);
    const char *steps = parts[count - 1].steps;
    snprintf(whole, sizeof whole, "%s/whole", place.here);
    expect(0, NULL, (const char *const[]){TRAIN(whole, "1", steps, "2"), SAMPLES, NULL});
    expect(0, NULL, (const char *const[]){TRAIN(place.run, "2", "4", "2"), "--pipeline-parallel", "2", SAMPLES, NULL});
    for (size_t i = 0; i < count; i++)
        expect(0, NULL,
               (const char *const[]){"resume", place.run, "--ranks", parts[i].ranks, "--pipeline-parallel",
                                     parts[i].stages, "--steps", parts[i].steps, "--device-memory",
                                     i % 2 ? "700K" : "1G", "--host-memory", "1G", "--disk", place.folder, NULL});
    expect_same_runs(place.run, whole);
    expect_same_file(place.run, whole, "samples.jsonl");
    expect_same_checkpoints(place.run, whole, atoi(steps), "model.safetensors");
    program_expect(
        place.folder, 2, (const char *const[]){"policy.pipeline_parallel: 3", "nearest legal value is 2", NULL},
        (const char *const[]){"resume", place.run, "--ranks", "4", "--pipeline-parallel", "3", "--steps", "20", NULL});
}

#define TRAIN_SHARED(model, run, steps, sequence)                                                                      \
    "train", model, place.text, "-o", run, "--ranks", "2", "--tensor-parallel", "2", "--sequence-parallel", sequence,  \
        "--steps", steps, "--save-every", "2", SETTINGS

/* A vocabulary that two ranks do not divide, and heads that they do. */
static void make_shared_model(const char *folder) {
    expect(0, NULL,
           (const char *const[]){"init", folder, "--arch", "llama", "--hidden", "32", "--layers", "2", "--heads", "4",
                                 "--vocab", "283", "--context", "64", "--tokenizer-data", place.text, NULL});
}

/* Saved by ranks that share tensors, or positions too, and gone on with by as many, with data ranks: the bits of a
 * run without a break. Another number of them is another recipe. */
static void a_run_goes_on_with_the_ranks_that_share_its_tensors(void **state) {
    (void)state;
    static const char *const sequences[] = {"on", "off"};
    char model[700];
    snprintf(model, sizeof model, "%s/shared", place.here);
    make_shared_model(model);
    for (size_t i = 0; i < unit_sweep(1, 2); i++) {
        const char *sequence = sequences[i], *other = sequences[1 - i];
        char whole[700], run[700];
        snprintf(whole, sizeof whole, "%s/whole-%zu", place.here, i);
        snprintf(run, sizeof run, "%s/run-%zu", place.here, i);
        expect(0, NULL, (const char *const[]){TRAIN_SHARED(model, whole, "6", sequence), NULL});
        expect(0, NULL, (const char *const[]){TRAIN_SHARED(model, run, "4", sequence), NULL});
        expect(0, NULL,
               (const char *const[]){"resume", run, "--ranks", "4", "--steps", "6", "--partition", "2|2|2", NULL});
        expect_same_runs(run, whole);
        expect_same_checkpoints(run, whole, 6, "model.safetensors");
        program_expect(
            place.folder, 2, (const char *const[]){"tensor-parallel: 1 differs from the 2 of", NULL},
            (const char *const[]){"resume", run, "--ranks", "2", "--tensor-parallel", "1", "--steps", "7", NULL});
        program_expect(
            place.folder, 2, (const char *const[]){"sequence-parallel: ", " differs from the ", NULL},
            (const char *const[]){"resume", run, "--ranks", "2", "--sequence-parallel", other, "--steps", "7", NULL});
    }
}

/* What the solver chose once is kept with the run, whatever it would choose now; with other ranks it chooses anew. */
static void a_run_goes_on_with_the_strategies_that_were_solved(void **state) {
    (void)state;
    char model[700], whole[700], run[700];
    snprintf(model, sizeof model, "%s/solved", place.here);
    snprintf(whole, sizeof whole, "%s/solved-whole", place.here);
    snprintf(run, sizeof run, "%s/solved-run", place.here);
    make_shared_model(model);
    expect(0, NULL, (const char *const[]){TRAIN_SHARED(model, whole, "6", "off"), "--layout", "solver", NULL});
    char plan[800];
    snprintf(plan, sizeof plan, "%s/plan.json", whole);
    expect(0, NULL, (const char *const[]){TRAIN_SHARED(model, run, "4", "off"), "--plan", plan, NULL});
    expect(0, NULL, (const char *const[]){"resume", run, "--ranks", "4", "--steps", "6", "--partition", "2|2|2", NULL});
    expect_same_runs(run, whole);
    expect_same_checkpoints(run, whole, 6, "model.safetensors");
    program_expect(place.folder, 2, (const char *const[]){"layout: megatron differs from the solver of", NULL},
                   (const char *const[]){"resume", run, "--ranks", "2", "--layout", "megatron", "--steps", "7", NULL});
    expect(0, "recipe: tensor_parallel is 4 from step 7 on, it was 2",
           (const char *const[]){"resume", run, "--ranks", "4", "--tensor-parallel", "4", "--steps", "7",
                                 "--allow-recipe-change", NULL});
    expect(0, NULL, (const char *const[]){"resume", run, "--ranks", "4", "--steps", "8", NULL});
}

/* One lane, so that all four ranks are tensor ranks and stages. */
#define TRAIN_OPEN(model, run, steps)                                                                                  \
    "train", model, place.text, "-o", run, "--ranks", "4", "--steps", steps, "--save-every", "2", "--batch", "7",      \
        "--micro-batch", "1", "--seq", "16", "--threads", "1", "--lr", "1e-2", "--schedule-steps", "40", "--keep",     \
        "0", "--valid-fraction", "0.05", "--valid-every", "5", "--valid-batches", "5", "--device-memory", "1G"

/* What was chosen is kept: the bits of a run without a break by the plan that the first part wrote. Stages may be
 * chosen again. */
static void a_run_of_the_best_shape_goes_on_as_it_began(void **state) {
    (void)state;
    char model[700], run[700], whole[700], plan[720];
    snprintf(model, sizeof model, "%s/shared", place.here);
    snprintf(run, sizeof run, "%s/open", place.here);
    snprintf(whole, sizeof whole, "%s/planned", place.here);
    snprintf(plan, sizeof plan, "%s/plan.json", run);
    make_shared_model(model);
    const char *const open[] = {TRAIN_OPEN(model, run, "4"),
                                "--lanes",
                                "1",
                                "--tensor-parallel",
                                "auto",
                                "--pipeline-parallel",
                                "auto",
                                "--continue",
                                NULL};
    const char *const on[] = {TRAIN_OPEN(model, run, "6"),
                              "--lanes",
                              "1",
                              "--tensor-parallel",
                              "auto",
                              "--pipeline-parallel",
                              "auto",
                              "--continue",
                              NULL};
    expect(0, NULL, open);
    expect(0, NULL, (const char *const[]){TRAIN_OPEN(model, whole, "6"), "--plan", plan, NULL});
    expect(0, NULL, on);
    expect_same_runs(run, whole);
    expect_same_checkpoints(run, whole, 6, "model.safetensors");
    expect(0, NULL,
           (const char *const[]){"resume", run, "--ranks", "4", "--tensor-parallel", "auto", "--pipeline-parallel",
                                 "auto", "--steps", "7", NULL});
}

static void a_new_learning_rate_has_the_bits_of_one_rank(void **state) {
    (void)state;
    char one[700], four[700];
    snprintf(one, sizeof one, "%s/one", place.here);
    snprintf(four, sizeof four, "%s/four", place.here);
    expect(0, NULL, (const char *const[]){TRAIN(one, "1", "4", "2"), NULL});
    expect(0, NULL, (const char *const[]){TRAIN(four, "4", "4", "2"), NULL});
    expect(0, NULL, (const char *const[]){"resume", one, "--steps", "6", "--lr", "3e-2", NULL});
    expect(0, NULL, (const char *const[]){"resume", four, "--ranks", "2", "--steps", "6", "--lr", "3e-2", NULL});
    expect_same_checkpoints(one, four, 6, "model.safetensors");
    expect_same_runs(one, four);
}

static void other_ranks_are_refused_with_those_that_do(void **state) {
    (void)state;
    expect(0, NULL, (const char *const[]){TRAIN(place.run, "2", "3", "3"), NULL});
    const char *const resume[] = {"resume", place.run, "--ranks", "3", "--steps", "5", NULL};
    program_expect(place.folder, 2,
                   (const char *const[]){"3 ranks cannot hold lanes 4", "1, 2, 4", "--allow-recipe-change", NULL},
                   resume);
    expect(0, "recipe: lanes is 3 from step 4 on, it was 4",
           (const char *const[]){"resume", place.run, "--ranks", "3", "--steps", "5", "--allow-recipe-change", NULL});
    expect(0, NULL, (const char *const[]){"resume", place.run, "--ranks", "3", "--steps", "6", NULL});
    program_expect(place.folder, 2, (const char *const[]){"5 ranks cannot hold lanes 3", NULL},
                   (const char *const[]){"resume", place.run, "--ranks", "5", "--steps", "7", NULL});
    program_expect(place.folder, 2, (const char *const[]){"reduce-dtype: bf16 differs from the fp32 of", NULL},
                   (const char *const[]){"resume", place.run, "--steps", "7", "--reduce-dtype", "bf16", NULL});
    expect(0, "recipe: reduce_dtype is bf16 from step 7 on, it was fp32",
           (const char *const[]){"resume", place.run, "--steps", "7", "--reduce-dtype", "bf16", "--allow-recipe-change",
                                 NULL});
}

/* The loss in the JSON that eval prints, with the default micro-batch. */
static void read_loss(const char *ranks, const char *partition, char loss[64]) {
    struct program_run run =
        PROGRAM(place.folder, "eval", place.model, place.text, "--json", "--batches", "7", "--batch", "3", "--seq",
                "16", "--threads", "1", "--ranks", ranks, "--partition", partition);
    const char *at = run.status == 0 ? strstr(run.out, "\"loss\": ") : NULL;
    if (!at || sscanf(at, "\"loss\": %63[^,]", loss) != 1) fail_msg("status %d: %s%s", run.status, run.out, run.err);
    program_run_free(&run);
}

static void evaluation_does_not_depend_on_ranks(void **state) {
    (void)state;
    char one[64], many[64];
    static const char *const ranks[] = {"2", "3", "4"}, *const partitions[] = {"ddp", "zero3"};
    read_loss("1", "ddp", one);
    for (size_t i = 0; i < 6; i += unit_sweep(2, 1)) {
        read_loss(ranks[i % 3], partitions[i / 3], many); /* 7 batches: some ranks have none at the end */
        assert_string_equal(one, many);
    }
}

/* ---- A rank that is killed or stopped while all write ---- */

static bool is_saving(void) {
    char *folder = path_join(place.run, "checkpoints");
    struct names names = {0};
    bool saving = false;
    if (file_is_folder(folder) && folder_list(folder, &names) == STATUS_OK)
        for (size_t i = 0; i < names.count; i++)
            saving |= strncmp(names.items[i], ".tmp-step-", 10) == 0;
    names_free(&names);
    mem_free(folder);
    return saving;
}

static int newest_step(void) {
    char *folder = path_join(place.run, "checkpoints");
    struct names names = {0};
    int step = 0;
    if (file_is_folder(folder)) assert_int_equal(folder_list(folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        sscanf(names.items[i], "step-%d", &step);
    names_free(&names);
    mem_free(folder);
    return step;
}

/* What the last one left is not the next one's. */
static void clear_unfinished(void) {
    char *folder = path_join(place.run, "checkpoints");
    assert_int_equal(run_folder_clear(folder), STATUS_OK);
    mem_free(folder);
}

/* The parent kills a rank that was stopped, after a timeout; no other rank is to meet one, however slow the disk is. */
static void fail_while_saving(const char *partition, int signal, uint64_t draw) {
    int ranks[MPI_JOB_RANKS];
    const char *timeout_s = signal == SIGSTOP ? "5" : "300";
    clear_unfinished();
    pid_t parent =
        program_start(place.folder, (const char *const[]){TRAIN(place.run, "2", "1000000", "1"), "--continue",
                                                          "--rank-timeout", timeout_s, "--partition", partition, NULL});
    mpi_job_await(place.folder, parent, place.run, 2, ranks);
    usleep((useconds_t)(draw % 400000));
    for (int i = 0; i < 100000 && !is_saving(); i++)
        usleep(100);
    assert_int_equal(kill(ranks[draw >> 32 & 1], signal), 0);
    struct program_run run = program_finish(place.folder, parent);
    if (run.status != 1) fail_msg("status %d: %s", run.status, run.err);
    program_run_free(&run);
    mpi_job_expect_none(place.run);
}

static void a_rank_that_fails_while_all_save_leaves_the_last_checkpoint(void **state) {
    (void)state;
    enum { SEED = 1605 };
    char steps[32], whole[700];
    static const char *const partitions[] = {"ddp", "zero3", "zero1"};
    uint64_t kills = unit_sweep(3, 100), stops = unit_sweep(1, 20);
    print_message("seed %d\n", SEED);
    for (uint64_t i = 0; i < kills + stops; i++) {
        fail_while_saving(partitions[i % 3], i < kills ? SIGKILL : SIGSTOP, random_u64(SEED, RANDOM_TEST, 0, i));
        if (newest_step() > 0) expect(0, NULL, (const char *const[]){"inspect", "--verify", place.run, NULL});
    }
    snprintf(steps, sizeof steps, "%d", newest_step() + 2);
    snprintf(whole, sizeof whole, "%s/whole", place.here);
    expect(0, NULL, (const char *const[]){"resume", place.run, "--ranks", "4", "--steps", steps, NULL});
    expect(0, NULL, (const char *const[]){TRAIN(whole, "1", steps, "1000"), NULL});
    expect_same_runs(place.run, whole);
}

int main(void) {
    mpi_job_require();
    const struct CMUnitTest tests[] = {
        CASE(checkpoints_are_those_of_one_rank),
        CASE(checkpoints_do_not_depend_on_the_ranks),
        CASE(a_run_goes_on_on_any_ranks_that_hold_its_lanes),
        CASE(a_run_goes_on_in_any_shards),
        CASE(a_run_goes_on_in_any_stages),
        CASE(a_run_goes_on_with_the_ranks_that_share_its_tensors),
        CASE(a_run_goes_on_with_the_strategies_that_were_solved),
        CASE(a_run_of_the_best_shape_goes_on_as_it_began),
        CASE(a_new_learning_rate_has_the_bits_of_one_rank),
        CASE(other_ranks_are_refused_with_those_that_do),
        CASE(evaluation_does_not_depend_on_ranks),
        CASE(a_rank_that_fails_while_all_save_leaves_the_last_checkpoint),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
