#include "report/page/line_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"

enum status line_reader_open(const char *path, size_t max_line_bytes, struct line_reader *out) {
    *out = (struct line_reader){.path = mem_string(path), .max_line_bytes = max_line_bytes};
    return out->path ? STATUS_OK : STATUS_FAILED;
}

void line_reader_close(struct line_reader *reader) {
    mem_free(reader->path);
    *reader = (struct line_reader){0};
}

char *line_reader_name(const struct line_reader *reader, char text[LINE_NAME_BYTES]) {
    snprintf(text, LINE_NAME_BYTES, "%s: line %" PRId64, reader->path, reader->lines + 1);
    return text;
}

/* Takes the whole lines of a piece; `taken` are their bytes. */
static enum status take_piece(struct line_reader *reader, const struct line_taker *taker, const char *piece,
                              size_t bytes, size_t *taken) {
    for (*taken = 0; *taken < bytes;) {
        const char *end = memchr(piece + *taken, '\n', bytes - *taken);
        if (!end) return STATUS_OK;
        size_t length = (size_t)(end - piece) - *taken;
        TRY(taker->take(taker->payload, reader, piece + *taken, length));
        *taken += length + 1;
        reader->offset += (int64_t)length + 1;
        reader->lines++;
    }
    return STATUS_OK;
}

static enum status read_failed(const struct line_reader *reader) {
    return status_set(STATUS_BAD_INPUT, "%s: cannot read: %s", reader->path, strerror(errno));
}

static enum status read_on(struct line_reader *reader, const struct line_taker *taker, int file, char *piece) {
    struct stat info;
    if (fstat(file, &info) != 0) return read_failed(reader);
    if (!S_ISREG(info.st_mode)) return status_set(STATUS_BAD_INPUT, "%s: not a regular file", reader->path);
    if (info.st_size < reader->offset) {
        reader->offset = reader->lines = 0;
        taker->forget(taker->payload);
    }
    for (;;) {
        size_t max = reader->max_line_bytes, taken;
        ssize_t got = fault_point(FAULT_READ) ? -1 : pread(file, piece, max, (off_t)reader->offset);
        if (got < 0) return read_failed(reader);
        TRY(take_piece(reader, taker, piece, (size_t)got, &taken));
        if (taken > 0) continue;
        if ((size_t)got < max) return STATUS_OK;
        return status_set(STATUS_BAD_INPUT, "%s: line %" PRId64 ": longer than %zu bytes", reader->path,
                          reader->lines + 1, max);
    }
}

enum status line_reader_advance(struct line_reader *reader, const struct line_taker *taker) {
    /* O_NONBLOCK: a FIFO given by mistake must be refused, not waited for. */
    int file = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && errno == ENOENT) return STATUS_OK;
    if (file < 0) return read_failed(reader);
    char *piece = mem_array(reader->max_line_bytes, 1);
    enum status status = piece ? read_on(reader, taker, file, piece) : STATUS_FAILED;
    mem_free(piece);
    close(file);
    return status;
}
