/* A checkpoint's files against its manifest, before any of them is used. */
#include <string.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "session/checkpoint/checkpoint.h"

static bool is_of_model(const char *name) { return strcmp(name, checkpoint_optimizer_name) != 0; }

static bool has_state(const char *folder) { return folder_holds(folder, checkpoint_state_name); }

/* Before there were manifests, a checkpoint had none. */
static enum status require_older(const char *folder) {
    struct checkpoint_state state;
    TRY(checkpoint_read_state(folder, &state));
    if (state.version < CHECKPOINT_FIRST_LISTED) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: damaged: %s is missing", folder, manifest_name);
}

/* The blocks that this rank reads; NULL: all. */
static struct manifest_share share_of(const struct comm *comm) {
    return comm ? (struct manifest_share){comm->rank, mesh_ranks(&comm->mesh)} : (struct manifest_share){0};
}

/* What one rank finds all find. */
static enum status agree(struct comm *comm, enum status mine) { return comm ? comm_agree(comm, mine) : mine; }

static enum status examine(const char *folder, bool (*wanted)(const char *name), struct manifest_share share,
                           struct checkpoint_examination *out) {
    struct manifest manifest;
    *out = (struct checkpoint_examination){.listed = manifest_exists(folder)};
    if (!out->listed) return has_state(folder) ? require_older(folder) : STATUS_OK;
    TRY(manifest_read(folder, &manifest));
    for (size_t i = 0; i < manifest.files.count; i++)
        out->bytes += manifest.files.items[i].sums.bytes;
    out->files = manifest.files.count;
    enum status status = manifest_verify(&manifest, folder, wanted, share, &out->findings);
    if (status == STATUS_OK && !wanted && has_state(folder))
        status = manifest_find_added(&manifest, folder, &out->findings);
    manifest_free(&manifest);
    if (status != STATUS_OK) vec_free(&out->findings.items);
    return status;
}

enum status checkpoint_examine(const char *folder, struct checkpoint_examination *out) {
    return examine(folder, NULL, (struct manifest_share){0}, out);
}

/* Drops the findings. */
static enum status refuse_findings(const char *folder, struct manifest_findings *findings) {
    char text[MANIFEST_TEXT_BYTES];
    size_t count = findings->items.count;
    if (count > 0) manifest_finding_print(&findings->items.items[0], text);
    vec_free(&findings->items);
    if (count == 0) return STATUS_OK;
    if (count == 1) return status_set(STATUS_BAD_INPUT, "%s: damaged: %s", folder, text);
    return status_set(STATUS_BAD_INPUT, "%s: damaged: %s; and %zu more (ballast inspect --verify tells which)", folder,
                      text, count - 1);
}

static enum status verify_share(const struct comm *comm, const char *folder) {
    struct checkpoint_examination found;
    TRY(examine(folder, NULL, share_of(comm), &found));
    if (!found.listed && (!comm || comm->rank == 0))
        log_warning("%s: is of an older Ballast, without checksums: only its weights and optimizer state are checked",
                    folder);
    return refuse_findings(folder, &found.findings);
}

enum status checkpoint_verify(struct comm *comm, const char *folder) { return agree(comm, verify_share(comm, folder)); }

static enum status verify_model_folder(const struct comm *comm, const char *folder) {
    struct checkpoint_examination found;
    TRY(examine(folder, is_of_model, share_of(comm), &found));
    enum status status = refuse_findings(folder, &found.findings);
    if (status != STATUS_BAD_INPUT || has_state(folder)) return status;
    return status_hint(status, "if the change is meant, remove %s/%s", folder, manifest_name);
}

enum status checkpoint_verify_model(struct comm *comm, const char *folder, const struct model *model) {
    enum status status = folder ? verify_model_folder(comm, folder) : STATUS_OK;
    if (status == STATUS_OK && model->config.adapter.rank > 0) status = verify_model_folder(comm, model->folder);
    return agree(comm, status);
}

enum status checkpoint_hash_base(const struct model *model, uint64_t *hash) {
    *hash = 0;
    if (model->config.adapter.rank == 0) return STATUS_OK;
    char *text = json_text(model->config_json, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) return STATUS_FAILED;
    *hash = XXH3_64bits(text, strlen(text));
    mem_free(text);
    return STATUS_OK;
}

enum status checkpoint_verify_base(const struct checkpoint_state *state, const struct model *model) {
    uint64_t hash;
    TRY(checkpoint_hash_base(model, &hash));
    if (hash == state->base || state->base == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s/config.json: is not the one that the adapters were trained with",
                      model->folder);
}
