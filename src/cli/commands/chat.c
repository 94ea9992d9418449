#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/terminal.h"
#include "cli/commands/command.h"
#include "cli/line_edit.h"
#include "cli/step_options.h"
#include "generate/chat.h"

/* The reader must stay at its address until it is closed. */
static enum status typed_lines_open(struct typed_lines *out) {
    *out = (struct typed_lines){.terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    if (pipe2(out->wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return status_set(STATUS_FAILED, "cannot make a pipe: %s", strerror(errno));
    if (out->terminal) out->edit = line_edit_open(out);
    return STATUS_OK;
}

static void typed_lines_close(struct typed_lines *reader) {
    line_edit_close(reader->edit);
    close(reader->wake[0]);
    close(reader->wake[1]);
    mem_free(reader->line);
}

/* Ends the wait for a line. Async-signal-safe. */
static void typed_lines_interrupt(const struct typed_lines *reader) {
    int error = errno;
    ssize_t unused = write(reader->wake[1], "", 1);
    (void)unused; /* a full pipe ends the wait too */
    errno = error;
}

static void forget_interrupts(const struct typed_lines *reader) {
    char bytes[64];
    while (read(reader->wake[0], bytes, sizeof bytes) > 0)
        continue;
}

static int wait_for_input(const struct typed_lines *reader) {
    struct pollfd ready[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = reader->wake[0], .events = POLLIN}};
    while (poll(ready, 2, -1) < 0)
        if (errno != EINTR) return -1;
    if (ready[1].revents == 0) return 1;
    errno = EINTR;
    return -1;
}

int typed_lines_take_byte(struct typed_lines *reader, char *byte) {
    if (reader->at == reader->end) {
        if (wait_for_input(reader) < 0) return -1;
        ssize_t count = read(STDIN_FILENO, reader->input, sizeof reader->input);
        if (count <= 0) return (int)count;
        reader->at = 0;
        reader->end = (size_t)count;
    }
    *byte = reader->input[reader->at++];
    return 1;
}

static bool grow(struct typed_lines *reader, size_t bytes) {
    return vec_reserve_bytes((void **)&reader->line, &reader->capacity, bytes, 1);
}

static enum line_event keep(struct typed_lines *reader, const char *line, size_t bytes) {
    while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r'))
        bytes--;
    if (!grow(reader, bytes + 1)) return LINE_FAILED;
    memmove(reader->line, line, bytes);
    reader->line[bytes] = '\0';
    return LINE_TEXT;
}

static enum line_event read_plainly(struct typed_lines *reader) {
    size_t bytes = 0;
    char byte = 0;
    int taken = 1;
    while (byte != '\n' && (taken = typed_lines_take_byte(reader, &byte)) == 1) {
        if (!grow(reader, bytes + 1)) return LINE_FAILED;
        reader->line[bytes++] = byte;
    }
    if (taken < 0 && errno == EINTR) return LINE_INTERRUPTED;
    if (taken < 0) {
        (void)status_set(STATUS_FAILED, "standard input: %s", strerror(errno));
        return LINE_FAILED;
    }
    return bytes == 0 ? LINE_END : keep(reader, reader->line, bytes);
}

/* Reads the next line, without its newline; it is valid until the next call. Shows `prompt` at a terminal. Ignores
 * interrupts that came before the call. */
static enum line_event typed_lines_next(struct typed_lines *reader, const char *prompt, const char **line) {
    const char *edited;
    size_t bytes;
    enum line_event event;
    forget_interrupts(reader);
    if (reader->edit) {
        event = line_edit_next(reader->edit, prompt, &edited, &bytes);
        if (event == LINE_TEXT) event = keep(reader, edited, bytes);
    } else {
        if (reader->terminal) fputs(prompt, stdout);
        fflush(stdout);
        event = read_plainly(reader);
    }
    *line = reader->line;
    return event;
}

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

/* Answers a message. At a terminal, only warns about a message that cannot be answered, and the conversation
 * continues. */
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

/* Executes one input line, a message or a command. Sets `*ended` if it ends the conversation. */
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
    AUTO(chat_session_close) struct chat_session session = {0};
    TRY(step_options_read(options, false, &plan));
    text_options_read(options, true, &generate);
    generate.interrupted = &interrupted;
    TRY(chat_session_open(options->arguments.items[0], &plan, &generate, options_int(options, OPT_chat_time_s),
                          &session));
    return talk(options, &session);
}

const struct command command_chat = {
    .bit = COMMAND_CHAT,
    .name = "chat",
    .arguments = "MODEL_DIR",
    .min = 1,
    .max = 1,
    .summary = "chat with a model",
    .details = "Answers each message through the model's chat template, until Ctrl-D or /exit; /help lists the "
               "commands. Ctrl-C stops an answer.",
    .notes = "If standard input is not a terminal, each of its lines is a message, and only the answers are printed. "
             "Key-value caches hold --seq tokens and are kept from turn to turn, so that only new tokens are computed. "
             "When less than a quarter of them is left for the answer, the oldest turns are dropped, with a note.",
    .example = "ballast chat run/model --system 'Answer in one sentence.'",
    .run = run,
};
