/* Conversations and batches of prompts with the program: `chat` in a pipe and at a terminal, `generate --chat`,
 * --prompts. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char template[] = "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}\n{% endfor %}"
                               "{% if add_generation_prompt %}[a]{% endif %}";

static char model[512];

static int set_up(void **state) {
    char path[600];
    if (temp_folder_make(state) != 0) return -1;
    snprintf(model, sizeof model, "%s/model", (const char *)*state);
    make_text(temp_path(*state, "text.txt"), 20000);
    make_tiny_model(*state, model, temp_path(*state, "text.txt"));
    snprintf(path, sizeof path, "%s/chat_template.jinja", model);
    temp_write_text(path, template);
    return 0;
}

#define CHAT "chat", model, "--tokens", "2", "--seed", "4", "--temperature", "0"

static struct program_run chat(const char *folder, const char *lines) {
    const char *input = temp_path(folder, "lines.txt");
    temp_write_text(input, lines);
    return program_run_input(folder, input, (const char *const[]){CHAT, NULL});
}

/* One line of input, one answer; what was asked before does not matter after a reset, and does without. */
static void piped_turns_are_answered(void **state) {
    struct program_run one = chat(*state, "ab"), other = chat(*state, "\r\n  \nb\n/reset\nab\n/exit\nab\n");
    assert_int_equal(one.status, 0);
    assert_int_equal(other.status, 0);
    size_t bytes = strlen(one.out), all = strlen(other.out);
    assert_true(bytes > 0 && all > bytes);
    assert_string_equal(other.out + all - bytes, one.out);
    assert_null(strstr(other.out, ">>>"));
    struct program_run same = PROGRAM(*state, "generate", model, "--chat", "--prompt", "ab", "--tokens", "2", "--seed",
                                      "4", "--temperature", "0");
    assert_string_equal(same.out, one.out);
    program_run_free(&same);
    program_run_free(&one);
    program_run_free(&other);
    other = chat(*state, "/what\n/system\n/help\n/exit\n");
    assert_int_equal(other.status, 0);
    assert_non_null(strstr(other.err, "no command '/what'"));
    assert_string_equal(other.out, "");
    program_run_free(&other);
    /* Where nobody can answer, what does not fit is an error. */
    other = chat(*state, "qjzxkvqjzxkvqjzxkvqjzxkvqjzxkvqjzxkvqjzxkvqjzxkv\n");
    assert_int_equal(other.status, 2);
    assert_non_null(strstr(other.err, "the caches hold 32"));
    program_run_free(&other);
}

static void prompts_may_be_conversations(void **state) {
    const char *prompts = temp_path(*state, "prompts.jsonl");
    char out[600];
    json_error_t error;
    snprintf(out, sizeof out, "%s/out.jsonl", (const char *)*state);
    temp_write_text(prompts, "{\"prompt\": \"ab\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}]}\n");
    struct program_run run = PROGRAM(*state, "generate", model, "--prompts", prompts, "--tokens", "3");
    assert_int_equal(run.status, 0);
    char *second = strchr(run.out, '\n');
    assert_non_null(second);
    json_t *line = json_loads(second + 1, 0, &error);
    assert_non_null(json_object_get(line, "messages"));
    assert_non_null(json_object_get(line, "text"));
    assert_true(json_integer_value(json_object_get(line, "tokens")) <= 32);
    json_decref(line);
    temp_write_text(out, "");   /* as a killed command leaves it */
    for (int i = 0; i < 2; i++) /* the second time in place of the file */
        EXPECT(*state, 0, NULL, "generate", model, "--prompts", prompts, "--tokens", "3", "--batch", "1", "-o", out);
    char *text;
    size_t bytes;
    assert_int_equal(file_read(out, 1 << 20, &text, &bytes), STATUS_OK);
    assert_string_equal(text, run.out);
    mem_free(text);
    program_run_free(&run);
    EXPECT(*state, 2, TEXTS("left as it is"), "generate", model, "--prompts", prompts, "-o", prompts);
    EXPECT(*state, 2, TEXTS("--prompt TEXT or --prompts"), "generate", model);
    EXPECT(*state, 2, TEXTS("--prompt TEXT or --prompts"), "generate", model, "--prompt", "a", "--prompts", prompts);
    EXPECT(*state, 2, TEXTS("--system: requires --chat"), "generate", model, "--prompt", "a", "--system", "b");
    EXPECT(*state, 2, TEXTS("--output: "), "generate", model, "--prompt", "a", "-o", out);
    EXPECT(*state, 2, TEXTS("none.txt"), "generate", model, "--prompts", temp_path(*state, "none.txt"));
    EXPECT(*state, 3, TEXTS("no plan fits"), "generate", model, "--prompts", prompts, "--batch", "1000000",
           "--device-memory", "4M");
    EXPECT(*state, 0, NULL, "plan", model, "--for", "generate", "--batch", "5");
}

static bool is_prompted_after(const char *seen, const char *text) {
    const char *at = strstr(seen, text);
    return at && strstr(at + strlen(text), ">>> ");
}

/* Reads what the program shows until `text` has come and a prompt after it. A prompt means that the terminal is the
 * line editor's: a Ctrl-D that is typed before is none to it. */
static void expect_prompt_after(int terminal, const char *text) {
    static char seen[1 << 16];
    size_t bytes = 0;
    seen[0] = '\0';
    while (!is_prompted_after(seen, text)) {
        struct pollfd ready = {.fd = terminal, .events = POLLIN};
        if (poll(&ready, 1, 60000) != 1) fail_msg("'%s' and a prompt did not come: %s", text, seen);
        ssize_t count = read(terminal, seen + bytes, sizeof seen - 1 - bytes);
        if (count <= 0) fail_msg("ended without '%s' and a prompt: %s", text, seen);
        bytes += (size_t)count;
        seen[bytes] = '\0';
    }
}

/* Reads on until the program has gone. */
static void expect_end(int terminal) {
    struct pollfd ready = {.fd = terminal, .events = POLLIN};
    char rest[256];
    do {
        if (poll(&ready, 1, 60000) != 1) fail_msg("the program does not end");
    } while (read(terminal, rest, sizeof rest) > 0);
}

static void type_in(int terminal, const char *text) {
    assert_int_equal(write(terminal, text, strlen(text)), (ssize_t)strlen(text));
}

/* Ctrl-C ends no more than a line or an answer; Ctrl-D ends. */
static void a_terminal_is_edited(void **state) {
    int terminal, result;
    (void)state;
    pid_t process = forkpty(&terminal, NULL, NULL, NULL);
    assert_true(process >= 0);
    if (process == 0) {
        char *const arguments[] = {(char *)(uintptr_t)BALLAST_PROGRAM, (char *)(uintptr_t) "chat", model, NULL};
        setenv("TERM", "dumb", 1);
        execv(BALLAST_PROGRAM, arguments);
        _exit(127);
    }
    expect_prompt_after(terminal, "");
    type_in(terminal, "a\x03");
    expect_prompt_after(terminal, "\n");
    type_in(terminal, "ab\n");
    expect_prompt_after(terminal, "ab");
    type_in(terminal, "qjzxkvqjzxkvqjzxkvqjzxkvqjzxkvqjzxkvqjzxkvqjzxkv\n");
    expect_prompt_after(terminal, "the caches hold 32");
    type_in(terminal, "\x04");
    expect_end(terminal);
    assert_int_equal(waitpid(process, &result, 0), process);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    close(terminal);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(piped_turns_are_answered),
        cmocka_unit_test(prompts_may_be_conversations),
        cmocka_unit_test(a_terminal_is_edited),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
