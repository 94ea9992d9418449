#include "base/manifest.h"

#include <fcntl.h>
#include <omp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"

/* Reads a block of an open file again, through `buffer` of `buffer_bytes`, and compares it. FILE_BLOCK_UNREADABLE: a
 * read failed, or the file ends too early. May be called by several threads, each with its own buffer. */
enum file_block { FILE_BLOCK_SAME, FILE_BLOCK_OTHER, FILE_BLOCK_UNREADABLE };

enum status file_sums_begin(struct file_sums *out) {
    *out = (struct file_sums){.block_bytes = FILE_BLOCK_BYTES, .unfinished = XXH3_createState()};
    if (!out->unfinished) return status_no_memory(0, "checksums");
    XXH3_64bits_reset(out->unfinished);
    return STATUS_OK;
}

static void end_block(struct file_sums *sums) {
    if (sums->status == STATUS_OK) sums->status = vec_push(&sums->blocks, XXH3_64bits_digest(sums->unfinished));
    XXH3_64bits_reset(sums->unfinished);
}

void file_sums_add(struct file_sums *sums, const void *data, size_t bytes) {
    for (const unsigned char *from = data; bytes > 0;) {
        uint64_t space = sums->block_bytes - sums->bytes % sums->block_bytes;
        size_t now = bytes < space ? bytes : (size_t)space;
        XXH3_64bits_update(sums->unfinished, from, now);
        sums->bytes += now;
        from += now;
        bytes -= now;
        if (sums->bytes % sums->block_bytes == 0) end_block(sums);
    }
}

enum status file_sums_append(struct file_sums *sums, const uint64_t *blocks, size_t count, uint64_t bytes) {
    for (size_t i = 0; i < count; i++)
        TRY(vec_push(&sums->blocks, blocks[i]));
    sums->bytes += bytes;
    return STATUS_OK;
}

enum status file_sums_end(struct file_sums *sums) {
    if (sums->blocks.count < file_blocks(sums->bytes, sums->block_bytes)) end_block(sums);
    return sums->status;
}

void file_sums_free(struct file_sums *sums) {
    XXH3_freeState(sums->unfinished);
    vec_free(&sums->blocks);
    *sums = (struct file_sums){0};
}

static ssize_t read_at(int descriptor, void *buffer, size_t bytes, uint64_t offset) {
    for (;;) {
        ssize_t got = fault_point(FAULT_READ) ? -1 : pread(descriptor, buffer, bytes, (off_t)offset);
        if (got >= 0 || errno != EINTR) return got;
    }
}

static enum file_block file_sums_compare(const struct file_sums *sums, int descriptor, size_t block, void *buffer,
                                         size_t buffer_bytes) {
    uint64_t at = (uint64_t)block * sums->block_bytes, end = at + sums->block_bytes;
    ssize_t got = 1;
    XXH3_state_t *state = XXH3_createState();
    if (!state) return FILE_BLOCK_UNREADABLE;
    XXH3_64bits_reset(state);
    if (end > sums->bytes) end = sums->bytes;
    for (; at < end && got > 0; at += (uint64_t)got) {
        got = read_at(descriptor, buffer, end - at < buffer_bytes ? (size_t)(end - at) : buffer_bytes, at);
        if (got <= 0) break;
        XXH3_64bits_update(state, buffer, (size_t)got);
    }
    uint64_t sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    if (at < end) return FILE_BLOCK_UNREADABLE;
    return sum == sums->blocks.items[block] ? FILE_BLOCK_SAME : FILE_BLOCK_OTHER;
}

enum { MANIFEST_VERSION = 1, MANIFEST_LIMIT_BYTES = 1 << 26, HASH_DIGITS = 16 };
const char manifest_name[] = "ballast_manifest.json";
static const char checksum_name[] = "xxh3-64";

void manifest_free(struct manifest *manifest) {
    for (size_t i = 0; i < manifest->files.count; i++)
        file_sums_free(&manifest->files.items[i].sums);
    vec_free(&manifest->files);
}

static struct manifest_file *find(const struct manifest *manifest, const char *name) {
    for (size_t i = 0; i < manifest->files.count; i++)
        if (strcmp(manifest->files.items[i].name, name) == 0) return &manifest->files.items[i];
    return NULL;
}

static uint64_t block_bytes_of(const struct manifest *manifest) {
    return manifest->block_bytes > 0 ? manifest->block_bytes : FILE_BLOCK_BYTES;
}

enum status manifest_add(struct manifest *manifest, const char *path, struct file_sums **sums) {
    return manifest_add_named(manifest, path_name(path), sums);
}

enum status manifest_add_named(struct manifest *manifest, const char *name, struct file_sums **sums) {
    *sums = NULL;
    if (!manifest) return STATUS_OK;
    struct manifest_file file;
    BUG_IF(strlen(name) >= sizeof file.name || find(manifest, name), "%s: cannot be listed", name);
    memcpy(file.name, name, strlen(name) + 1);
    TRY(file_sums_begin(&file.sums));
    file.sums.block_bytes = block_bytes_of(manifest);
    enum status status = vec_push(&manifest->files, file);
    if (status == STATUS_OK)
        *sums = &manifest->files.items[manifest->files.count - 1].sums;
    else
        file_sums_free(&file.sums);
    return status;
}

void manifest_keep(struct manifest *manifest, const char *ending) {
    size_t kept = 0;
    for (size_t i = 0; i < manifest->files.count; i++) {
        struct manifest_file *file = &manifest->files.items[i];
        if (path_ends(file->name, ending))
            manifest->files.items[kept++] = *file;
        else
            file_sums_free(&file->sums);
    }
    manifest->files.count = kept;
}

/* ---- to JSON ---- */

static void print_hash(uint64_t hash, char text[HASH_DIGITS + 1]) {
    snprintf(text, HASH_DIGITS + 1, "%016" PRIx64, hash);
}

static json_t *file_to_json(const struct manifest_file *file) {
    json_t *blocks = json_array();
    int failed = !blocks;
    for (size_t i = 0; i < file->sums.blocks.count && !failed; i++) {
        char text[HASH_DIGITS + 1];
        print_hash(file->sums.blocks.items[i], text);
        failed |= json_array_append_new(blocks, json_string(text));
    }
    json_t *object = json_pack("{s:s, s:I, s:o}", "name", file->name, "bytes", (json_int_t)file->sums.bytes, "blocks",
                               blocks); /* "o" takes over `blocks`, also on failure */
    return json_unless(failed, object);
}

/* The hash of an object without its "self". */
static enum status hash_object(const json_t *object, uint64_t *hash) {
    json_t *rest = json_copy((json_t *)(uintptr_t)object);
    if (rest) (void)json_object_del(rest, "self");
    char *text = rest ? json_text(rest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(rest);
    if (!text) return STATUS_FAILED;
    *hash = XXH3_64bits(text, strlen(text));
    mem_free(text);
    return STATUS_OK;
}

static enum status add_self(json_t *object) {
    uint64_t hash;
    char text[HASH_DIGITS + 1];
    TRY(hash_object(object, &hash));
    print_hash(hash, text);
    return json_object_set_new(object, "self", json_string(text)) == 0 ? STATUS_OK : status_no_memory(0, "a manifest");
}

static json_t *to_json(const struct manifest *manifest) {
    json_t *files = json_array();
    int failed = !files;
    for (size_t i = 0; i < manifest->files.count; i++)
        failed |= json_array_append_new(files, file_to_json(&manifest->files.items[i]));
    json_t *object = json_pack("{s:i, s:s, s:I, s:o}", "version", MANIFEST_VERSION, "checksum", checksum_name,
                               "block_bytes", (json_int_t)block_bytes_of(manifest), "files", files);
    return json_made(!object || failed || add_self(object) != STATUS_OK, object, "a manifest");
}

enum status manifest_write(struct manifest *manifest, const char *folder) {
    for (size_t i = 0; i < manifest->files.count; i++)
        TRY(file_sums_end(&manifest->files.items[i].sums));
    char *path = path_join(folder, manifest_name);
    json_t *object = path ? to_json(manifest) : NULL;
    enum status status = object ? json_write(path, object) : STATUS_FAILED;
    json_decref(object);
    mem_free(path);
    return status;
}

/* ---- from JSON ---- */

static bool read_hash(const json_t *value, uint64_t *out) {
    const char *text = json_string_value(value);
    if (!text || strlen(text) != HASH_DIGITS || strspn(text, "0123456789abcdef") != HASH_DIGITS) return false;
    return sscanf(text, "%" SCNx64, out) == 1;
}

/* Whether the name is that of a file in this directory, which the checks may open. */
static bool is_part(const char *name, size_t length) {
    return length > 0 && !(length <= 2 && strncmp(name, "..", length) == 0);
}

/* NAME or DIR/NAME. */
static bool is_file_name(const char *name) {
    size_t length = strlen(name), first = strcspn(name, "/");
    if (length >= MANIFEST_NAME_BYTES || !is_part(name, first) || strcmp(name, manifest_name) == 0) return false;
    return first == length || (is_part(name + first + 1, length - first - 1) && !strchr(name + first + 1, '/'));
}

static enum status read_blocks(const char *where, const json_t *object, struct file_sums *sums) {
    const json_t *blocks = json_object_get(object, "blocks");
    uint64_t count = file_blocks(sums->bytes, sums->block_bytes), sum;
    if (!json_is_array(blocks) || json_array_size(blocks) != count)
        return status_set(STATUS_BAD_INPUT, "%s: blocks: must be an array of %" PRIu64 " for %" PRIu64 " bytes", where,
                          count, sums->bytes);
    for (size_t i = 0; i < count; i++) {
        if (!read_hash(json_array_get(blocks, i), &sum))
            return status_set(STATUS_BAD_INPUT, "%s: blocks: number %zu must be %d hexadecimal digits", where, i,
                              HASH_DIGITS);
        TRY(vec_push(&sums->blocks, sum));
    }
    return STATUS_OK;
}

static enum status read_file(const char *manifest_path, size_t index, const json_t *object, struct manifest *out) {
    char where[4096 + 32];
    const char *name = NULL;
    int64_t bytes = 0;
    struct manifest_file file = {0};
    snprintf(where, sizeof where, "%s: files: number %zu", manifest_path, index);
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(json_require(where, object, "name"));
    TRY(json_read_string(where, object, "name", &name));
    if (!is_file_name(name)) return status_set(STATUS_BAD_INPUT, "%s: name: is no file of this directory", where);
    if (find(out, name)) return status_set(STATUS_BAD_INPUT, "%s: name: '%s' is there twice", where, name);
    memcpy(file.name, name, strlen(name) + 1);
    TRY(json_require(where, object, "bytes"));
    TRY(json_read_int(where, object, "bytes", 0, INT64_MAX, &bytes));
    file.sums.bytes = (uint64_t)bytes;
    file.sums.block_bytes = out->block_bytes;
    enum status status;
    TRY_GOTO(status, read_blocks(where, object, &file.sums), failed);
    TRY_GOTO(status, vec_push(&out->files, file), failed);
    return STATUS_OK;
failed:
    file_sums_free(&file.sums);
    return status;
}

static enum status check_self(const char *name, const json_t *object) {
    uint64_t written, found;
    if (!read_hash(json_object_get(object, "self"), &written))
        return status_set(STATUS_BAD_INPUT, "%s: self: must be %d hexadecimal digits", name, HASH_DIGITS);
    TRY(hash_object(object, &found));
    if (written == found) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: self: is not the checksum of the rest: the manifest is damaged", name);
}

static enum status from_json(const char *name, const json_t *object, struct manifest *out) {
    int64_t number = 0;
    const char *checksum = "";
    TRY(json_read_version(name, object, MANIFEST_VERSION, &number));
    TRY(json_read_string(name, object, "checksum", &checksum));
    if (strcmp(checksum, checksum_name) != 0)
        return status_set(STATUS_BAD_INPUT, "%s: checksum: must be \"%s\"", name, checksum_name);
    TRY(json_require(name, object, "block_bytes"));
    TRY(json_read_int(name, object, "block_bytes", FILE_BLOCK_BYTES_MIN, FILE_BLOCK_BYTES, &number));
    if ((number & (number - 1)) != 0)
        return status_set(STATUS_BAD_INPUT, "%s: block_bytes: %" PRId64 " is not a power of two", name, number);
    out->block_bytes = (uint64_t)number;
    const json_t *files = json_object_get(object, "files");
    if (!json_is_array(files)) return status_set(STATUS_BAD_INPUT, "%s: files: must be an array", name);
    for (size_t i = 0; i < json_array_size(files); i++)
        TRY(read_file(name, i, json_array_get(files, i), out));
    return check_self(name, object);
}

enum status manifest_parse(const char *name, const char *text, size_t bytes, struct manifest *out) {
    json_t *object;
    struct manifest manifest = {0};
    TRY(json_parse_object(name, text, bytes, &object));
    enum status status = from_json(name, object, &manifest);
    json_decref(object);
    if (status != STATUS_OK)
        manifest_free(&manifest);
    else
        *out = manifest;
    return status;
}

enum status manifest_read(const char *folder, struct manifest *out) {
    char *path = path_join(folder, manifest_name), *text = NULL;
    size_t bytes;
    enum status status;
    TRY_GOTO(status, path ? file_read(path, MANIFEST_LIMIT_BYTES, &text, &bytes) : STATUS_FAILED, done);
    TRY_GOTO(status, manifest_parse(path, text, bytes, out), done);
done:
    mem_free(text);
    mem_free(path);
    return status;
}

bool manifest_exists(const char *folder) { return folder_holds(folder, manifest_name); }

/* A directory's files against its manifest. */

enum { BUFFER_BYTES = 1 << 20 };

static enum status add_filled(struct manifest_findings *out, const char *name, struct manifest_finding finding) {
    snprintf(finding.name, sizeof finding.name, "%s", name);
    return vec_push(&out->items, finding);
}

static enum status add_finding(struct manifest_findings *out, const char *name, enum manifest_fault fault) {
    return add_filled(out, name, (struct manifest_finding){.fault = fault});
}

static enum status add_block(struct manifest_findings *out, const struct manifest_file *file, size_t block,
                             enum file_block result) {
    return add_filled(
        out, file->name,
        (struct manifest_finding){.fault = result == FILE_BLOCK_OTHER ? MANIFEST_CHANGED : MANIFEST_UNREADABLE,
                                  .bytes = file->sums.bytes,
                                  .written_bytes = file->sums.bytes,
                                  .in_block = true,
                                  .block = block,
                                  .block_bytes = file->sums.block_bytes});
}

/* The parts of the files to read. */
struct verification {
    const char *folder;
    struct manifest_share share;
    uint64_t blocks_before; /* of the files before this one */
    unsigned char *buffers; /* BUFFER_BYTES for each of OpenMP's threads */
};

static bool is_of_share(const struct verification *verification, int64_t block) {
    struct manifest_share share = verification->share;
    if (share.count <= 1) return true;
    return (verification->blocks_before + (uint64_t)block) % (uint64_t)share.count == (uint64_t)share.index;
}

static enum status verify_blocks(const struct manifest_file *file, int descriptor,
                                 const struct verification *verification, struct manifest_findings *out) {
    int64_t count = (int64_t)file->sums.blocks.count;
    unsigned char *results = mem_array((size_t)count, 1);
    if (!results) return STATUS_FAILED;
#pragma omp parallel for schedule(dynamic, 1) if (count > 1)
    for (int64_t b = 0; b < count; b++) {
        if (!is_of_share(verification, b)) continue;
        unsigned char *buffer = verification->buffers + (size_t)omp_get_thread_num() * BUFFER_BYTES;
        results[b] = (unsigned char)file_sums_compare(&file->sums, descriptor, (size_t)b, buffer, BUFFER_BYTES);
    }
    enum status status = STATUS_OK;
    for (int64_t b = 0; b < count && status == STATUS_OK; b++)
        if (results[b] != FILE_BLOCK_SAME) status = add_block(out, file, (size_t)b, (enum file_block)results[b]);
    mem_free(results);
    return status;
}

static enum status verify_open(const struct manifest_file *file, int descriptor,
                               const struct verification *verification, struct manifest_findings *out) {
    struct stat info;
    if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode))
        return add_finding(out, file->name, MANIFEST_UNREADABLE);
    if ((uint64_t)info.st_size == file->sums.bytes) return verify_blocks(file, descriptor, verification, out);
    const struct manifest_finding resized = {
        .fault = MANIFEST_RESIZED, .bytes = (uint64_t)info.st_size, .written_bytes = file->sums.bytes};
    return add_filled(out, file->name, resized);
}

static enum status verify_file(const struct manifest_file *file, const struct verification *verification,
                               struct manifest_findings *out) {
    char *path = path_join(verification->folder, file->name);
    if (!path) return STATUS_FAILED;
    /* O_NONBLOCK: a FIFO put in its place must be found, not waited for. */
    int descriptor = fault_point(FAULT_OPEN) ? -1 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int error = errno;
    mem_free(path);
    if (descriptor < 0) return add_finding(out, file->name, error == ENOENT ? MANIFEST_MISSING : MANIFEST_UNREADABLE);
    enum status status = verify_open(file, descriptor, verification, out);
    close(descriptor);
    return status;
}

enum status manifest_verify(const struct manifest *manifest, const char *folder, bool (*wanted)(const char *name),
                            struct manifest_share share, struct manifest_findings *out) {
    struct verification verification = {
        .folder = folder, .share = share, .buffers = mem_array((size_t)omp_get_max_threads(), BUFFER_BYTES)};
    enum status status = verification.buffers ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0; i < manifest->files.count && status == STATUS_OK; i++) {
        const struct manifest_file *file = &manifest->files.items[i];
        if (wanted && !wanted(file->name)) continue;
        status = verify_file(file, &verification, out);
        verification.blocks_before += file->sums.blocks.count;
    }
    mem_free(verification.buffers);
    return status;
}

enum status manifest_find_added(const struct manifest *manifest, const char *folder, struct manifest_findings *out) {
    struct names names;
    TRY(folder_list(folder, &names));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        const char *name = names.items[i];
        bool listed = name[0] == '.' || strcmp(name, manifest_name) == 0;
        size_t length = strlen(name);
        for (size_t f = 0; f < manifest->files.count && !listed; f++) {
            const char *known = manifest->files.items[f].name;
            listed = strncmp(known, name, length) == 0 && (known[length] == '\0' || known[length] == '/');
        }
        if (!listed) status = add_finding(out, name, MANIFEST_ADDED);
    }
    names_free(&names);
    return status;
}

static const char *describe(enum manifest_fault fault) {
    switch (fault) {
    case MANIFEST_MISSING: return "is missing";
    case MANIFEST_UNREADABLE: return "cannot be read";
    case MANIFEST_RESIZED: break;
    case MANIFEST_CHANGED: return "is not as it was written";
    case MANIFEST_ADDED: return "was added later";
    }
    BUG("a finding of kind %d", (int)fault);
}

char *manifest_finding_print(const struct manifest_finding *finding, char text[MANIFEST_TEXT_BYTES]) {
    uint64_t first = (uint64_t)finding->block * finding->block_bytes, last = first + finding->block_bytes - 1;
    if (last >= finding->bytes) last = finding->bytes - 1;
    if (finding->fault == MANIFEST_RESIZED)
        snprintf(text, MANIFEST_TEXT_BYTES, "%s: has %" PRIu64 " bytes, was written with %" PRIu64, finding->name,
                 finding->bytes, finding->written_bytes);
    else if (finding->in_block)
        snprintf(text, MANIFEST_TEXT_BYTES, "%s: block %zu (bytes %" PRIu64 " to %" PRIu64 ") %s", finding->name,
                 finding->block, first, last, describe(finding->fault));
    else
        snprintf(text, MANIFEST_TEXT_BYTES, "%s: %s", finding->name, describe(finding->fault));
    return text;
}
