/* What becomes of a run whose directory was renamed or removed while it trained: rank 0, which holds it open, finds or
 * makes another for all. */
#include "train/train_loop.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "session/checkpoint/run_folder.h"

bool run_is_in_place(const struct train_run *run) { return folder_is_at(run->folder, run->lock); }

/* The path of the open directory; NULL where it has none, or none that this process sees. */
static char *find_path(int folder) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return NULL;
    path[length] = '\0';
    return folder_is_at(path, folder) ? mem_string(path) : NULL;
}

/* A name for what is left of the run, next to its old one. */
static char *choose_name(const char *folder) {
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    char *name = mem_format("%.*s.rescued", (int)length, folder);
    if (!name || !file_exists(name)) return name;
    char *prefix = mem_format("%s-", path_name(name)), *other = prefix ? path_beside(name, prefix) : NULL;
    mem_free(prefix);
    mem_free(name);
    return other;
}

/* The new directory's lock takes the place of the old one's. */
static enum status begin_beside(struct train_run *run, const char *path) {
    int lock;
    TRY(run_folder_create(path, &run->settings, &lock));
    run_folder_unlock(run->lock);
    run->lock = lock;
    char *metrics = path_join(path, "metrics.jsonl");
    enum status status = metrics ? metrics_copy(&run->metrics, metrics) : STATUS_FAILED;
    mem_free(metrics);
    if (status == STATUS_OK && run->reference.values)
        status = reference_write(path, run->data.dataset, &run->reference);
    return status;
}

/* Checkpoints copy the tokenizer's files from the newest one before; where that is gone, from the model that the run
 * began with. */
static enum status move_model_folder(struct train_run *run, bool renamed) {
    struct model *model = run->session.model;
    char **moved = model->config.adapter.rank > 0 ? &model->adapter_folder : &model->folder;
    char *path = renamed && run->newest ? mem_format("%s/checkpoints/%s", run->folder, path_name(run->newest))
                                        : mem_string(run->settings.model_folder);
    if (!path) return STATUS_FAILED;
    mem_free(*moved);
    *moved = path;
    return STATUS_OK;
}

/* Of the rank that holds the directory's lock. */
static enum status find_place(struct train_run *run, bool *renamed, char **path) {
    *path = find_path(run->lock);
    *renamed = *path != NULL;
    if (!*renamed) *path = choose_name(run->folder);
    if (!*path) return STATUS_FAILED;
    return *renamed ? STATUS_OK : begin_beside(run, *path);
}

/* Rank 0's, for all, as text: whether the directory was renamed, and the path. */
static enum status share_place(struct train_run *run, bool *renamed, char **path) {
    struct comm *comm = run->session.comm;
    if (session_ranks(&run->session) == 1) return STATUS_OK;
    char *text = run_leads(run) ? mem_format("%d%s", *renamed, *path) : NULL;
    TRY(run_agree(run, text || !run_leads(run) ? STATUS_OK : STATUS_FAILED));
    enum status status = comm_share_text(comm, &text);
    if (status == STATUS_OK && !run_leads(run)) {
        *renamed = text[0] == '1';
        *path = mem_string(text + 1);
        status = *path ? STATUS_OK : STATUS_FAILED;
    }
    mem_free(text);
    return run_agree(run, status);
}

bool run_wants_rescue(const struct train_run *run) {
    struct comm *comm = run->session.comm;
    struct comm_group all = comm_group_all(comm);
    struct {
        bool displaced, sound;
    } mine = {run_leads(run) && !run_is_in_place(run), run->whole && !run->engine.partially_updated},
      wanted = {.sound = true}, *theirs = mem_array((size_t)all.count, sizeof mine);
    bool agreed = comm_agree(comm, theirs ? STATUS_OK : STATUS_FAILED) == STATUS_OK &&
                  comm_all_gather(comm, &all, &mine, sizeof mine, theirs) == STATUS_OK;
    for (int rank = 0; rank < all.count && agreed; rank++) {
        wanted.displaced |= theirs[rank].displaced;
        wanted.sound &= theirs[rank].sound;
    }
    mem_free(theirs);
    return agreed && wanted.displaced && wanted.sound;
}

enum status run_rescue(struct train_run *run, const char **how) {
    bool renamed = false;
    char *path = NULL;
    enum status status = run_agree(run, run_leads(run) ? find_place(run, &renamed, &path) : STATUS_OK);
    if (status == STATUS_OK) status = share_place(run, &renamed, &path);
    if (status != STATUS_OK) {
        mem_free(path);
        return STATUS_FAILED;
    }
    *how = renamed ? "renamed" : "removed";
    mem_free(run->rescued);
    run->folder = run->rescued = path;
    run->writer.source.run_folder = path;
    return run_agree(run, move_model_folder(run, renamed));
}
