#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/terminal.h"
#include "cli/command.h"
#include "cli/step_options.h"
#include "cli/typed_lines.h"
#include "generate/chat.h"

/* Set by Ctrl-C, which ends an answer or the wait for a line, but not the program. */
static volatile sig_atomic_t interrupted;

static const struct typed_lines *waiting;

static void note_interrupt(int number) {
    interrupted = number;
    typed_lines_interrupt(waiting);
}

static void catch_interrupts(const struct typed_lines *reader, struct sigaction *saved) {
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = SA_RESTART};
    waiting = reader;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, saved);
}

static bool write_text(void *payload, const char *text, size_t bytes) {
    (void)payload;
    return terminal_write(stdout, text, bytes);
}

static void report_finish(const struct chat_session *session, const struct chat_answer *answer) {
    const struct generate_result *result = &answer->result;
    long long positions = (long long)session->writer.decoding.positions;
    if (answer->dropped > 0)
        log_note("%lld messages at the beginning were forgotten: the caches hold %lld tokens (--seq)",
                 (long long)answer->dropped, positions);
    if (result->finish == GENERATE_FINISH_INTERRUPTED) log_note("interrupted");
    if (result->finish != GENERATE_FINISH_LENGTH) return;
    if (result->prompt_tokens + result->tokens >= positions)
        log_note("cut off: the caches are full, with %lld tokens (--seq)", positions);
    else
        log_note("cut off after %lld tokens (--tokens)", (long long)result->tokens);
}

/* Reports a text that cannot be answered; at a terminal the conversation goes on. */
static enum status answer(struct chat_session *session, const struct typed_lines *reader, const char *text) {
    struct chat_answer answer;
    interrupted = 0;
    enum status status = chat_session_send(session, text, write_text, NULL, &answer);
    if (status == STATUS_BAD_INPUT && reader->terminal) {
        const char *hint = status_hint_text();
        log_warning("%s%s%s", status_message(), hint[0] ? "; " : "", hint);
        return STATUS_OK;
    }
    TRY(status);
    putchar('\n');
    fflush(stdout);
    report_finish(session, &answer);
    return STATUS_OK;
}

static const char help[] = "/system TEXT  what the system says, from now on; without TEXT nothing\n"
                           "/reset        forget the conversation\n"
                           "/exit         end (or Ctrl-D); Ctrl-C stops an answer\n";

static bool is_command(const char *line, const char *name) {
    size_t length = strlen(name);
    return strncmp(line, name, length) == 0 && (line[length] == '\0' || line[length] == ' ');
}

/* What a line asks for; `*ended` for the end. */
static enum status take_line(struct chat_session *session, const struct typed_lines *reader, const char *line,
                             bool *ended) {
    if (line[strspn(line, " \t")] == '\0') return STATUS_OK;
    if (line[0] != '/') return answer(session, reader, line);
    if (is_command(line, "/exit") || is_command(line, "/quit"))
        *ended = true;
    else if (is_command(line, "/reset"))
        return chat_session_reset(session);
    else if (is_command(line, "/system"))
        return chat_session_set_system(session, strlen(line) > strlen("/system ") ? line + strlen("/system ") : NULL);
    else if (is_command(line, "/help"))
        fputs(help, stderr);
    else
        log_warning("there is no command '%s'; /help lists them", line);
    return STATUS_OK;
}

static enum status converse(struct chat_session *session, struct typed_lines *reader) {
    bool ended = false;
    const char *line;
    while (!ended) {
        enum line_event event = typed_lines_next(reader, ">>> ", &line);
        if (event == LINE_FAILED) return STATUS_FAILED;
        if (event == LINE_END) {
            if (reader->terminal) putchar('\n');
            break;
        }
        if (event == LINE_INTERRUPTED) {
            putchar('\n');
            continue;
        }
        TRY(take_line(session, reader, line, &ended));
    }
    return STATUS_OK;
}

static enum status talk(const struct options *options, struct chat_session *session) {
    struct typed_lines reader;
    struct sigaction saved;
    TRY(chat_session_set_system(session, options_text(options, OPT_system)));
    text_options_report(&session->writer);
    TRY(typed_lines_open(&reader));
    if (reader.terminal) {
        log_note("/help lists commands, Ctrl-D ends");
        catch_interrupts(&reader, &saved);
    }
    enum status status = converse(session, &reader);
    if (reader.terminal) sigaction(SIGINT, &saved, NULL);
    typed_lines_close(&reader);
    return status;
}

static enum status run(const struct options *options) {
    struct plan_options plan;
    struct generate_options generate;
    struct chat_session session = {0};
    TRY(step_options_read(options, false, &plan));
    text_options_read(options, true, &generate);
    generate.interrupted = &interrupted;
    enum status status = chat_session_open(options->arguments.items[0], &plan, &generate,
                                           options_int(options, OPT_chat_time_s), &session);
    if (status == STATUS_OK) status = talk(options, &session);
    chat_session_close(&session);
    return status;
}

const struct command command_chat = {
    .bit = COMMAND_CHAT,
    .name = "chat",
    .arguments = "MODEL_DIR",
    .min = 1,
    .max = 1,
    .summary = "chat with a model",
    .details = "Answers each message through the model's chat template, until Ctrl-D or /exit; /help lists the "
               "commands. Ctrl-C stops an answer. If standard input is not a terminal, each of its lines is a "
               "message, and only the answers are printed. Key-value caches hold --seq tokens and are kept from turn "
               "to turn, so that only new tokens are computed. When less than a quarter of them is left for the "
               "answer, the oldest turns are dropped, with a note.",
    .run = run,
};
