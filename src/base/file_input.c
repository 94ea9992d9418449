#include "base/file_input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"

static enum status refuse(const char *path, const char *doing) {
    return status_set(STATUS_BAD_INPUT, "%s: cannot %s: %s", path, doing, strerror(errno));
}

static enum status open_input(const char *path, struct file_input *input) {
    struct stat info;
    /* O_NONBLOCK: a FIFO given by mistake must be refused, not waited for. */
    input->descriptor = fault_point(FAULT_OPEN) ? -1 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (input->descriptor < 0) return refuse(path, "open");
    if (fstat(input->descriptor, &info) != 0) return refuse(path, "examine");
    if (!S_ISREG(info.st_mode)) return status_set(STATUS_BAD_INPUT, "%s: not a regular file", path);
    input->bytes = (size_t)info.st_size;
    return STATUS_OK;
}

enum status file_input_open(const char *path, struct file_input *out) {
    struct file_input input = {.path = mem_string(path), .descriptor = -1};
    enum status status = input.path ? open_input(path, &input) : STATUS_FAILED;
    if (status == STATUS_OK)
        *out = input;
    else
        file_input_close(&input);
    return status;
}

struct file_input file_input_of_memory(const void *data, size_t bytes) {
    return (struct file_input){.memory = data, .bytes = bytes, .descriptor = -1};
}

void file_input_close(struct file_input *input) {
    if (input->path && input->descriptor >= 0) close(input->descriptor);
    mem_free(input->path);
    *input = (struct file_input){.descriptor = -1};
}

enum status file_input_read(const struct file_input *input, size_t offset, size_t bytes, void *out) {
    BUG_IF(offset > input->bytes || bytes > input->bytes - offset, "%s: bytes %zu..+%zu of %zu", input->path, offset,
           bytes, input->bytes);
    if (bytes > 0 && !input->path) memcpy(out, input->memory + offset, bytes);
    for (size_t done = 0; input->path && done < bytes;) {
        ssize_t got = fault_point(FAULT_READ)
                          ? -1
                          : pread(input->descriptor, (char *)out + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return status_set(STATUS_FAILED, "%s: cannot read: %s", input->path, strerror(errno));
        if (got == 0)
            return status_set(STATUS_FAILED, "%s: was cut short while it was in use: it ends at byte %zu of %zu",
                              input->path, offset + done, input->bytes);
        done += (size_t)got;
    }
    return STATUS_OK;
}

void file_input_expect(const struct file_input *input, size_t offset, size_t bytes) {
    if (input->path) (void)posix_fadvise(input->descriptor, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}
