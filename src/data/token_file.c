#include "data/token_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/terminal.h"
#include "data/source.h"

enum { HEADER_BYTES = 256 * 4, BLOCK_TOKENS = 1 << 16 };

static const struct {
    int32_t magic, version;
    int token_bytes;
} formats[] = {{20240520, 1, 2}, {20240801, 7, 4}};
enum { FORMATS = sizeof formats / sizeof formats[0] };

/* The width of a token; 0, with the message set, if magic or version is unknown. */
static int find_format(const char *name, const int32_t *header) {
    for (size_t i = 0; i < FORMATS; i++) {
        if (header[0] != formats[i].magic) continue;
        if (header[1] == formats[i].version) return formats[i].token_bytes;
        (void)status_set(STATUS_BAD_INPUT, "%s: version: %d is not known for token files with magic %d (%d is)", name,
                         header[1], header[0], formats[i].version);
        return 0;
    }
    (void)status_set(STATUS_BAD_INPUT, "%s: magic: %d is not that of a token file (%d for uint16, %d for uint32)", name,
                     header[0], formats[0].magic, formats[1].magic);
    return 0;
}

enum status token_file_parse(const char *name, const struct file_input *input, struct token_view *out) {
    size_t bytes = input->bytes;
    if (bytes < HEADER_BYTES)
        return status_set(STATUS_BAD_INPUT, "%s: %zu bytes are less than a token file's header takes (%d)", name, bytes,
                          HEADER_BYTES);
    int32_t header[3];
    TRY(file_input_read(input, 0, sizeof header, header));
    int token_bytes = find_format(name, header);
    if (token_bytes == 0) return STATUS_BAD_INPUT;
    size_t body = bytes - HEADER_BYTES;
    if (header[2] < 0 || (size_t)header[2] * (size_t)token_bytes != body)
        return status_set(STATUS_BAD_INPUT,
                          "%s: count: %d tokens of %d bytes contradict the file's %zu bytes of tokens%s", name,
                          header[2], token_bytes, body,
                          header[2] >= 0 && (size_t)header[2] * (size_t)token_bytes > body ? " (truncated?)" : "");
    *out = (struct token_view){.input = *input,
                               .offset = HEADER_BYTES,
                               .token_bytes = token_bytes,
                               .count = header[2],
                               .id_limit = (int64_t)1 << 8 * token_bytes};
    return STATUS_OK;
}

enum status token_view_read(const struct token_view *view, int64_t first, int64_t count, int32_t *out) {
    size_t width = (size_t)view->token_bytes, bytes = (size_t)count * width;
    /* Narrow ids are read into the end of the buffer, and widened from the front. */
    unsigned char *buffer = (unsigned char *)out + (size_t)count * sizeof *out - bytes;
    TRY(file_input_read(&view->input, view->offset + (size_t)first * width, bytes, buffer));
    for (int64_t i = 0; width == 2 && i < count; i++) {
        uint16_t id;
        memcpy(&id, buffer + (size_t)i * sizeof id, sizeof id);
        out[i] = id;
    }
    return STATUS_OK;
}

enum status token_refuse_id(const char *name, int64_t index, uint32_t id, int64_t vocab_size) {
    (void)status_set(STATUS_BAD_INPUT, "%s: token %lld has id %u, but the model's vocabulary has %lld (ids 0 to %lld)",
                     name, (long long)index, id, (long long)vocab_size, (long long)vocab_size - 1);
    return status_hint(STATUS_BAD_INPUT, "were these tokens made for another model's tokenizer?");
}

static enum status examine_block(const char *name, const int32_t *ids, int64_t first, int64_t count,
                                 int64_t vocab_size) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        if ((uint32_t)ids[i] > largest) largest = (uint32_t)ids[i];
    if (largest < vocab_size) return STATUS_OK;
    int64_t at = 0;
    while ((uint32_t)ids[at] < vocab_size)
        at++;
    return token_refuse_id(name, first + at, (uint32_t)ids[at], vocab_size);
}

/* Hashes tokens as stored in the file, then widens them from the end. */
static enum status examine_all(const char *name, const struct token_view *view, int64_t vocab_size, XXH3_state_t *state,
                               int32_t *buffer) {
    size_t width = (size_t)view->token_bytes;
    for (int64_t first = 0; first < view->count; first += BLOCK_TOKENS) {
        int64_t count = view->count - first < BLOCK_TOKENS ? view->count - first : BLOCK_TOKENS;
        size_t bytes = (size_t)count * width;
        TRY(file_input_read(&view->input, view->offset + (size_t)first * width, bytes, buffer));
        XXH3_64bits_update(state, buffer, bytes);
        if (view->id_limit <= vocab_size) continue;
        for (int64_t i = count; width == 2 && i-- > 0;) {
            uint16_t id;
            memcpy(&id, (char *)buffer + (size_t)i * sizeof id, sizeof id);
            buffer[i] = id;
        }
        TRY(examine_block(name, buffer, first, count, vocab_size));
    }
    return STATUS_OK;
}

enum status token_view_examine(const char *name, const struct token_view *view, int64_t vocab_size, uint64_t *hash) {
    XXH3_state_t *state = XXH3_createState();
    int32_t *buffer = mem_array(BLOCK_TOKENS, sizeof *buffer);
    enum status status;
    TRY_GOTO(status, buffer ? STATUS_OK : STATUS_FAILED, done);
    TRY_GOTO(status, state ? STATUS_OK : status_set(STATUS_FAILED, "out of memory for a hash"), done);
    XXH3_64bits_reset(state);
    TRY_GOTO(status, examine_all(name, view, vocab_size, state, buffer), done);
    *hash = XXH3_64bits_digest(state);
done:
    XXH3_freeState(state);
    mem_free(buffer);
    return status;
}

static const char magic[8] = "BALMAKES";

static uint64_t find_boot(void) {
    char text[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(text, sizeof text, file)) text[0] = '\0';
    if (file) fclose(file);
    return XXH3_64bits(text, strlen(text));
}

/* The holder removes the file before it releases the lock. A file opened before that belongs to nobody. */
static bool is_in_place(const struct token_lock *lock) {
    struct stat here, there;
    return fstat(lock->descriptor, &here) == 0 && stat(lock->path, &there) == 0 && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

static enum token_lock_state take(struct token_lock *lock) {
    if (flock(lock->descriptor, LOCK_EX | LOCK_NB) == 0) {
        lock->mine = is_in_place(lock);
        return lock->mine ? TOKEN_LOCK_MINE : TOKEN_LOCK_NONE;
    }
    return errno == EWOULDBLOCK ? TOKEN_LOCK_OTHERS : TOKEN_LOCK_NONE;
}

/* If the file was removed in between, opens it again, as often as necessary. */
static enum token_lock_state open_and_take(struct token_lock *lock) {
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        int file = fault_point(FAULT_OPEN) ? -1 : open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file < 0) return TOKEN_LOCK_NONE;
        lock->descriptor = file;
        lock->open = true;
        enum token_lock_state state = take(lock);
        if (state != TOKEN_LOCK_NONE) return state;
        bool removed = !is_in_place(lock);
        close(file);
        lock->open = false;
        if (!removed) return TOKEN_LOCK_NONE;
    }
    return TOKEN_LOCK_NONE;
}

enum token_lock_state token_lock_open(const char *path, struct token_lock *out) {
    *out = (struct token_lock){.path = mem_format("%s.lock", path)};
    return out->path ? open_and_take(out) : TOKEN_LOCK_NONE;
}

enum token_lock_state token_lock_retry(struct token_lock *lock) {
    enum token_lock_state state = take(lock);
    if (state != TOKEN_LOCK_NONE) return state;
    close(lock->descriptor);
    lock->open = false;
    return open_and_take(lock);
}

static uint64_t hash_making(const struct token_making *making) {
    return XXH3_64bits(making, offsetof(struct token_making, self));
}

void token_lock_write(const struct token_lock *lock, uint64_t key, int64_t count, uint64_t text_bytes,
                      const char *file) {
    struct token_making making = {
        .boot = find_boot(), .pid = getpid(), .key = key, .count = count, .text_bytes = text_bytes};
    if (!lock->mine || strlen(file) >= sizeof making.file) return;
    memcpy(making.magic, magic, sizeof magic);
    memcpy(making.file, file, strlen(file));
    making.self = hash_making(&making);
    if (fault_point(FAULT_WRITE) || pwrite(lock->descriptor, &making, sizeof making, 0) < 0) return;
}

bool token_lock_read(const struct token_lock *lock, struct token_making *out) {
    ssize_t got = fault_point(FAULT_READ) ? -1 : pread(lock->descriptor, out, sizeof *out, 0);
    return got == (ssize_t)sizeof *out && memcmp(out->magic, magic, sizeof magic) == 0 &&
           out->self == hash_making(out) && out->file[sizeof out->file - 1] == '\0';
}

bool token_making_is_near(const struct token_making *making) {
    return making->boot == find_boot() && making->pid != getpid();
}

void token_lock_close(struct token_lock *lock) {
    if (lock->open && lock->mine) unlink(lock->path);
    if (lock->open) close(lock->descriptor);
    mem_free(lock->path);
    *lock = (struct token_lock){0};
}

enum { UNREAD_BYTES_MAX = 1 << 20 };

/* The last bytes of a cache. */
struct cache_footer {
    struct token_cache_key key;
    int64_t count, id_limit;
    struct utf8_damage damage; /* of the text */
    uint64_t tokens_hash;      /* of all bytes before the footer */
    uint64_t footer_hash;      /* of all fields before it */
};

static uint64_t hash_footer(const struct cache_footer *footer) {
    return XXH3_64bits(footer, offsetof(struct cache_footer, footer_hash));
}

char *token_cache_path(const char *folder, const char *text_path) {
    char absolute[PATH_MAX];
    if (!realpath(text_path, absolute)) {
        (void)status_set(STATUS_BAD_INPUT, "%s: cannot be found any more", text_path);
        return NULL;
    }
    const char *slash = strrchr(absolute, '/');
    char *name = mem_format("%s-%016" PRIx64 ".tokens", slash ? slash + 1 : absolute,
                            (uint64_t)XXH3_64bits(absolute, strlen(absolute)));
    char *path = name ? path_join(folder, name) : NULL;
    mem_free(name);
    return path;
}

enum status file_input_pass(const struct file_input *file, size_t from, size_t to,
                            enum status (*sink)(void *payload, const void *data, size_t bytes), void *payload) {
    enum { PIECE_BYTES = 1 << 16 };
    unsigned char *piece = mem_array(PIECE_BYTES, 1);
    enum status status = piece ? STATUS_OK : STATUS_FAILED;
    for (size_t here; status == STATUS_OK && from < to; from += here) {
        here = to - from < PIECE_BYTES ? to - from : PIECE_BYTES;
        status = file_input_read(file, from, here, piece);
        if (status == STATUS_OK) status = sink(payload, piece, here);
    }
    mem_free(piece);
    return status;
}

static enum status add_to_hash(void *state, const void *data, size_t bytes) {
    XXH3_64bits_update(state, data, bytes);
    return STATUS_OK;
}

static bool hash_body(const struct file_input *file, size_t bytes, uint64_t *out) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) return false;
    XXH3_64bits_reset(state);
    bool good = file_input_pass(file, 0, bytes, add_to_hash, state) == STATUS_OK;
    if (good) *out = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return good;
}

static bool read_footer(const struct file_input *file, struct cache_footer *out) {
    if (file->bytes < sizeof *out) return false;
    if (file_input_read(file, file->bytes - sizeof *out, sizeof *out, out) != STATUS_OK) return false;
    return out->footer_hash == hash_footer(out);
}

static bool is_list_of_names(const json_t *list) {
    size_t i;
    json_t *name;
    json_array_foreach(list, i, name) {
        if (!json_is_string(name)) return false;
    }
    return json_is_array(list);
}

/* The unread keys of rows follow the ids, as a JSON list. */
static bool read_unread(const struct file_input *file, uint64_t kind, size_t from, size_t to, json_t **out) {
    json_error_t error;
    *out = NULL;
    if (from == to) return kind == SOURCE_TEXT;
    char *text = to - from <= UNREAD_BYTES_MAX ? mem_array(to - from, 1) : NULL;
    if (text && file_input_read(file, from, to - from, text) == STATUS_OK)
        *out = json_loadb(text, to - from, 0, &error);
    mem_free(text);
    if (is_list_of_names(*out)) return true;
    json_decref(*out);
    *out = NULL;
    return false;
}

static bool read_cache(const struct file_input *file, const struct token_cache_key *key, struct token_view *out,
                       struct text_notes *notes) {
    struct cache_footer footer;
    size_t body = file->bytes - sizeof footer, bytes;
    uint64_t hash;
    if (!read_footer(file, &footer) || memcmp(&footer.key, key, sizeof *key) != 0) return false;
    if (footer.count < 0 || !mem_multiply((size_t)footer.count, key->token_bytes, &bytes) || bytes > body) return false;
    if (!hash_body(file, body, &hash) || hash != footer.tokens_hash) return false;
    if (!read_unread(file, key->kind, bytes, body, &notes->unread)) return false;
    notes->damage = footer.damage;
    *out = (struct token_view){
        .input = *file, .token_bytes = (int)key->token_bytes, .count = footer.count, .id_limit = footer.id_limit};
    return true;
}

bool token_cache_file_open(const char *path, const struct token_cache_key *key, struct file_input *file,
                           struct token_view *view, struct text_notes *notes) {
    if (!file_exists(path) || file_input_open(path, file) != STATUS_OK) return false;
    if (read_cache(file, key, view, notes)) return true;
    file_input_close(file);
    return false;
}

const char *token_cache_file_refusal(const char *path, const struct token_cache_key *key) {
    struct file_input file;
    struct cache_footer footer;
    if (file_input_open(path, &file) != STATUS_OK) return status_clear(), "its tokens cannot be read";
    bool read = read_footer(&file, &footer);
    const struct token_cache_key *of = &footer.key;
    file_input_close(&file);
    if (!read) return status_clear(), "its tokens are damaged";
    if (of->text_bytes != key->text_bytes || memcmp(of->text_hash, key->text_hash, sizeof key->text_hash) != 0)
        return "changed since it was tokenized";
    if (of->version != key->version) return "was tokenized by another version of Ballast";
    if (memcmp(of->tokenizer_hash, key->tokenizer_hash, sizeof key->tokenizer_hash) != 0)
        return "was tokenized by another tokenizer";
    if (memcmp(of, key, sizeof *key) != 0) return "was tokenized with other settings";
    return "its tokens are damaged";
}

/* DIR/….tokens.PID.NUMBER.new */
static bool is_unfinished(const char *name) {
    const char *at = strstr(name, ".tokens.");
    int length = 0;
    return at && sscanf(at, ".tokens.%*u.%*u.new%n", &length) == 0 && length > 0 && at[length] == '\0';
}

/* Removes a file whose writer no longer holds its lock, if possible. */
static void remove_abandoned(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) unlink(path);
    close(file);
}

static enum status remove_unfinished(const char *folder) {
    AUTO(names_free) struct names names = {0};
    if (folder_list(folder, &names) != STATUS_OK) return STATUS_FAILED;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        if (!is_unfinished(names.items[i])) continue;
        char *path = path_join(folder, names.items[i]);
        if (path)
            remove_abandoned(path);
        else
            status = STATUS_FAILED;
        mem_free(path);
    }
    return status;
}

/* Locked, so that others see that it is being written. */
static int open_beside(struct token_cache_writer *writer, const char *folder) {
    static atomic_uint number; /* one text may be given twice */
    if (folder_create(folder) != STATUS_OK || remove_unfinished(folder) != STATUS_OK) return -1;
    mem_free(writer->beside);
    writer->beside = mem_format("%s.%ld.%u.new", writer->path, (long)getpid(), atomic_fetch_add(&number, 1));
    if (!writer->beside) return -1;
    int file = fault_point(FAULT_OPEN) ? -1 : open(writer->beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) (void)flock(file, LOCK_EX | LOCK_NB);
    if (file < 0) (void)status_set(STATUS_FAILED, "%s: cannot create: %s", writer->beside, strerror(errno));
    return file;
}

static int open_place(struct token_cache_writer *writer, const char *folder) {
    const char *spare = getenv("TMPDIR");
    int file = -1;
    if (writer->place == PLACE_CACHE) return open_beside(writer, folder);
    if (writer->place == PLACE_SPARE && !fault_point(FAULT_OPEN))
        file = open(spare && spare[0] ? spare : "/var/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (writer->place == PLACE_MEMORY && !fault_point(FAULT_OPEN)) file = memfd_create("tokens", MFD_CLOEXEC);
    if (file < 0) (void)status_set(STATUS_FAILED, "%s: cannot keep tokens: %s", writer->path, strerror(errno));
    return file;
}

static enum status append(void *payload, const void *data, size_t bytes) {
    struct file_input *file = payload;
    int error = file_write_fully(file->descriptor, data, bytes);
    if (error != 0) return status_set(STATUS_FAILED, "%s: cannot write: %s", file->path, strerror(error));
    file->bytes += bytes;
    return STATUS_OK;
}

/* Opens a file at the writer's place and copies the ids written so far to it. */
static enum status begin_place(struct token_cache_writer *writer, const char *folder) {
    TRY(vec_reserve(&writer->files, writer->files.count + 1));
    AUTO(file_input_close) struct file_input file = {.path = mem_string(writer->path), .descriptor = -1};
    if (file.path) file.descriptor = open_place(writer, folder);
    TRY(file.descriptor >= 0 ? STATUS_OK : STATUS_FAILED);
    if (writer->files.count > 0) {
        const struct file_input *last = &writer->files.items[writer->files.count - 1];
        TRY(file_input_pass(last, 0, last->bytes, append, &file));
    }
    writer->files.items[writer->files.count++] = TAKE(file);
    return STATUS_OK;
}

static void drop_beside(struct token_cache_writer *writer) {
    if (writer->beside) unlink(writer->beside);
    mem_free(writer->beside);
    writer->beside = NULL;
}

static void warn_without_cache(const char *path) {
    log_warning("%s: the tokens of this run are not kept for later ones, as %s", path, status_message());
    log_warning(
        "XDG_CACHE_HOME names another directory for the cache; until then they are in %s (TMPDIR), or in memory",
        getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
}

/* Moves to the next place that works. The writer's own place failed; the message says why. */
static enum status move_on(struct token_cache_writer *writer) {
    if (writer->place == PLACE_CACHE) warn_without_cache(writer->path);
    drop_beside(writer);
    while (++writer->place < PLACES)
        if (begin_place(writer, NULL) == STATUS_OK) return STATUS_OK;
    return STATUS_FAILED;
}

enum status token_cache_writer_open(const char *folder, const char *path, int token_bytes,
                                    struct token_cache_writer *out) {
    struct token_cache_writer writer = {.path = path, .token_bytes = token_bytes, .hash = XXH3_createState()};
    enum status status = writer.hash ? STATUS_OK : status_set(STATUS_FAILED, "out of memory for a hash");
    if (status == STATUS_OK && begin_place(&writer, folder) != STATUS_OK) status = move_on(&writer);
    if (status != STATUS_OK) {
        token_cache_writer_close(&writer);
        return status;
    }
    XXH3_64bits_reset(writer.hash);
    *out = writer;
    return STATUS_OK;
}

static enum status write_bytes(struct token_cache_writer *writer, const void *data, size_t bytes) {
    XXH3_64bits_update(writer->hash, data, bytes);
    while (append(&writer->files.items[writer->files.count - 1], data, bytes) != STATUS_OK)
        TRY(move_on(writer));
    return STATUS_OK;
}

enum status token_cache_writer_write(struct token_cache_writer *writer, const uint32_t *ids, size_t count) {
    uint16_t narrow[16384];
    enum { NARROW = sizeof narrow / sizeof narrow[0] };
    if (writer->token_bytes == 4) TRY(write_bytes(writer, ids, count * sizeof *ids));
    for (size_t done = 0; writer->token_bytes == 2 && done < count;) {
        size_t here = count - done < NARROW ? count - done : NARROW;
        for (size_t i = 0; i < here; i++)
            narrow[i] = (uint16_t)ids[done + i];
        TRY(write_bytes(writer, narrow, here * sizeof narrow[0]));
        done += here;
    }
    writer->count += (int64_t)count;
    return STATUS_OK;
}

struct token_view token_cache_writer_view(const struct token_cache_writer *writer, int64_t id_limit) {
    return (struct token_view){.input = writer->files.items[writer->files.count - 1],
                               .token_bytes = writer->token_bytes,
                               .count = writer->count,
                               .id_limit = id_limit};
}

static enum status append_unread(struct token_cache_writer *writer, const json_t *unread) {
    json_auto_t *none = unread ? NULL : json_array();
    char *text = json_dumps(unread ? unread : none, JSON_COMPACT);
    enum status status = text ? write_bytes(writer, text, strlen(text)) : status_no_memory(0, "names of keys");
    free(text);
    return status;
}

static enum status publish(struct token_cache_writer *writer, const struct token_cache_key *key, int64_t id_limit,
                           const struct text_notes *notes) {
    if (key->kind != SOURCE_TEXT) TRY(append_unread(writer, notes->unread));
    struct file_input *file = &writer->files.items[writer->files.count - 1];
    struct cache_footer footer = {.key = *key,
                                  .count = writer->count,
                                  .id_limit = id_limit,
                                  .damage = notes->damage,
                                  .tokens_hash = XXH3_64bits_digest(writer->hash)};
    footer.footer_hash = hash_footer(&footer);
    TRY(append(file, &footer, sizeof footer));
    if (fault_point(FAULT_SYNC) || fsync(file->descriptor) != 0)
        return status_set(STATUS_FAILED, "%s: cannot sync: %s", writer->beside, strerror(errno));
    return file_rename(writer->beside, writer->path);
}

void token_cache_writer_publish(struct token_cache_writer *writer, const struct token_cache_key *key, int64_t id_limit,
                                const struct text_notes *notes) {
    if (writer->place == PLACE_CACHE && publish(writer, key, id_limit, notes) != STATUS_OK)
        warn_without_cache(writer->path);
    drop_beside(writer);
}

void token_cache_writer_close(struct token_cache_writer *writer) {
    for (size_t i = 0; i < writer->files.count; i++)
        file_input_close(&writer->files.items[i]);
    vec_free(&writer->files);
    drop_beside(writer);
    XXH3_freeState(writer->hash);
    *writer = (struct token_cache_writer){0};
}
