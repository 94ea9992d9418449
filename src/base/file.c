#include "base/file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/hash.h"

/* Each piece of a file but the last has this many bytes: direct writes of 1 to 8 MiB, one or two in flight, are equally
 * fast on the machines of bench/RESULTS.md. */
enum { FILE_PIECE_BYTES = 1 << 20 };

/* Enough pieces that the disk stays busy while the owner waits for a processor that executes a step. On a loaded
 * machine, a checkpoint took 2.3 times as long as a plain write with four pieces, and 1.4 times with eight
 * (medians). */
enum { PIECES = 8, ALIGNMENT = 4096 /* of memory, past the page cache */ };

struct file_behind {
    int descriptor;
    pthread_t thread;
    unsigned char *memory, *pieces; /* the pieces lie aligned in the memory */
    size_t bytes[PIECES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock; piece i lies at i % PIECES. */
    size_t put, written;
    int error;
    bool ended;
};

static unsigned char *place_of(const struct file_behind *behind, size_t piece) {
    return behind->pieces + piece % PIECES * FILE_PIECE_BYTES;
}

/* Whether that changed anything. */
static bool set_direct(int descriptor, bool direct) {
    int flags = fcntl(descriptor, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) != (direct ? O_DIRECT : 0) &&
           fcntl(descriptor, F_SETFL, flags ^ O_DIRECT) == 0;
}

int file_write_fully(int descriptor, const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t put = fault_point(FAULT_WRITE) ? -1 : write(descriptor, (const char *)data + done, bytes - done);
        if (put < 0 && errno == EINTR) continue;
        /* A file system that requires another alignment, or the rest after a disk wrote part of a block. */
        if (put < 0 && errno == EINVAL && set_direct(descriptor, false)) continue;
        if (put < 0) return errno;
        done += (size_t)put;
    }
    return 0;
}

static void *write_pieces(void *payload) {
    struct file_behind *behind = payload;
    pthread_mutex_lock(&behind->lock);
    for (;;) {
        while (behind->written == behind->put && !behind->ended)
            pthread_cond_wait(&behind->changed, &behind->lock);
        if (behind->written == behind->put) break;
        size_t piece = behind->written;
        int error = behind->error;
        pthread_mutex_unlock(&behind->lock);
        if (error == 0)
            error = file_write_fully(behind->descriptor, place_of(behind, piece), behind->bytes[piece % PIECES]);
        pthread_mutex_lock(&behind->lock);
        behind->error = error;
        behind->written++;
        pthread_cond_broadcast(&behind->changed);
    }
    pthread_mutex_unlock(&behind->lock);
    return NULL;
}

static void release(struct file_behind *behind) {
    pthread_mutex_destroy(&behind->lock);
    pthread_cond_destroy(&behind->changed);
    mem_free(behind->memory);
    mem_free(behind);
}

/* The descriptor stays the caller's and open until file_behind_end. FAILED when there is no memory or no thread. */
static enum status file_behind_begin(int descriptor, struct file_behind **out) {
    struct file_behind *behind = mem_array(1, sizeof *behind);
    unsigned char *memory = mem_array(PIECES * FILE_PIECE_BYTES + ALIGNMENT, 1);
    if (!behind || !memory) {
        mem_free(behind);
        mem_free(memory);
        return STATUS_FAILED;
    }
    *behind = (struct file_behind){
        .descriptor = descriptor, .memory = memory, .pieces = memory + (ALIGNMENT - (uintptr_t)memory % ALIGNMENT)};
    pthread_mutex_init(&behind->lock, NULL);
    pthread_cond_init(&behind->changed, NULL);
    int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&behind->thread, NULL, write_pieces, behind);
    if (error == 0) {
        *out = behind;
        return STATUS_OK;
    }
    release(behind);
    return status_set(STATUS_FAILED, "cannot start a thread that writes: %s", strerror(error));
}

/* FILE_PIECE_BYTES of aligned memory for the next piece; waits until there are some. */
static unsigned char *file_behind_take(struct file_behind *behind) {
    pthread_mutex_lock(&behind->lock);
    while (behind->put - behind->written == PIECES)
        pthread_cond_wait(&behind->changed, &behind->lock);
    pthread_mutex_unlock(&behind->lock);
    return place_of(behind, behind->put);
}

/* Queues the piece that was taken last for writing. Returns 0 or the errno of the first write that failed, after which
 * no other write begins. */
static int file_behind_put(struct file_behind *behind, size_t bytes) {
    pthread_mutex_lock(&behind->lock);
    behind->bytes[behind->put++ % PIECES] = bytes;
    int error = behind->error;
    pthread_cond_broadcast(&behind->changed);
    pthread_mutex_unlock(&behind->lock);
    return error;
}

/* Waits for the last piece and ends the thread. Returns as file_behind_put. */
static int file_behind_end(struct file_behind *behind) {
    pthread_mutex_lock(&behind->lock);
    behind->ended = true;
    pthread_cond_broadcast(&behind->changed);
    pthread_mutex_unlock(&behind->lock);
    pthread_join(behind->thread, NULL);
    int error = behind->error;
    release(behind);
    return error;
}

enum { WRITER_BYTES = FILE_PIECE_BYTES };
const char file_temporary_prefix[] = ".tmp-";

static int open_checked(const char *path, int flags, mode_t mode) {
    return fault_point(FAULT_OPEN) ? -1 : open(path, flags | O_CLOEXEC, mode);
}

enum status file_input_failed(const char *path, const char *doing) {
    int error = errno;
    char folder[512];
    enum status status = status_set(STATUS_BAD_INPUT, "%s: cannot %s: %s", path, doing, strerror(error));
    if (error != ENOENT || path[0] == '/' || !getcwd(folder, sizeof folder)) return status;
    return status_hint(status, "the path starts from %s", folder);
}

static enum status output_failed(const char *path, const char *doing) {
    return status_set(STATUS_FAILED, "%s: cannot %s: %s", path, doing, strerror(errno));
}

/* O_NOFOLLOW makes a link ELOOP. */
static enum status create_failed(const char *path) {
    if (errno != ELOOP) return output_failed(path, "create");
    return status_hint(status_set(STATUS_FAILED, "%s: is a symbolic link; Ballast does not write through links", path),
                       "remove the link");
}

static enum status open_input(const char *path, struct file_input *input) {
    struct stat info;
    /* O_NONBLOCK: a FIFO given by mistake must be refused, not waited for. */
    input->descriptor = open_checked(path, O_RDONLY | O_NONBLOCK, 0);
    if (input->descriptor < 0) return file_input_failed(path, "open");
    if (fstat(input->descriptor, &info) != 0) return file_input_failed(path, "examine");
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

enum status file_read(const char *path, size_t limit_bytes, char **text, size_t *bytes) {
    struct file_input input;
    char *data = NULL;
    enum status status = STATUS_OK;
    TRY(file_input_open(path, &input));
    if (input.bytes > limit_bytes)
        status = status_set(STATUS_BAD_INPUT, "%s: %zu bytes are more than the limit of %zu for such a file", path,
                            input.bytes, limit_bytes);
    if (status == STATUS_OK) data = mem_array(input.bytes + 1, 1);
    if (status == STATUS_OK && !data) status = STATUS_FAILED;
    if (data && file_input_read(&input, 0, input.bytes, data) != STATUS_OK) status = STATUS_BAD_INPUT;
    if (status == STATUS_OK)
        *text = data, *bytes = input.bytes;
    else
        mem_free(data);
    file_input_close(&input);
    return status;
}

static enum status open_writer(const char *path, int flags, struct file_writer *out) {
    struct file_writer writer = {.path = mem_string(path), .memory = mem_array(WRITER_BYTES, 1), .descriptor = -1};
    if (writer.path && writer.memory) {
        writer.descriptor = open_checked(path, O_WRONLY | O_CREAT | flags, 0666);
        if (writer.descriptor < 0) (void)create_failed(path);
    }
    if (writer.descriptor < 0) {
        mem_free(writer.path);
        mem_free(writer.memory);
        return STATUS_FAILED;
    }
    struct stat info;
    writer.regular = fstat(writer.descriptor, &info) == 0 && S_ISREG(info.st_mode);
    writer.buffer = writer.memory;
    *out = writer;
    return STATUS_OK;
}

enum status file_writer_open(const char *path, struct file_writer *out) {
    return open_writer(path, O_TRUNC | O_NOFOLLOW, out);
}

enum status file_writer_open_named(const char *path, struct file_writer *out) {
    return open_writer(path, O_TRUNC, out);
}

enum status file_writer_open_part(const char *path, uint64_t offset, struct file_writer *out) {
    TRY(open_writer(path, O_NOFOLLOW, out));
    out->part = true;
    if (lseek(out->descriptor, (off_t)offset, SEEK_SET) >= 0) return STATUS_OK;
    (void)output_failed(path, "write at a place of");
    file_writer_abandon(out);
    return STATUS_FAILED;
}

void file_writer_pass_cache(struct file_writer *writer) {
    BUG_IF(writer->written > 0, "%s: written to before", writer->path);
    if (!writer->regular) return;
    writer->status = file_behind_begin(writer->descriptor, &writer->behind);
    if (writer->status != STATUS_OK) return;
    (void)set_direct(writer->descriptor, true);
    writer->buffer = file_behind_take(writer->behind);
}

static void note_error(struct file_writer *writer, int error) {
    if (error == 0 || writer->status != STATUS_OK) return;
    errno = error;
    writer->status = output_failed(writer->path, "write");
}

static void write_fully(struct file_writer *writer, const unsigned char *data, size_t bytes) {
    if (writer->status == STATUS_OK) note_error(writer, file_write_fully(writer->descriptor, data, bytes));
}

static void flush_writer(struct file_writer *writer) {
    if (writer->behind) {
        note_error(writer, file_behind_put(writer->behind, writer->used));
        writer->buffer = file_behind_take(writer->behind);
    } else {
        write_fully(writer, writer->buffer, writer->used);
    }
    writer->used = 0;
}

enum status file_writer_flush(struct file_writer *writer) {
    if (writer->used > 0) flush_writer(writer);
    return writer->status;
}

/* The last piece is not whole blocks: it goes through the page cache. */
static void end_behind(struct file_writer *writer) {
    if (!writer->behind) return;
    memcpy(writer->memory, writer->buffer, writer->used);
    writer->buffer = writer->memory;
    note_error(writer, file_behind_end(writer->behind));
    (void)set_direct(writer->descriptor, false);
    writer->behind = NULL;
}

void file_writer_write(struct file_writer *writer, const void *data, size_t bytes) {
    writer->written += bytes;
    if (writer->sums) file_sums_add(writer->sums, data, bytes);
    if (bytes >= WRITER_BYTES && !writer->behind) {
        flush_writer(writer);
        write_fully(writer, data, bytes);
        return;
    }
    for (const unsigned char *from = data; bytes > 0;) {
        size_t space = WRITER_BYTES - writer->used, now = bytes < space ? bytes : space;
        memcpy(writer->buffer + writer->used, from, now);
        writer->used += now;
        from += now;
        bytes -= now;
        if (writer->used == WRITER_BYTES) flush_writer(writer);
    }
}

void file_writer_seek(struct file_writer *writer, uint64_t offset) {
    BUG_IF(!writer->part || writer->behind, "%s: is written from one end to the other", writer->path);
    flush_writer(writer);
    if (lseek(writer->descriptor, (off_t)offset, SEEK_SET) < 0) note_error(writer, errno);
}

void file_writer_print(struct file_writer *writer, const char *format, ...) {
    char text[4096], *longer = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    BUG_IF(length < 0, "a line that cannot be printed: %s", format);
    if ((size_t)length >= sizeof text) {
        longer = mem_array((size_t)length + 1, 1);
        if (!longer) {
            writer->status = STATUS_FAILED;
            return;
        }
        va_start(arguments, format);
        vsnprintf(longer, (size_t)length + 1, format, arguments);
        va_end(arguments);
    }
    file_writer_write(writer, longer ? longer : text, (size_t)length);
    mem_free(longer);
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether the path itself, and not a link there, names the open file. */
static bool is_at(int file, const char *path) {
    struct stat open, there;
    return fstat(file, &open) == 0 && lstat(path, &there) == 0 && is_same(&open, &there);
}

static void remove_written(const struct file_writer *writer) {
    if (writer->regular && !writer->part && is_at(writer->descriptor, writer->path)) unlink(writer->path);
}

static void release_writer(struct file_writer *writer) {
    end_behind(writer);
    if (writer->descriptor >= 0) close(writer->descriptor);
    mem_free(writer->path);
    mem_free(writer->memory);
    *writer = (struct file_writer){.descriptor = -1};
}

enum status file_writer_close(struct file_writer *writer) {
    end_behind(writer);
    flush_writer(writer);
    if (writer->status == STATUS_OK && writer->regular && (fault_point(FAULT_SYNC) || fsync(writer->descriptor) != 0))
        writer->status = output_failed(writer->path, "sync");
    enum status status = writer->status;
    if (status != STATUS_OK) remove_written(writer);
    release_writer(writer);
    return status;
}

void file_writer_abandon(struct file_writer *writer) {
    remove_written(writer);
    release_writer(writer);
}

/* `flags` as those of open: they decide about an existing file. */
static enum status write_whole(const char *path, int flags, const void *data, size_t bytes, struct file_sums *sums) {
    struct file_writer writer;
    TRY(open_writer(path, flags, &writer));
    writer.sums = sums;
    file_writer_write(&writer, data, bytes);
    return file_writer_close(&writer);
}

/* Whether this process alone has the open file, which is still at the path. */
static bool is_taken(int file, const char *path) {
    struct stat info;
    return flock(file, LOCK_EX | LOCK_NB) == 0 && is_at(file, path) && fstat(file, &info) == 0 &&
           S_ISREG(info.st_mode) && info.st_nlink == 1 && info.st_uid == geteuid();
}

/* Opens `beside` as a new file and locks it. -1: another process has the name, or the file system has no locks. */
static int create_taken(const char *beside) {
    int file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 || is_taken(file, beside)) return file;
    if (errno != EWOULDBLOCK && is_at(file, beside)) unlink(beside);
    close(file);
    return -1;
}

/* Removes the temporary file of a killed process: its mode and owner may be others than a new file's. */
static void remove_left(const char *beside) {
    int file = open(beside, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return;
    if (is_taken(file, beside)) unlink(beside);
    close(file);
}

/* Each path has one temporary file, so that the next write replaces the rest of a killed process. `lock` is held on it.
 * If another process is writing there, or the file system has no locks, the file has a unique name and no lock: -1. */
static char *take_temporary(const char *path, int *lock) {
    const char *name = path_name(path);
    char *beside = mem_format("%.*s%s%016" PRIx64, (int)(name - path), path, file_temporary_prefix,
                              hash_bytes(name, strlen(name)));
    if (!beside) return NULL;
    remove_left(beside);
    *lock = create_taken(beside);
    if (*lock >= 0) return beside;
    mem_free(beside);
    return path_beside(path, file_temporary_prefix);
}

/* Another process may have made the temporary file anew since this one renamed or removed its own. */
static enum status replace_by(const char *beside, int lock, const char *path, const char *text, size_t bytes) {
    enum status status = write_whole(beside, lock >= 0 ? O_TRUNC | O_NOFOLLOW : O_EXCL, text, bytes, NULL);
    bool written = status == STATUS_OK;
    if (written) status = file_rename(beside, path);
    if (status != STATUS_OK && (lock >= 0 ? is_at(lock, beside) : written)) unlink(beside);
    return status;
}

enum status file_replace(const char *path, const char *text, size_t bytes) {
    struct stat info;
    int lock;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) return write_whole(path, O_TRUNC, text, bytes, NULL);
    char *beside = take_temporary(path, &lock);
    if (!beside) return STATUS_FAILED;
    enum status status = replace_by(beside, lock, path, text, bytes);
    if (lock >= 0) close(lock);
    mem_free(beside);
    return status_prefix(status, "%s", path);
}

static bool is_same_file(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && is_same(&first, &second);
}

static void copy_bytes(const struct file_input *from, struct file_writer *to) {
    for (size_t at = 0, here; at < from->bytes && to->status == STATUS_OK; at += here) {
        unsigned char piece[1 << 16];
        here = from->bytes - at < sizeof piece ? from->bytes - at : sizeof piece;
        to->status = file_input_read(from, at, here, piece);
        if (to->status == STATUS_OK) file_writer_write(to, piece, here);
    }
}

enum status file_copy(const char *from, const char *to) { return file_copy_summed(from, to, NULL); }

enum status file_copy_summed(const char *from, const char *to, struct file_sums *sums) {
    struct file_input input;
    struct file_writer writer;
    TRY(file_input_open(from, &input));
    enum status status = is_same_file(from, to)
                             ? status_set(STATUS_FAILED, "%s: cannot be copied to itself (%s)", from, to)
                             : file_writer_open(to, &writer);
    if (status == STATUS_OK) {
        writer.sums = sums;
        copy_bytes(&input, &writer);
        status = file_writer_close(&writer);
    }
    file_input_close(&input);
    return status;
}
