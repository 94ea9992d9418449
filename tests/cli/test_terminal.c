/* A run on a terminal: the live line fits the width and has a progress bar. Without colors, without a terminal and
 * with --quiet, nothing extra is drawn. */
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { OUTPUT_BYTES = 1 << 20 };

static struct program_place place;
static char drawn[OUTPUT_BYTES];

/* All that a run can have to tell: epochs, validation, checkpoints, adapters. */
#define RUN                                                                                                            \
    "train", place.model, place.text, "-o", place.run, "--epochs", "0.05", "--threads", "1", "--batch", "2",           \
        "--valid-fraction", "0.1", "--valid-every", "2", "--valid-batches", "1", "--save-every", "2", "--lora",        \
        "2,4,q_proj"

static int set_up(void **state) {
    (void)state;
    return program_place_make(&place, 5000);
}

static int tear_down(void **state) {
    (void)state;
    return program_place_drop(&place);
}

static void read_all(int terminal) {
    size_t used = 0;
    ssize_t got;
    while ((got = read(terminal, drawn + used, OUTPUT_BYTES - 1 - used)) > 0)
        used += (size_t)got;
    drawn[used] = '\0';
}

/* What the program draws on a terminal of so many columns; exit status 0 is expected. */
static const char *draw(int columns, const char *no_color, const char *const *arguments) {
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    char *list[64] = {(char *)(uintptr_t)BALLAST_PROGRAM};
    int terminal, state;
    assert_int_equal(folder_remove(place.run), STATUS_OK);
    for (int i = 0; arguments[i]; i++)
        list[i + 1] = (char *)(uintptr_t)arguments[i];
    assert_int_equal(setenv("XDG_CACHE_HOME", place.folder, 1), 0);
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    assert_int_equal(setenv("NO_COLOR", no_color, 1), 0);
    fflush(NULL);
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    assert_true(child >= 0);
    if (child == 0) {
        execv(BALLAST_PROGRAM, list);
        _exit(99);
    }
    read_all(terminal);
    close(terminal);
    assert_int_equal(waitpid(child, &state, 0), child);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) fail_msg("status %d: %s", state, drawn);
    return drawn;
}
#define DRAW(columns, no_color, ...) draw(columns, no_color, (const char *const[]){__VA_ARGS__, NULL})

static int visible_columns(const char *text, const char *end) {
    int columns = 0;
    for (; text < end; text++) {
        if (*text == '\x1b')
            while (text < end && *text != 'm' && *text != 'K')
                text++;
        else
            columns += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return columns;
}

/* Every line that is drawn over: from a carriage return to the end of what it clears. */
static int check_live_lines(const char *output, int columns, const char *bar) {
    int lines = 0;
    for (const char *at = strchr(output, '\r'); at; at = strchr(at + 1, '\r')) {
        const char *end = strstr(at, "\x1b[K"), *next = strchr(at + 1, '\r');
        if (at[1] == '\n' || !end || end == at + 1 || (next && end > next)) continue;
        lines++;
        if (visible_columns(at + 1, end) > columns) fail_msg("wider than %d: %.*s", columns, (int)(end - at), at + 1);
        const char *found = strstr(at, bar);
        if (!found || found > end) fail_msg("no bar: %.*s", (int)(end - at), at + 1);
    }
    return lines;
}

static void live_lines_fit(void **state) {
    (void)state;
    static const int widths[] = {60, 80, 120, 250};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const char *output = DRAW(widths[i], "", RUN);
        assert_true(check_live_lines(output, widths[i], "\x1b[36m") >= 2);
        assert_non_null(strstr(output, "saving"));
        assert_non_null(strstr(output, "parameters train ("));
        assert_non_null(strstr(output, "/run/model"));
    }
}

static void no_colour_is_honoured(void **state) {
    (void)state;
    const char *output = DRAW(80, "1", RUN);
    assert_true(check_live_lines(output, 80, "[") >= 2);
    assert_null(strstr(output, "\x1b[3"));
    assert_null(strstr(output, "\x1b[1m"));
}

static void quiet_is_honoured(void **state) {
    (void)state;
    assert_string_equal(DRAW(80, "", RUN, "--quiet"), "");
}

static void lines_are_plain_without_a_terminal(void **state) {
    (void)state;
    assert_int_equal(folder_remove(place.run), STATUS_OK);
    struct program_run run = PROGRAM(place.folder, RUN);
    assert_int_equal(run.status, 0);
    assert_null(strchr(run.err, '\x1b'));
    assert_null(strchr(run.err, '\r'));
    assert_non_null(strstr(run.err, "  epoch "));
    assert_non_null(strstr(run.err, "done: "));
    program_run_free(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(live_lines_fit), cmocka_unit_test(no_colour_is_honoured),
                                       cmocka_unit_test(quiet_is_honoured),
                                       cmocka_unit_test(lines_are_plain_without_a_terminal)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
