#include "support/run_program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/folder.h"
#include "base/mem.h"
#include "support/data_files.h"
#include "support/kept_profile.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { ARGUMENTS_MAX = 64 };
extern char **environ;

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s: %s", path, strerror(errno));
    char *text = NULL;
    size_t used = 0, got = 1;
    while (got > 0) {
        text = realloc(text, used + (1 << 16) + 1);
        assert_non_null(text);
        got = fread(text + used, 1, 1 << 16, file);
        used += got;
    }
    text[used] = '\0';
    fclose(file);
    return text;
}

static pid_t start_other(const char *program, const char *folder, const char *input, const char *const *arguments) {
    char *list[ARGUMENTS_MAX + 2] = {(char *)(uintptr_t)program};
    size_t count = 0;
    for (; arguments[count]; count++) {
        assert_true(count < ARGUMENTS_MAX);
        list[count + 1] = (char *)(uintptr_t)arguments[count];
    }
    /* Nothing of a test goes to the user's cache. */
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    posix_spawn_file_actions_t actions;
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    posix_spawn_file_actions_addopen(&actions, 0, input, O_RDONLY, 0);
    int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, temp_path(folder, ".stdout"), flags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, temp_path(folder, ".stderr"), flags, 0600);
    /* Signals that the tests' own start had ignored (nohup, a shell's background) end the program all the same. */
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&signals, numbers[i]);
    posix_spawnattr_t attributes;
    assert_int_equal(posix_spawnattr_init(&attributes), 0);
    assert_int_equal(posix_spawnattr_setsigdefault(&attributes, &signals), 0);
    assert_int_equal(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF), 0);
    pid_t process;
    int error = posix_spawn(&process, program, &actions, &attributes, list, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) fail_msg("%s: cannot start: %s", program, strerror(error));
    return process;
}

static pid_t start(const char *folder, const char *input, const char *const *arguments) {
    return start_other(BALLAST_PROGRAM, folder, input, arguments);
}

pid_t program_start_shell(const char *folder, const char *command) {
    return start_other("/bin/sh", folder, "/dev/null", (const char *const[]){"-c", command, NULL});
}

pid_t program_start(const char *folder, const char *const *arguments) { return start(folder, "/dev/null", arguments); }

struct program_run program_run_input(const char *folder, const char *input, const char *const *arguments) {
    return program_finish(folder, start(folder, input, arguments));
}

void program_expect_running(const char *folder, pid_t process) {
    siginfo_t ended = {.si_pid = 0};
    assert_int_equal(waitid(P_PID, (id_t)process, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    if (ended.si_pid == 0) return;
    struct program_run run = program_finish(folder, process);
    fail_msg("it ended with status %d: %s%s", run.status, run.out, run.err);
}

struct program_run program_finish(const char *folder, pid_t process) {
    int state = 0;
    while (waitpid(process, &state, 0) < 0)
        if (errno != EINTR) fail_msg("waitpid: %s", strerror(errno));
    kept_profile_quieten(folder);
    struct program_run run = {.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state),
                              .out = read_file(temp_path(folder, ".stdout")),
                              .err = read_file(temp_path(folder, ".stderr"))};
    return run;
}

struct program_run program_run(const char *folder, const char *const *arguments) {
    return program_finish(folder, program_start(folder, arguments));
}

void program_run_free(struct program_run *run) {
    free(run->out);
    free(run->err);
    *run = (struct program_run){0};
}

void program_expect(const char *folder, int status, const char *const *texts, const char *const *arguments) {
    struct program_run run = program_run(folder, arguments);
    char line[1024] = "ballast";
    for (size_t i = 0; arguments[i] && strlen(line) + strlen(arguments[i]) + 2 < sizeof line; i++)
        strcat(strcat(line, " "), arguments[i]);
    if (run.status != status)
        fail_msg("%s\nexit status %d, expected %d; stderr: %s", line, run.status, status, run.err);
    for (size_t i = 0; texts && texts[i]; i++)
        if (!strstr(run.err, texts[i])) fail_msg("%s\nstderr lacks '%s': %s", line, texts[i], run.err);
    program_run_free(&run);
}

void make_text(const char *path, int word_count) {
    size_t bytes;
    char *text = random_text(7, (size_t)word_count, &bytes);
    assert_non_null(text);
    temp_write(path, text, bytes);
    mem_free(text);
}

void make_tiny_model(const char *folder, const char *model, const char *text) {
    const char *const arguments[] = {
        "init",      model, "--arch",           "llama", "--hidden", "24", "--layers", "2",
        "--heads",   "3",   "--kv-heads",       "1",     "--ffn",    "40", "--vocab",  "300",
        "--context", "32",  "--tokenizer-data", text,    "--quiet",  NULL};
    program_expect(folder, 0, NULL, arguments);
}

int program_place_make(struct program_place *out, int word_count) {
    void *folder;
    if (temp_folder_make(&folder) != 0) return -1;
    snprintf(out->folder, sizeof out->folder, "%s", (char *)folder);
    free(folder);
    snprintf(out->model, sizeof out->model, "%s/model", out->folder);
    snprintf(out->text, sizeof out->text, "%s/text.txt", out->folder);
    snprintf(out->here, sizeof out->here, "%s", out->folder);
    snprintf(out->run, sizeof out->run, "%s/run", out->here);
    make_text(out->text, word_count);
    make_tiny_model(out->folder, out->model, out->text);
    return 0;
}

int program_case_begin(struct program_place *place) {
    static int cases;
    snprintf(place->here, sizeof place->here, "%s/case-%d", place->folder, cases++);
    snprintf(place->run, sizeof place->run, "%s/run", place->here);
    return folder_create(place->here) == STATUS_OK ? 0 : -1;
}

int program_case_end(const struct program_place *place) { return folder_remove(place->here) == STATUS_OK ? 0 : -1; }

int program_place_drop(const struct program_place *place) { return folder_remove(place->folder) == STATUS_OK ? 0 : -1; }
