/* Training with a disk tier by the program: the same bits as in memory, killed at any moment, and with a folder that
 * fails.
 */
/* ctest: PROCESSORS 2 TIMEOUT 900 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/random.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

#define SETTINGS                                                                                                       \
    "--batch", "4", "--seq", "32", "--grain", "1", "--steps", "8", "--save-every", "3", "--keep", "2", "--lr", "1e-2", \
        "--dtype", "bf16", "--quiet"
/* All of the state is on the disk: the plain plan takes 670 KiB. */
#define TIGHT "--device-memory", "500K"

struct place {
    char folder[1024], model[1100], text[1100], scratch[1100];
};

static struct place place;
static int64_t whole_run_ns;

static void train(const char *run, int expected, const char *memory, const char *disk) {
    const char *const tight[] = {"train",           place.model, place.text, "-o", run, SETTINGS,
                                 "--device-memory", memory,      "--disk",   disk, NULL};
    const char *const plain[] = {"train", place.model, place.text, "-o", run, SETTINGS, NULL};
    program_expect(place.folder, expected, NULL, disk ? tight : plain);
}

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    const char *folder = *state;
    snprintf(place.folder, sizeof place.folder, "%s", folder);
    snprintf(place.model, sizeof place.model, "%s/model", folder);
    snprintf(place.text, sizeof place.text, "%s/text.txt", folder);
    snprintf(place.scratch, sizeof place.scratch, "%s/scratch", folder);
    make_text(place.text, 3000);
    make_tiny_model(folder, place.model, place.text);
    assert_int_equal(folder_create(place.scratch), STATUS_OK);
    int64_t start = clock_now_ns();
    train(temp_path(folder, "plain"), 0, NULL, NULL);
    whole_run_ns = clock_now_ns() - start;
    return 0;
}

static void require_same(const char *run) {
    char expected[1200];
    snprintf(expected, sizeof expected, "%s/plain/model/model.safetensors", place.folder);
    assert_true(files_equal(expected, temp_path(run, "model/model.safetensors")));
}

static void require_empty_scratch(void) {
    struct names names;
    assert_int_equal(folder_list(place.scratch, &names), STATUS_OK);
    assert_int_equal(names.count, 0);
    names_free(&names);
}

static void disk_runs_give_the_same_bits(void **state) {
    (void)state;
    char run[1200];
    snprintf(run, sizeof run, "%s/disk", place.folder);
    train(run, 0, "500K", place.scratch);
    require_same(run);
    require_empty_scratch();
}

/* Two runs share the folder. */
static void runs_share_a_folder(void **state) {
    (void)state;
    char first[1200], second[1200];
    snprintf(first, sizeof first, "%s/first", place.folder);
    snprintf(second, sizeof second, "%s/second", place.folder);
    const char *const words[] = {"train",  place.model, place.text, "-o",          first,
                                 SETTINGS, TIGHT,       "--disk",   place.scratch, NULL};
    pid_t process = program_start(place.folder, words);
    train(second, 0, "500K", place.scratch);
    struct program_run ended = program_finish(place.folder, process);
    assert_int_equal(ended.status, 0);
    program_run_free(&ended);
    require_same(first);
    require_same(second);
}

static void sleep_ns(int64_t ns) {
    struct timespec span = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&span, NULL);
}

/* Goes on until it is done: a run that was killed before its folder was whole begins anew. */
static void complete(const char *run) {
    const char *const words[] = {"resume", run, "--quiet", TIGHT, "--disk", place.scratch, NULL};
    struct program_run resumed = program_run(place.folder, words);
    int status = resumed.status;
    program_run_free(&resumed);
    if (status == 0) return;
    assert_int_equal(status, 2);
    if (file_exists(run)) assert_int_equal(folder_remove(run), STATUS_OK);
    train(run, 0, "500K", place.scratch);
}

static void kills_lose_nothing(void **state) {
    (void)state;
    for (uint64_t seed = 1, last = unit_sweep(4, 100); seed <= last; seed++) {
        char run[1200];
        snprintf(run, sizeof run, "%s/killed-%d", place.folder, (int)seed);
        const char *const words[] = {"train",  place.model, place.text, "-o",          run,
                                     SETTINGS, TIGHT,       "--disk",   place.scratch, NULL};
        pid_t process = program_start(place.folder, words);
        sleep_ns((int64_t)(random_uniform(seed, RANDOM_TEST, 0, 0) * 1.3 * (double)whole_run_ns));
        kill(process, SIGKILL);
        struct program_run killed = program_finish(place.folder, process);
        program_run_free(&killed);
        require_empty_scratch();
        complete(run);
        require_same(run);
        assert_int_equal(folder_remove(run), STATUS_OK);
    }
}

/* A folder that goes away is not missed; one that is not there, or too small, is refused before training. */
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
    const char *const words[] = {"train", place.model, place.text, "-o", run, SETTINGS, TIGHT, "--disk", gone, NULL};
    pid_t process = program_start(place.folder, words);
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
