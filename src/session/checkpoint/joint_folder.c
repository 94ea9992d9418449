#include "session/checkpoint/joint_folder.h"

#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "session/checkpoint/run_folder.h"

/* A network file system may show a new name a little later. */
enum { LOOKS = 10, LOOK_NS = 100000000 };

/* Name of the token file, which is also its content. Empty if rank 0 could not write it. */
struct token {
    char name[64];
};

static enum status write_token(const char *folder, struct token *token) {
    AUTO_FREE char *path = path_join(folder, "token"), *beside = path ? path_beside(path, file_temporary_prefix) : NULL;
    if (!beside) return STATUS_FAILED;
    snprintf(token->name, sizeof token->name, "%s", path_name(beside));
    return file_replace(beside, token->name, sizeof token->name);
}

static bool read_token(const char *path, const struct token *token) {
    AUTO_FREE char *text = NULL;
    size_t bytes;
    if (file_read(path, sizeof token->name, &text, &bytes) != STATUS_OK) return false;
    return bytes == sizeof token->name && memcmp(text, token->name, bytes) == 0;
}

static enum status find_token(const struct comm *comm, const char *folder, const struct token *token) {
    AUTO_FREE char *path = path_join(folder, token->name);
    if (!path) return STATUS_FAILED;
    bool found = read_token(path, token);
    for (int i = 1; i < LOOKS && !found; i++) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        found = read_token(path, token);
    }
    if (found) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: host %s does not see there what host %s writes", folder,
                     comm->host[comm->rank], comm->host[0]);
    return status_hint(STATUS_BAD_INPUT, "give a run's directory on a file system that all hosts share");
}

static void remove_token(const char *folder, const struct token *token) {
    AUTO_FREE char *path = path_join(folder, token->name);
    if (path) unlink(path);
}

enum status shared_folder_check(struct comm *comm, const char *folder) {
    struct token token = {""};
    if (mesh_ranks(&comm->mesh) == 1) return STATUS_OK;
    enum status status = comm_agree(comm, comm->rank == 0 ? write_token(folder, &token) : STATUS_OK);
    struct token written = token;
    if (status == STATUS_OK) status = comm_share(comm, &token, sizeof token);
    if (status == STATUS_OK) status = comm_agree(comm, find_token(comm, folder, &token));
    if (written.name[0]) remove_token(folder, &written);
    return status;
}

static int ranks_of(const struct joint_folder *folder) { return mesh_ranks(&folder->comm->mesh); }

enum status joint_folder_open(struct comm *comm, const char *parent, const char *name, uint64_t block_bytes,
                              struct joint_folder *out) {
    *out = (struct joint_folder){.comm = comm,
                                 .parent = mem_string(parent),
                                 .name = mem_string(name),
                                 .path = run_folder_temporary(parent, name),
                                 .block_bytes = block_bytes > 0 ? block_bytes : FILE_BLOCK_BYTES};
    out->manifest.block_bytes = out->block_bytes;
    return out->parent && out->name && out->path ? STATUS_OK : STATUS_FAILED;
}

static uint64_t count_blocks(const struct joint_folder *folder) {
    uint64_t blocks = 0;
    for (size_t f = 0; f < folder->file_count; f++)
        blocks += file_blocks(folder->files[f].bytes, folder->block_bytes);
    return blocks;
}

enum status joint_folder_add(struct joint_folder *folder, const char *name, struct safetensors_item *items,
                             struct safetensors_run *runs, size_t count) {
    struct joint_file file = {.items = items, .runs = runs, .count = count, .first_block = count_blocks(folder)};
    BUG_IF(folder->file_count == JOINT_FILES_MAX, "%s: too many files", name);
    file.path = path_join(folder->path, name);
    enum status status = file.path ? safetensors_measure(items, count, &file.bytes) : STATUS_FAILED;
    folder->files[folder->file_count++] = file;
    folder->has_runs |= runs != NULL;
    return status;
}

/* The byte range of the blocks of a file that a rank writes. */
static struct file_range range_of(const struct joint_folder *folder, const struct joint_file *file, int rank) {
    uint64_t all = count_blocks(folder), ranks = (uint64_t)ranks_of(folder), at = (uint64_t)rank;
    uint64_t first = all * at / ranks, end = all * (at + 1) / ranks, begin_block = file->first_block;
    uint64_t blocks = file_blocks(file->bytes, folder->block_bytes);
    uint64_t from = first < begin_block ? 0 : first - begin_block, to = end < begin_block ? 0 : end - begin_block;
    struct file_range range = {(from < blocks ? from : blocks) * folder->block_bytes,
                               (to < blocks ? to : blocks) * folder->block_bytes};
    if (range.begin > file->bytes) range.begin = file->bytes;
    if (range.end > file->bytes) range.end = file->bytes;
    return range;
}

static enum status make_folder(struct joint_folder *folder) {
    if (folder->comm->rank != 0) return STATUS_OK;
    TRY(folder_create_one(folder->parent)); /* but not a run's directory that was removed */
    TRY(run_folder_begin(folder->path));
    folder->made = true;
    return STATUS_OK;
}

/* All ranks return the first failure of any rank. After that, all ranks know of a failure. */
static enum status agree(struct joint_folder *folder, enum status mine) {
    enum status status = comm_agree(folder->comm, mine);
    folder->agreed = status != STATUS_OK;
    return status;
}

enum status joint_folder_begin(struct joint_folder *folder, enum status mine) {
    if (mine == STATUS_OK) mine = make_folder(folder);
    TRY(agree(folder, mine));
    for (size_t f = 0; f < folder->file_count; f++)
        folder->files[f].mine = range_of(folder, &folder->files[f], folder->comm->rank);
    return STATUS_OK;
}

/* Writes this rank's blocks with their checksums, or computes checksums of existing blocks. */
static enum status take_blocks(const struct joint_folder *folder, struct joint_file *file, bool writes) {
    if (file->mine.begin == file->mine.end) return STATUS_OK;
    TRY(file_sums_begin(&file->sums));
    file->sums.block_bytes = folder->block_bytes;
    TRY((writes ? safetensors_write_range : safetensors_sum_range)(file->path, file->items, file->count, &file->mine,
                                                                   &file->sums));
    return file_sums_end(&file->sums);
}

static enum status write_runs(const struct joint_folder *folder, const struct joint_file *file) {
    const struct safetensors_runs mine = {
        .items = file->items, .of = file->runs, .count = file->count, .head = folder->comm->rank == 0};
    return safetensors_write_runs(file->path, &mine);
}

enum status joint_folder_write(struct joint_folder *folder) {
    for (size_t f = 0; f < folder->file_count; f++) {
        struct joint_file *file = &folder->files[f];
        TRY(file->runs ? write_runs(folder, file) : take_blocks(folder, file, true));
    }
    return STATUS_OK;
}

enum status joint_folder_meet(struct joint_folder *folder, enum status mine) { return agree(folder, mine); }

enum status joint_folder_sum(struct joint_folder *folder) {
    for (size_t f = 0; f < folder->file_count; f++)
        if (folder->files[f].runs) TRY(take_blocks(folder, &folder->files[f], false));
    return STATUS_OK;
}

/* ---- results of the ranks ---- */

/* For each rank: the sums of its blocks, file by file, then `hashes`. */
struct findings {
    size_t max_blocks, hashes, each; /* each: values per rank */
    uint64_t *mine, *all;
};

static enum status findings_make(const struct joint_folder *folder, const uint64_t *hashes, size_t count,
                                 struct findings *out) {
    size_t ranks = (size_t)ranks_of(folder);
    *out = (struct findings){.max_blocks = (size_t)count_blocks(folder) / ranks + 1, .hashes = count};
    out->each = out->max_blocks + count;
    out->mine = mem_array(out->each, sizeof *out->mine);
    out->all = mem_array(ranks * out->each, sizeof *out->all);
    if (!out->mine || !out->all) return STATUS_FAILED;
    size_t at = 0;
    for (size_t f = 0; f < folder->file_count; f++) {
        const struct file_sums *sums = &folder->files[f].sums;
        if (sums->blocks.count > 0) memcpy(out->mine + at, sums->blocks.items, sums->blocks.count * sizeof *out->mine);
        at += sums->blocks.count;
    }
    if (count > 0) memcpy(out->mine + out->max_blocks, hashes, count * sizeof *hashes);
    return STATUS_OK;
}

static void findings_free(struct findings *findings) {
    mem_free(findings->mine);
    mem_free(findings->all);
}

/* The ranks' blocks of a file are contiguous. */
static enum status list_file(struct joint_folder *folder, const struct joint_file *file, const struct findings *found,
                             size_t *taken) {
    struct file_sums *sums;
    TRY(manifest_add(&folder->manifest, file->path, &sums));
    for (int rank = 0; rank < ranks_of(folder); rank++) {
        struct file_range range = range_of(folder, file, rank);
        size_t blocks = (size_t)file_blocks(range.end - range.begin, folder->block_bytes);
        const uint64_t *theirs = found->all + (size_t)rank * found->each + taken[rank];
        TRY(file_sums_append(sums, theirs, blocks, range.end - range.begin));
        taken[rank] += blocks;
    }
    return STATUS_OK;
}

static enum status list_files(struct joint_folder *folder, const struct findings *found) {
    AUTO_FREE size_t *taken = mem_array((size_t)ranks_of(folder), sizeof *taken);
    if (!taken) return STATUS_FAILED;
    for (size_t f = 0; f < folder->file_count; f++)
        TRY(list_file(folder, &folder->files[f], found, taken));
    return STATUS_OK;
}

static void take_hashes(const struct joint_folder *folder, const struct findings *found, uint64_t *hashes) {
    for (int rank = 0; rank < ranks_of(folder); rank++) {
        const uint64_t *theirs = found->all + (size_t)rank * found->each + found->max_blocks;
        for (size_t i = 0; i < found->hashes; i++)
            if (hashes[i] == 0) hashes[i] = theirs[i];
    }
}

/* Steps that may fail on one rank only come before the ranks agree, or are reported at the end. */
enum status joint_folder_gather(struct joint_folder *folder, enum status mine, uint64_t *hashes, size_t count) {
    struct comm_group all = comm_group_all(folder->comm);
    AUTO(findings_free) struct findings found = {0};
    if (mine == STATUS_OK) mine = findings_make(folder, hashes, count, &found);
    TRY(agree(folder, mine));
    TRY(comm_all_gather(folder->comm, &all, found.mine, found.each * sizeof *found.mine, found.all));
    take_hashes(folder, &found, hashes);
    return folder->comm->rank == 0 ? list_files(folder, &found) : STATUS_OK;
}

/* ---- end ---- */

enum status joint_folder_publish(struct joint_folder *folder) {
    if (folder->comm->rank != 0) return STATUS_OK;
    TRY(manifest_write(&folder->manifest, folder->path));
    folder->made = false;
    return run_folder_publish(folder->parent, folder->name, folder->path);
}

void joint_folder_drop(struct joint_folder *folder) {
    for (size_t f = 0; f < folder->file_count; f++) {
        mem_free(folder->files[f].path);
        mem_free(folder->files[f].items);
        mem_free(folder->files[f].runs);
        file_sums_free(&folder->files[f].sums);
    }
    manifest_free(&folder->manifest);
    mem_free(folder->parent);
    mem_free(folder->name);
    mem_free(folder->path);
    *folder = (struct joint_folder){0};
}

enum status joint_folder_end(struct joint_folder *folder, enum status mine) {
    bool agreed = folder->agreed, made = folder->made;
    if (mine != STATUS_OK && made) run_folder_abandon(folder->path);
    enum status status = agreed ? mine : comm_agree(folder->comm, mine);
    joint_folder_drop(folder);
    return status;
}
