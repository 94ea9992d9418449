/* A directory's files against its manifest. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/manifest.h"

enum { BUFFER_BYTES = 1 << 20 };

static enum status add_finding(struct manifest_findings *out, const char *name, enum manifest_fault fault) {
    struct manifest_finding finding = {.fault = fault};
    snprintf(finding.name, sizeof finding.name, "%s", name);
    return vec_push(&out->items, finding);
}

static enum status add_block(struct manifest_findings *out, const struct manifest_file *file, size_t block,
                             enum file_block result) {
    enum manifest_fault fault = result == FILE_BLOCK_OTHER ? MANIFEST_CHANGED : MANIFEST_UNREADABLE;
    TRY(add_finding(out, file->name, fault));
    struct manifest_finding *finding = &out->items.items[out->items.count - 1];
    finding->bytes = finding->written_bytes = file->sums.bytes;
    finding->in_block = true;
    finding->block = block;
    finding->block_bytes = file->sums.block_bytes;
    return STATUS_OK;
}

/* What is read where. */
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
    TRY(add_finding(out, file->name, MANIFEST_RESIZED));
    struct manifest_finding *finding = &out->items.items[out->items.count - 1];
    finding->bytes = (uint64_t)info.st_size;
    finding->written_bytes = file->sums.bytes;
    return STATUS_OK;
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
