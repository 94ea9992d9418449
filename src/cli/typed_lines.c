#include "cli/typed_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/line_edit.h"

enum status typed_lines_open(struct typed_lines *out) {
    *out = (struct typed_lines){.terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    if (pipe2(out->wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return status_set(STATUS_FAILED, "cannot make a pipe: %s", strerror(errno));
    if (out->terminal) out->edit = line_edit_open(out);
    return STATUS_OK;
}

void typed_lines_close(struct typed_lines *reader) {
    line_edit_close(reader->edit);
    close(reader->wake[0]);
    close(reader->wake[1]);
    mem_free(reader->line);
}

void typed_lines_interrupt(const struct typed_lines *reader) {
    int error = errno;
    ssize_t unused = write(reader->wake[1], "", 1);
    (void)unused; /* where the pipe is full, the wait ends all the same */
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

enum line_event typed_lines_next(struct typed_lines *reader, const char *prompt, const char **line) {
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
