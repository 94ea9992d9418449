/* Kills commands at a random file operation, up to three times, and starts them again. They end with the same files as
 * a command that was not killed, and leave no temporary files.
 *
 *     test_killed_runs [--seed N] [--runs N] [COMMAND...]
 *
 * A failure prints the arguments that repeat it. */
/* ctest: PROCESSORS 2 LABELS long */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/random.h"
#include "support/mutation.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { KILLS = 3, KILLED = 128 + 9, USUAL_RUNS = 1, LONG_RUNS = 30 };

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define STEPS                                                                                                          \
    "--save-every", "2", "--keep", "0", "--seq", "16", "--batch", "2", "--dtype", "fp32", "--sample-every", "2",       \
        "--sample-tokens", "3", "--schedule-steps", "8", "--quiet"

static const struct command {
    const char *name;
    const char *const *before; /* run first, and not killed; NULL: nothing */
    const char *const *arguments;
    const char *result; /* the file to compare; NULL: what is printed */
    bool once;          /* the command refuses to run again where its result is there */
} commands[] = {
    {"train", NULL, ARGUMENTS("train", "model", "text.txt", "-o", "run", "--steps", "5", "--continue", STEPS),
     "run/model/model.safetensors", false},
    {"lora", NULL,
     ARGUMENTS("train", "model", "text.txt", "-o", "run", "--steps", "5", "--continue", "--lora", "2,4,all-linear",
               STEPS),
     "run/model/adapter_model.safetensors", false},
    {"dpo", NULL,
     ARGUMENTS("train", "model", "pairs.jsonl", "-o", "run", "--steps", "5", "--continue", "--loss", "dpo", STEPS),
     "run/model/model.safetensors", false},
    {"resume", ARGUMENTS("train", "model", "text.txt", "-o", "run", "--steps", "2", STEPS),
     ARGUMENTS("resume", "run", "--steps", "5", "--quiet"), "run/model/model.safetensors", false},
    {"merge", ARGUMENTS("train", "model", "text.txt", "-o", "run", "--steps", "1", "--lora", "2,4,all-linear", STEPS),
     ARGUMENTS("merge", "run", "-o", "out", "--quiet"), "out/model.safetensors", true},
    {"init", NULL,
     ARGUMENTS("init", "out", "--arch", "qwen3", "--hidden", "24", "--layers", "2", "--heads", "2", "--vocab", "300",
               "--context", "32", "--tokenizer-data", "text.txt", "--quiet"),
     "out/model.safetensors", true},
    {"report", ARGUMENTS("train", "model", "text.txt", "-o", "run", "--steps", "2", STEPS),
     ARGUMENTS("report", "run", "--quiet"), "run/report.html", false},
    {"eval", NULL, ARGUMENTS("eval", "model", "text.txt", "--seq", "16", "--dtype", "fp32", "--quiet"), NULL, false},
    {"generate", NULL,
     ARGUMENTS("generate", "model", "--prompts", "prompts.txt", "--tokens", "4", "--dtype", "fp32", "-o",
               "texts.jsonl"),
     "texts.jsonl", false},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static uint64_t campaign_seed = 1;
static size_t runs_each;
static const char *const *wanted; /* names of commands; NULL: all */
static char *place, log_path[512];
static char sound[512], ready[512], here[512]; /* for all commands, for this one, and where it works */

static int make_place(void **state) {
    char preload[1024];
    if (temp_folder_make(state) != 0) return -1;
    place = *state;
    snprintf(sound, sizeof sound, "%s/sound", place);
    snprintf(ready, sizeof ready, "%s/ready", place);
    snprintf(here, sizeof here, "%s/here", place);
    snprintf(log_path, sizeof log_path, "%s/operations", place);
    if (mkdir(sound, 0700) != 0 || chdir(sound) != 0) return -1;
    make_text("text.txt", 400);
    make_tiny_model(sound, "model", "text.txt");
    temp_write_text("prompts.txt", "the river\na bridge\n");
    temp_write_text("pairs.jsonl", "{\"prompt\": \"the\", \"chosen\": \" river\", \"rejected\": \" stone\"}\n"
                                   "{\"prompt\": \"a\", \"chosen\": \" bridge\", \"rejected\": \" tree\"}\n");
    snprintf(preload, sizeof preload, "%.*s/tests/libkill-at.so",
             (int)(strrchr(BALLAST_PROGRAM, '/') - BALLAST_PROGRAM), BALLAST_PROGRAM);
    return setenv("KILL_LIBRARY", preload, 1);
}

static int drop_place(void **state) { return chdir("/") == 0 ? temp_folder_drop(state) : -1; }

/* The sanitizer's library wants to be the first one. */
static void set_library(bool loaded) {
    static char options[1024];
    if (options[0] == '\0') {
        const char *others = getenv("ASAN_OPTIONS");
        snprintf(options, sizeof options, "%.900s:verify_asan_link_order=0", others ? others : "");
        assert_int_equal(setenv("ASAN_OPTIONS", options, 1), 0);
    }
    if (loaded) assert_int_equal(setenv("LD_PRELOAD", getenv("KILL_LIBRARY"), 1), 0);
    if (!loaded) unsetenv("LD_PRELOAD");
}

/* Runs the command, killed at its nth operation; 0: not killed, and its operations are counted in the log. */
static struct program_run run_killed(const struct command *command, uint64_t nth) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)nth);
    setenv("KILL_AT", text, 1);
    if (nth == 0) setenv("KILL_LOG", log_path, 1);
    set_library(true);
    pid_t process = program_start(here, command->arguments);
    set_library(false);
    unsetenv("KILL_LOG");
    return program_finish(here, process);
}

static void copy_folder(const char *from, const char *to) {
    char *line = mem_format("rm -rf '%s' && cp -r '%s' '%s'", to, from, to);
    assert_int_equal(system(line), 0);
    mem_free(line);
}

/* Enters a fresh copy of what the command finds. */
static void begin(void) {
    copy_folder(ready, here);
    assert_int_equal(chdir(here), 0);
}

static void prepare(const struct command *command) {
    copy_folder(sound, ready);
    assert_int_equal(chdir(ready), 0);
    if (command->before) program_expect(ready, 0, NULL, command->before);
}

/* What a command made: a file, or what it printed. free */
static struct bytes result_of(const struct command *command, const struct program_run *run) {
    static const char key[] = "\"revision\":\""; /* of a page: another one each time that files are written anew */
    struct bytes out = {NULL, strlen(run->out)};
    if (command->result)
        out = bytes_read(command->result);
    else
        out.data = strdup(run->out);
    char *revision = memmem(out.data, out.count, key, strlen(key));
    if (revision) memset(revision + strlen(key), '0', 16);
    return out;
}

static char leftover[512];
static int find_leftover(const char *path, const struct stat *what, int kind, struct FTW *at) {
    (void)what, (void)kind;
    const char *name = path + at->base;
    bool temporary = at->level > 0 && name[0] == '.' && strcmp(name, ".stdout") != 0 && strcmp(name, ".stderr") != 0;
    if (temporary) snprintf(leftover, sizeof leftover, "%s", path);
    return temporary;
}

/* NULL where the result is there and right. */
static const char *check(const struct command *command, const struct program_run *run, struct bytes expected) {
    static char fault[700];
    if (run->status != 0 && !(command->once && run->status == KILLED)) return "not status 0";
    if (command->result && !file_exists(command->result)) return "no result";
    struct bytes result = result_of(command, run);
    bool same = result.count == expected.count && memcmp(result.data, expected.data, expected.count) == 0;
    free(result.data);
    if (!same) return "another result";
    if (nftw(".", find_leftover, 16, FTW_PHYS) == 0) return NULL;
    snprintf(fault, sizeof fault, "%s is left behind", leftover);
    return fault;
}

/* Kills and starts again until the command ends by itself. */
static struct program_run run_chain(const struct command *command, uint64_t seed, uint64_t operations, char *kills) {
    kills[0] = '\0';
    for (uint64_t i = 0; i < 1 + random_u64(seed, RANDOM_TEST, 0, KILLS) % KILLS; i++) {
        uint64_t nth = 1 + random_u64(seed, RANDOM_TEST, 0, i) % operations;
        sprintf(kills + strlen(kills), " %llu", (unsigned long long)nth);
        struct program_run run = run_killed(command, nth);
        if (run.status != KILLED || (command->once && file_exists(command->result))) return run;
        program_run_free(&run);
    }
    return program_run(here, command->arguments);
}

/* The result of the command without a kill, and how many operations it takes. */
static struct bytes run_sound(const struct command *command, uint64_t *operations) {
    begin();
    unlink(log_path);
    struct program_run run = run_killed(command, 0);
    if (run.status != 0) fail_msg("%s, not killed: status %d: %s", command->name, run.status, run.err);
    struct bytes log = bytes_read(log_path), result = result_of(command, &run);
    *operations = log.count;
    free(log.data);
    program_run_free(&run);
    return result;
}

static int run_command(const struct command *command) {
    int faults = 0;
    uint64_t operations;
    prepare(command);
    struct bytes expected = run_sound(command, &operations);
    for (uint64_t seed = campaign_seed; seed < campaign_seed + runs_each; seed++) {
        char kills[KILLS * 24];
        begin();
        struct program_run run = run_chain(command, seed, operations, kills);
        const char *fault = check(command, &run, expected);
        if (fault)
            print_error("%s, killed at operations%s of %llu: %s, status %d: %s\n"
                        "    repeat: test_killed_runs --seed %llu --runs 1 %s\n",
                        command->name, kills, (unsigned long long)operations, fault, run.status, run.err,
                        (unsigned long long)seed, command->name);
        faults += fault != NULL;
        program_run_free(&run);
    }
    free(expected.data);
    print_message("%s: %zu chains of kills at %llu operations, %d faults\n", command->name, runs_each,
                  (unsigned long long)operations, faults);
    return faults;
}

static bool is_wanted(const char *name) {
    for (const char *const *one = wanted; one && *one; one++)
        if (strcmp(*one, name) == 0) return true;
    return !wanted || !*wanted;
}

static void killed_commands_end_with_the_same_files(void **state) {
    (void)state;
    int faults = 0;
    for (size_t i = 0; i < COMMANDS; i++)
        if (is_wanted(commands[i].name)) faults += run_command(&commands[i]);
    if (faults > 0) fail_msg("%d chains of kills ended with other files", faults);
}

int main(int count, char **arguments) {
    runs_each = unit_sweep(USUAL_RUNS, LONG_RUNS);
    int at = 1;
    for (; at + 1 < count && strncmp(arguments[at], "--", 2) == 0; at += 2) {
        uint64_t value = strtoull(arguments[at + 1], NULL, 10);
        if (strcmp(arguments[at], "--seed") == 0) campaign_seed = value;
        if (strcmp(arguments[at], "--runs") == 0) runs_each = value;
    }
    wanted = (const char *const *)(arguments + at);
    print_message("seed %llu\n", (unsigned long long)campaign_seed);
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_commands_end_with_the_same_files)};
    return cmocka_run_group_tests(tests, make_place, drop_place);
}
