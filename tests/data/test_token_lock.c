/* Several processes that need the ids of one text: one computes them, and the others read them as they appear. A
 * process that dies or hangs does not block the others for long. The test starts itself as these processes:
 * test_token_lock child DIR. */
/* ctest: PROCESSORS 2 TIMEOUT 300 LABELS long */
/* link: -Wl,--wrap=clock_gettime */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/file.h"
#include "data/dataset.h"
#include "support/data_files.h"
#include "support/data_place.h"
#include "support/dataset_fill.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { VOCAB = 300, LENGTH = 64, BATCH = 16, WORDS = 250000, FIRST_STEPS = 10, STEPS = 60 };

/* ---- A process ---- */

/* Who gets no farther for five seconds of a follower's clock is not waited for. That clock is slow here, since on a
 * busy machine a maker may be late; and fast where the maker is stopped. */
#define CLOCK_SPEED "TEST_CLOCK_SPEED"
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out) {
    const char *speed = getenv(CLOCK_SPEED);
    int status = __real_clock_gettime(clock, out);
    if (clock != CLOCK_MONOTONIC) return status;
    double seconds = ((double)out->tv_sec + (double)out->tv_nsec * 1e-9) * (speed ? atof(speed) : 0.1);
    out->tv_sec = (time_t)seconds;
    out->tv_nsec = (long)((seconds - (double)out->tv_sec) * 1e9);
    return status;
}

static enum status hash_steps(const struct dataset *dataset, int first, int end, uint64_t *hash) {
    int32_t rows[2][BATCH * LENGTH];
    for (int step = first; step < end; step++) {
        int64_t counted;
        struct dataset_batch batch = {rows[0], rows[1], NULL, NULL, NULL};
        TRY(dataset_fill(dataset, DATASET_TRAIN, step, BATCH, &batch, &counted));
        *hash = XXH3_64bits_withSeed(rows, sizeof rows, *hash);
    }
    return STATUS_OK;
}

/* What was read, and how often this process wrote. */
static void report(uint64_t hash) {
    printf("%016" PRIx64 " %lld\n", hash, (long long)fault_count(FAULT_WRITE));
    fflush(stdout);
}

static enum status read_all(struct dataset *dataset) {
    uint64_t hash = 0;
    TRY(hash_steps(dataset, 0, FIRST_STEPS, &hash));
    report(hash);
    (void)getchar();
    TRY(hash_steps(dataset, FIRST_STEPS, STEPS, &hash));
    TRY(dataset_settle(dataset, DATASET_TRAIN));
    report(hash);
    return STATUS_OK;
}

static struct dataset_options make_options(const char *const *paths, const char *tokenizer_path,
                                           const struct tokenizer *tokenizer, const char *cache) {
    return (struct dataset_options){.paths = paths,
                                    .path_count = 1,
                                    .tokenizer = tokenizer,
                                    .tokenizer_path = tokenizer_path,
                                    .cache_folder = cache,
                                    .eos_token = -1,
                                    .vocab_size = VOCAB,
                                    .sequence_tokens = LENGTH,
                                    .seed = 5};
}

/* Faults begin where the data are opened. */
static void arm(const char *kind, const char *nth) {
    if (kind) fault_arm((enum fault_kind)atoi(kind), atoi(nth), false);
}

static enum status run_child(const char *folder, const char *kind, const char *nth) {
    char path[600], text[600], cache[600];
    const char *paths[] = {text};
    struct tokenizer *tokenizer;
    struct dataset *dataset;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    snprintf(text, sizeof text, "%s/text.txt", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    TRY(tokenizer_open(path, &tokenizer));
    struct dataset_options options = make_options(paths, path, tokenizer, cache);
    arm(kind, nth);
    TRY(dataset_open(&options, &dataset));
    enum status status = read_all(dataset);
    dataset_close(dataset);
    tokenizer_free(tokenizer);
    return status;
}

/* ---- The test ---- */

struct child {
    pid_t pid;
    FILE *in, *out;
};

static char program[512];

/* With the nth operation of a kind failing; nth 0: none. */
static struct child start_with(const char *folder, enum fault_kind kind, int nth) {
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        char kind_text[16], nth_text[16];
        snprintf(kind_text, sizeof kind_text, "%d", (int)kind);
        snprintf(nth_text, sizeof nth_text, "%d", nth);
        execl(program, program, "child", folder, nth > 0 ? kind_text : NULL, nth_text, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    return (struct child){pid, fdopen(in[1], "w"), fdopen(out[0], "r")};
}

static struct child start(const char *folder) { return start_with(folder, FAULT_OPEN, 0); }

struct report {
    uint64_t hash;
    long long writes;
};

static struct report hear(const struct child *child) {
    struct report report;
    if (fscanf(child->out, "%16" SCNx64 " %lld", &report.hash, &report.writes) != 2) fail_msg("a process said nothing");
    return report;
}

static void release(const struct child *child) {
    fputc('\n', child->in);
    fflush(child->in);
}

static int reap(struct child *child) {
    int state;
    fclose(child->in);
    fclose(child->out);
    assert_int_equal(waitpid(child->pid, &state, 0), child->pid);
    return state;
}

static void finish(struct child *child) { assert_int_equal(reap(child), 0); }

static int make_place(void **state) {
    struct data_place *place = *state = data_place_make(sizeof *place, VOCAB, false);
    char text[600];
    snprintf(text, sizeof text, "%s/text.txt", place->folder);
    random_text_write(text, 2, WORDS);
    return 0;
}

/* By one process, alone; the cache is gone afterwards. */
static struct report expected(const struct data_place *place) {
    struct child child = start(place->folder);
    (void)hear(&child);
    release(&child);
    struct report report = hear(&child);
    finish(&child);
    assert_true(report.writes > 0);
    assert_int_equal(folder_remove(place->cache_folder), STATUS_OK);
    return report;
}

static void expect_cache_alone(const struct data_place *place) {
    struct names names;
    assert_int_equal(folder_list(place->cache_folder, &names), STATUS_OK);
    assert_int_equal(names.count, 1);
    assert_true(path_ends(names.items[0], ".tokens"));
    names_free(&names);
}

static void one_makes_what_all_read(void **state) {
    enum { CHILDREN = 4 };
    const struct data_place *place = *state;
    struct report alone = expected(place);
    struct child children[CHILDREN];
    int makers = 0;
    for (int i = 0; i < CHILDREN; i++)
        children[i] = start(place->folder);
    for (int i = 0; i < CHILDREN; i++)
        (void)hear(&children[i]);
    for (int i = 0; i < CHILDREN; i++)
        release(&children[i]);
    for (int i = 0; i < CHILDREN; i++) {
        struct report report = hear(&children[i]);
        assert_true(report.hash == alone.hash);
        makers += report.writes > 0;
        finish(&children[i]);
    }
    assert_int_equal(makers, 1);
    expect_cache_alone(place);
}

static void a_maker_that_is_killed_is_replaced(void **state) {
    const struct data_place *place = *state;
    struct report alone = expected(place);
    struct child maker = start(place->folder);
    struct report first = hear(&maker);
    struct child other = start(place->folder);
    struct report followed = hear(&other);
    assert_true(first.hash == followed.hash);
    assert_true(first.writes > 0 && followed.writes == 0);
    assert_int_equal(kill(maker.pid, SIGKILL), 0);
    assert_true(WIFSIGNALED(reap(&maker)));
    release(&other);
    assert_true(hear(&other).hash == alone.hash);
    finish(&other);
    expect_cache_alone(place);
}

static void a_maker_that_is_stopped_is_not_waited_for(void **state) {
    const struct data_place *place = *state;
    struct report alone = expected(place);
    struct child maker = start(place->folder);
    (void)hear(&maker);
    assert_int_equal(setenv(CLOCK_SPEED, "5", 1), 0);
    struct child other = start(place->folder);
    assert_int_equal(unsetenv(CLOCK_SPEED), 0);
    assert_int_equal(hear(&other).writes, 0);
    assert_int_equal(kill(maker.pid, SIGSTOP), 0);
    release(&other);
    assert_true(hear(&other).hash == alone.hash);
    finish(&other);
    assert_int_equal(kill(maker.pid, SIGCONT), 0);
    release(&maker);
    assert_true(hear(&maker).hash == alone.hash);
    finish(&maker);
    expect_cache_alone(place);
}

/* The other one's ids are of another tokenizer. */
static void other_ids_are_not_taken(void **state) {
    struct data_place *place = *state;
    struct child maker = start(place->folder);
    (void)hear(&maker);
    data_place_train(place, VOCAB - 10, false);
    struct child other = start(place->folder);
    assert_true(hear(&other).writes > 0);
    release(&other);
    struct report report = hear(&other);
    finish(&other);
    release(&maker);
    (void)hear(&maker);
    finish(&maker);
    assert_int_equal(folder_remove(place->cache_folder), STATUS_OK);
    assert_true(expected(place).hash == report.hash);
}

/* Whatever fails where another process's ids are read: the right ids, or an error. */
static void a_follower_that_fails_has_no_wrong_ids(void **state) {
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_READ, FAULT_ALLOCATE, FAULT_WRITE};
    const struct data_place *place = *state;
    struct report alone = expected(place);
    int good = 0, reported = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int nth = 1; nth <= 40; nth += nth < 8 ? 1 : 8) {
            struct child maker = start(place->folder);
            struct report first = hear(&maker), report;
            struct child other = start_with(place->folder, kinds[k], nth);
            if (fscanf(other.out, "%16" SCNx64 " %lld", &report.hash, &report.writes) == 2) {
                assert_true(report.hash == first.hash);
                release(&maker);
                release(&other);
                if (fscanf(other.out, "%16" SCNx64 " %lld", &report.hash, &report.writes) == 2)
                    assert_true(report.hash == alone.hash);
            } else {
                release(&maker);
            }
            int state_of_other = reap(&other);
            assert_true(WIFEXITED(state_of_other));
            good += WEXITSTATUS(state_of_other) == 0;
            reported += WEXITSTATUS(state_of_other) != 0;
            assert_true(hear(&maker).hash == alone.hash);
            finish(&maker);
            assert_int_equal(folder_remove(place->cache_folder), STATUS_OK);
        }
    print_message("%d went on, %d told of an error\n", good, reported);
    assert_true(good > 0 && reported > 0);
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "child") == 0) return (int)run_child(arguments[2], NULL, NULL);
    if (count == 5) return (int)run_child(arguments[2], arguments[3], arguments[4]);
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return 1;
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, data_place_drop)
    const struct CMUnitTest tests[] = {
        IN_PLACE(one_makes_what_all_read),
        IN_PLACE(a_maker_that_is_killed_is_replaced),
        IN_PLACE(a_maker_that_is_stopped_is_not_waited_for),
        IN_PLACE(other_ids_are_not_taken),
        IN_PLACE(a_follower_that_fails_has_no_wrong_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
