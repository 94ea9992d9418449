/* Training with a disk tier: the same bits as in memory, also after a kill at any moment; and disk directories that
 * fail. */
/* ctest: PROCESSORS 2 TIMEOUT 900 LABELS long */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/random.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

enum { STEPS = 8, ROUNDS_MAX = 20 }; /* steps: as in the settings */
#define SETTINGS                                                                                                       \
    "--batch", "4", "--seq", "32", "--micro-batch", "1", "--steps", "8", "--save-every", "3", "--keep", "2", "--lr",   \
        "1e-2", "--dtype", "bf16", "--threads", "2", "--quiet"
/* All of the state is on the disk. Kernels of other instruction sets need other workspaces (set_up). */
#define TIGHT "--device-memory", "500K"

struct place {
    char folder[1024], model[1100], text[1100], scratch[1100];
};

static struct place place;

static void train(const char *run, int expected, const char *memory, const char *disk) {
    const char *const tight[] = {"train",           place.model, place.text, "-o", run, SETTINGS,
                                 "--device-memory", memory,      "--disk",   disk, NULL};
    const char *const plain[] = {"train", place.model, place.text, "-o", run, SETTINGS, NULL};
    program_expect(place.folder, expected, NULL, disk ? tight : plain);
}

static int set_up(void **state) {
    setenv("BALLAST_MAX_ISA", "avx2", 1);
    if (temp_folder_make(state) != 0) return -1;
    const char *folder = *state;
    snprintf(place.folder, sizeof place.folder, "%s", folder);
    snprintf(place.model, sizeof place.model, "%s/model", folder);
    snprintf(place.text, sizeof place.text, "%s/text.txt", folder);
    snprintf(place.scratch, sizeof place.scratch, "%s/scratch", folder);
    make_text(place.text, 3000);
    make_tiny_model(folder, place.model, place.text);
    assert_int_equal(folder_create(place.scratch), STATUS_OK);
    train(temp_path(folder, "plain"), 0, NULL, NULL);
    return 0;
}

/* The weights, and the losses of all steps. */
static void require_same(const char *run) {
    char plain[1200];
    snprintf(plain, sizeof plain, "%s/plain", place.folder);
    assert_true(files_equal(temp_path(plain, "model/model.safetensors"), temp_path(run, "model/model.safetensors")));
    char *expected = tiny_run_metrics(plain), *metrics = tiny_run_metrics(run);
    assert_string_equal(expected, metrics);
    mem_free(expected);
    mem_free(metrics);
}

static void require_optimizer_on_disk(const char *run) {
    json_t *plan;
    assert_int_equal(json_read_object(temp_path(run, "plan.json"), 1 << 20, &plan), STATUS_OK);
    const json_t *home_tier = json_object_get(json_object_get(plan, "policy"), "optimizer");
    assert_string_equal(json_string_value(home_tier), "disk");
    json_decref(plan);
}

static void require_empty_scratch(void) { assert_int_equal(temp_count(place.scratch), 0); }

static void disk_runs_give_the_same_bits(void **state) {
    (void)state;
    char run[1200];
    snprintf(run, sizeof run, "%s/disk", place.folder);
    train(run, 0, "500K", place.scratch);
    require_same(run);
    require_optimizer_on_disk(run);
    require_empty_scratch();
}

/* Two runs share the directory. */
static void runs_share_a_folder(void **state) {
    (void)state;
    char first[1200], second[1200];
    snprintf(first, sizeof first, "%s/first", place.folder);
    snprintf(second, sizeof second, "%s/second", place.folder);
    const char *const arguments[] = {"train",  place.model, place.text, "-o",          first,
                                     SETTINGS, TIGHT,       "--disk",   place.scratch, NULL};
    pid_t process = program_start(place.folder, arguments);
    train(second, 0, "500K", place.scratch);
    struct program_run ended = program_finish(place.folder, process);
    assert_int_equal(ended.status, 0);
    program_run_free(&ended);
    require_same(first);
    require_same(second);
}

static void sleep_ns(int64_t ns) {
    struct timespec pause = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&pause, NULL);
}

static bool has_ended(pid_t process) {
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid != 0;
}

static const char *metrics_of(const char *run) { return temp_path(run, "metrics.jsonl"); }

/* When metrics.jsonl was last written to or cut; 0 where there is none. */
static int64_t metrics_time_ns(const char *run) {
    struct stat info;
    if (stat(metrics_of(run), &info) != 0) return 0;
    return (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
}

static int64_t lines_of(const char *path) {
    char *text;
    size_t bytes;
    int64_t lines = 0;
    assert_int_equal(file_read(path, 1 << 20, &text, &bytes), STATUS_OK);
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    mem_free(text);
    return lines;
}

/* Until the process has opened its metrics (they are other than at `before`, a resumed run's cut at its checkpoint) and
 * done `step` steps. False where it ended without. */
static bool await_step(pid_t process, const char *run, int64_t before_ns, int64_t step) {
    const char *path = metrics_of(run);
    while (metrics_time_ns(run) == before_ns || lines_of(path) < step) {
        if (has_ended(process)) return metrics_time_ns(run) != before_ns && lines_of(path) >= step;
        sleep_ns(100000);
    }
    return true;
}

/* How long the stages of a run take: until its metrics are open, a step, and what comes after the last one. */
static struct { int64_t begin_ns, step_ns, end_ns; } pace;

/* The run that the killed ones must be equal to; the second of its kind, so that nothing is measured any more. */
static void measure_pace(void) {
    char run[1200];
    snprintf(run, sizeof run, "%s/paced", place.folder);
    const char *const arguments[] = {"train",  place.model, place.text, "-o",          run,
                                     SETTINGS, TIGHT,       "--disk",   place.scratch, NULL};
    int64_t start = clock_now_ns();
    pid_t process = program_start(place.folder, arguments);
    assert_true(await_step(process, run, 0, 0));
    int64_t opened = clock_now_ns();
    assert_true(await_step(process, run, 0, STEPS));
    int64_t stepped = clock_now_ns();
    struct program_run ended = program_finish(place.folder, process);
    assert_int_equal(ended.status, 0);
    program_run_free(&ended);
    pace.begin_ns = opened - start;
    pace.step_ns = (stepped - opened) / STEPS;
    pace.end_ns = clock_now_ns() - stepped;
    require_same(run);
    require_optimizer_on_disk(run);
}

/* The step of the newest checkpoint that is whole, which is one that has its name; 0: none. */
static int64_t newest_checkpoint(const char *run) {
    struct names names;
    int64_t newest = 0;
    if (!file_exists(temp_path(run, "checkpoints"))) return 0;
    assert_int_equal(folder_list(temp_path(run, "checkpoints"), &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        if (strncmp(names.items[i], "step-", 5) == 0) newest = strtoll(names.items[i] + 5, NULL, 10);
    names_free(&names);
    return newest;
}

/* Resumes the run, on the disk that it had; begins it where it was killed before it was one, which resuming must have
 * refused by name. */
static pid_t go_on(const char *run) {
    const char *const resume[] = {"resume", run, "--quiet", TIGHT, NULL};
    const char *const begin[] = {"train",  place.model, place.text, "-o",          run,
                                 SETTINGS, TIGHT,       "--disk",   place.scratch, NULL};
    if (file_exists(temp_path(run, "run.json"))) return program_start(place.folder, resume);
    if (file_exists(run)) {
        program_expect(place.folder, 2, (const char *const[]){"it has no run.json", NULL}, resume);
        assert_int_equal(folder_remove(run), STATUS_OK);
    }
    return program_start(place.folder, begin);
}

/* What was killed, so that a sweep cannot miss what it is for. */
static struct { int killed, resumes_killed, with_checkpoint; } tally;

static struct program_run finish_allowing(pid_t process, int status) {
    struct program_run ended = program_finish(place.folder, process);
    if (ended.status != 0 && ended.status != status) fail_msg("exit status %d: %s", ended.status, ended.err);
    return ended;
}

static void await_checkpoint(pid_t process, const char *run, int64_t newer_than) {
    while (newest_checkpoint(run) <= newer_than && !has_ended(process))
        sleep_ns(100000);
}

/* What a process does that is to be killed. */
struct killing {
    const char *run;
    uint64_t seed;
    uint32_t round;
    int64_t first;             /* step of the checkpoint that it starts from; 0: none */
    int64_t metrics_before_ns; /* metrics_time_ns before it started */
};

static int64_t within(const struct killing *killing, int64_t within_ns) {
    return (int64_t)(random_uniform(killing->seed, RANDOM_TEST, killing->round, 3) * (double)within_ns);
}

/* Every other time once there is a new checkpoint, else in a random stage (begin, any step, end); a random moment of
 * it. */
static void await_moment(const struct killing *killing, pid_t process) {
    int64_t first = killing->first;
    uint64_t stages = (uint64_t)(STEPS - first + 2);
    int64_t step = first - 1 + (int64_t)(random_u64(killing->seed, RANDOM_TEST, killing->round, 1) % stages);
    if (random_u64(killing->seed, RANDOM_TEST, killing->round, 2) % 2 && first < STEPS) {
        await_checkpoint(process, killing->run, first);
        sleep_ns(within(killing, pace.step_ns));
    } else if (step < first) {
        sleep_ns(within(killing, pace.begin_ns));
    } else {
        (void)await_step(process, killing->run, killing->metrics_before_ns, step);
        sleep_ns(within(killing, step < STEPS ? pace.step_ns : pace.end_ns));
    }
}

/* Goes on with the run and kills it. False where it ended before that moment; the run is then removed. */
static bool kill_once(const char *run, uint64_t seed, uint32_t round) {
    bool resumes = file_exists(temp_path(run, "run.json"));
    struct killing killing = {run, seed, round, newest_checkpoint(run), metrics_time_ns(run)};
    pid_t process = go_on(run);
    await_moment(&killing, process);
    kill(process, SIGKILL);
    struct program_run ended = finish_allowing(process, 128 + SIGKILL);
    bool killed = ended.status != 0;
    program_run_free(&ended);
    int64_t newest = newest_checkpoint(run);
    print_message("seed %d, %d: %s from step %d, %s; newest checkpoint: %d\n", (int)seed, (int)round,
                  resumes ? "resumed" : "begun", (int)killing.first, killed ? "killed" : "ended before its kill",
                  (int)newest);
    assert_true(newest >= killing.first);
    require_empty_scratch();
    tally.killed += killed;
    tally.resumes_killed += killed && resumes;
    tally.with_checkpoint += killed && newest > 0;
    if (!killed) assert_int_equal(folder_remove(run), STATUS_OK);
    return killed;
}

static void kills_lose_nothing(void **state) {
    (void)state;
    measure_pace();
    for (uint64_t seed = 1, last = unit_sweep(4, 100); seed <= last; seed++) {
        char run[1200];
        snprintf(run, sizeof run, "%s/killed-%d", place.folder, (int)seed);
        uint64_t kills = 1 + seed % 3;
        for (uint32_t round = 0; kills > 0 && round < ROUNDS_MAX; round++)
            kills -= kill_once(run, seed, round);
        struct program_run ended = finish_allowing(go_on(run), 0);
        program_run_free(&ended);
        require_same(run);
        assert_int_equal(folder_remove(run), STATUS_OK);
    }
    print_message("%d killed, %d of them resumed, %d with a checkpoint to go on from\n", tally.killed,
                  tally.resumes_killed, tally.with_checkpoint);
    assert_true(tally.killed >= (int)unit_sweep(4, 100));
    assert_true(4 * tally.with_checkpoint >= tally.killed);
    assert_true(5 * tally.resumes_killed >= tally.killed);
}

/* A directory that goes away is not missed; one that is not there, or too small, is refused before training. */
static void folders_that_fail(void **state) {
    (void)state;
    char run[1200], gone[1200], small[1200];
    snprintf(run, sizeof run, "%s/none", place.folder);
    snprintf(gone, sizeof gone, "%s/gone", place.folder);
    snprintf(small, sizeof small, "%s:100K", place.scratch);
    train(run, 2, "500K", gone);
    train(run, 2, "500K", place.text);
    train(run, 3, "500K", small);
    assert_false(file_exists(run));
    assert_int_equal(folder_create(gone), STATUS_OK);
    const char *const arguments[] = {"train",  place.model, place.text, "-o", run,
                                     SETTINGS, TIGHT,       "--disk",   gone, NULL};
    pid_t process = program_start(place.folder, arguments);
    while (!file_exists(temp_path(run, "metrics.jsonl")) && kill(process, 0) == 0)
        sleep_ns(1000000);
    assert_int_equal(folder_remove(gone), STATUS_OK);
    struct program_run ended = program_finish(place.folder, process);
    assert_int_equal(ended.status, 0);
    program_run_free(&ended);
    require_same(run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disk_runs_give_the_same_bits),
        cmocka_unit_test(runs_share_a_folder),
        cmocka_unit_test(folders_that_fail),
        cmocka_unit_test(kills_lose_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
