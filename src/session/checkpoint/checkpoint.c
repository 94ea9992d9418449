#include "session/checkpoint/checkpoint.h"

#include <xxhash.h>

#include "base/json.h"
#include "base/terminal.h"
#include "session/checkpoint/run_folder.h"

/* "step-00000100" */
enum { CHECKPOINT_NAME_BYTES = 32 };

enum { NAME_DIGITS = 8 };
static const char name_prefix[] = "step-";

/* Compares a checkpoint's files with its manifest, before any of them is used. */

static const char optimizer_name[] = "optimizer.safetensors";

static bool is_of_model(const char *name) { return strcmp(name, optimizer_name) != 0; }

static bool has_state(const char *folder) { return folder_holds(folder, checkpoint_state_name); }

/* Accepts a checkpoint without a manifest only if its version is too old to have one. */
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

/* All ranks return the first failure of any rank. */
static enum status agree(struct comm *comm, enum status mine) { return comm ? comm_agree(comm, mine) : mine; }

static enum status examine(const char *folder, bool (*wanted)(const char *name), struct manifest_share share,
                           struct checkpoint_examination *out) {
    AUTO(manifest_free) struct manifest manifest = {0};
    *out = (struct checkpoint_examination){.listed = manifest_exists(folder)};
    if (!out->listed) return has_state(folder) ? require_older(folder) : STATUS_OK;
    TRY(manifest_read(folder, &manifest));
    for (size_t i = 0; i < manifest.files.count; i++)
        out->bytes += manifest.files.items[i].sums.bytes;
    out->files = manifest.files.count;
    enum status status = manifest_verify(&manifest, folder, wanted, share, &out->findings);
    if (status == STATUS_OK && !wanted && has_state(folder))
        status = manifest_find_added(&manifest, folder, &out->findings);
    if (status != STATUS_OK) vec_free(&out->findings.items);
    return status;
}

enum status checkpoint_examine(const char *folder, struct checkpoint_examination *out) {
    return examine(folder, NULL, (struct manifest_share){0}, out);
}

/* Frees the findings. */
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

/* Sets state->base for this model. */
static enum status checkpoint_hash_base(const struct model *model, uint64_t *hash) {
    *hash = 0;
    if (model->config.adapter.rank == 0) return STATUS_OK;
    AUTO_FREE char *text = json_text(model->config_json, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) return STATUS_FAILED;
    *hash = XXH3_64bits(text, strlen(text));
    return STATUS_OK;
}

enum status checkpoint_verify_base(const struct checkpoint_state *state, const struct model *model) {
    uint64_t hash;
    TRY(checkpoint_hash_base(model, &hash));
    if (hash == state->base || state->base == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s/config.json: is not the one that the adapters were trained with",
                      model->folder);
}

/* Writes checkpoints, and a run's model. */

/* ---- The large files ---- */

/* The run of each item that this rank writes; any rank can read carried items. NULL without memory. */
static struct safetensors_run *list_runs(const struct engine *engine, const struct safetensors_item *items,
                                         size_t count) {
    struct safetensors_run *runs = mem_array(count, sizeof *runs);
    for (size_t i = 0; runs && i < count; i++)
        runs[i] = items[i].carried ? engine_share(engine, (struct safetensors_run){0, (int64_t)items[i].carried->bytes})
                                   : engine_written_run(engine, items[i].key);
    return runs;
}

/* Adds the next file of the directory. Takes over the items. */
static enum status add_file(const struct engine *engine, enum tensor_kind kind, const char *name,
                            struct safetensors_item *items, size_t count, struct joint_folder *folder) {
    bool cut = engine_is_cut(engine, kind);
    struct safetensors_run *runs = cut ? list_runs(engine, items, count) : NULL;
    if (!cut || runs) return joint_folder_add(folder, name, items, runs, count);
    mem_free(items);
    return STATUS_FAILED;
}

static enum status add_weights(const struct engine *engine, uint64_t *hashes, struct joint_folder *folder) {
    AUTO_FREE struct weight_target *targets = NULL;
    struct safetensors_item *items;
    int count;
    size_t item_count;
    TRY(engine_list_tensors(engine, TENSOR_PARAMETER, hashes, &targets, &count));
    TRY(model_list_items(engine_model(engine), targets, count, &items, &item_count));
    return add_file(engine, TENSOR_PARAMETER, model_weights_name(engine_model(engine)), items, item_count, folder);
}

static enum status add_optimizer(const struct engine *engine, uint64_t *hashes, struct joint_folder *folder) {
    AUTO_FREE struct weight_target *targets = NULL;
    int count;
    TRY(engine_list_tensors(engine, TENSOR_STATE, hashes, &targets, &count));
    struct safetensors_item *items = mem_array((size_t)count, sizeof *items);
    if (!items) return STATUS_FAILED;
    for (int i = 0; i < count; i++)
        items[i] = (struct safetensors_item){.name = targets[i].tensor->name,
                                             .shape = tensor_whole_shape(targets[i].tensor),
                                             .part = targets[i].tensor->part ? targets[i].tensor : NULL,
                                             .data = targets[i].data,
                                             .store = targets[i].store,
                                             .key = targets[i].stored_as,
                                             .hash = targets[i].hash};
    return add_file(engine, TENSOR_STATE, optimizer_name, items, (size_t)count, folder);
}

/* Rank 0: writes the model's small files. */
static enum status write_settings(const struct engine *engine, struct joint_folder *folder) {
    AUTO_FREE struct weight_target *targets = NULL;
    int count;
    if (folder->comm->rank != 0) return STATUS_OK;
    TRY(engine_list_tensors(engine, TENSOR_PARAMETER, NULL, &targets, &count));
    return model_write_settings(engine_model(engine), folder->path, targets, count, &folder->manifest);
}

/* ---- state.json ---- */

static void print_hash(uint64_t hash, char text[20]) { snprintf(text, 20, "%016" PRIx64, hash); }

static enum status write_state(const char *path, const struct checkpoint_state *state,
                               const struct train_options *options, struct manifest *manifest) {
    struct file_sums *sums;
    TRY(manifest_add(manifest, path, &sums));
    json_auto_t *plan = plan_to_json(&state->plan), *settings = train_options_to_json(options);
    char data[20], hash[20], base[20];
    print_hash(state->base, base);
    print_hash(state->data, data);
    print_hash(state->bits, hash);
    json_auto_t *object = NULL;
    if (plan && settings)
        object = json_pack("{s:i, s:I, s:I, s:f, s:s, s:s, s:{s:s}, s:O, s:O}", "version", CHECKPOINT_VERSION, "step",
                           (json_int_t)state->step, "tokens", (json_int_t)state->tokens, "loss", state->loss, "bits",
                           hash, "base", base, "data", "fingerprint", data, "options", settings, "plan", plan);
    return object ? json_write_summed(path, object, sums) : status_no_memory(0, "a checkpoint's state");
}

/* ---- A checkpoint ---- */

static enum status prefix_step(const struct checkpoint_saving *saving, enum status status) {
    if (status == STATUS_OK) return STATUS_OK;
    return status_prefix(status, "the checkpoint of step %" PRId64 " is not written", saving->state.step);
}

static enum status prepare(struct checkpoint_saving *saving) {
    const struct engine *engine = saving->source->engine;
    size_t tensors = engine_graph(engine)->tensors.count;
    char name[CHECKPOINT_NAME_BYTES], parent[RUN_PATH_BYTES];
    snprintf(name, sizeof name, "%s%0*" PRId64, name_prefix, NAME_DIGITS, saving->state.step);
    TRY(run_path(saving->source->run_folder, "checkpoints", parent));
    TRY(joint_folder_open(engine_comm(engine), parent, name, saving->source->block_bytes, &saving->folder));
    saving->path = path_join(parent, name);
    saving->hashes = mem_array(tensors, sizeof *saving->hashes);
    saving->written = mem_array(tensors, sizeof *saving->written);
    if (!saving->path || !saving->hashes || !saving->written) return STATUS_FAILED;
    TRY(add_weights(engine, saving->hashes, &saving->folder));
    return add_optimizer(engine, saving->hashes, &saving->folder);
}

static void mark_written(struct checkpoint_saving *saving) {
    for (size_t f = 0; f < saving->folder.file_count; f++)
        for (size_t i = 0; i < saving->folder.files[f].count; i++) {
            const uint64_t *hash = saving->folder.files[f].items[i].hash;
            if (hash) saving->written[hash - saving->hashes] = true; /* carried items have no hash */
        }
}

/* Hashes tensors that no file holds (an adapter's base). If ranks hold only runs of them, they make the hashes
 * together. */
static enum status begin_hashes(struct checkpoint_saving *saving) {
    const struct engine *engine = saving->source->engine;
    if (!engine_is_cut(engine, TENSOR_PARAMETER)) return STATUS_OK;
    return joint_folder_meet(&saving->folder, engine_hash_cut(engine, saving->written, saving->hashes));
}

enum status checkpoint_begin(const struct checkpoint_source *source, const struct checkpoint_state *state,
                             struct checkpoint_saving *out) {
    *out = (struct checkpoint_saving){.source = source, .state = *state, .folder.comm = engine_comm(source->engine)};
    enum status status = prepare(out);
    if (status == STATUS_OK) mark_written(out);
    TRY(prefix_step(out, joint_folder_begin(&out->folder, status)));
    return prefix_step(out, begin_hashes(out));
}

/* Reads the arena, in one pass and before all else. Each value is checked on its way, and hashed if this rank holds the
 * whole tensor. */
static enum status write_arena(struct checkpoint_saving *saving) {
    const struct checkpoint_source *source = saving->source;
    enum status status = joint_folder_write(&saving->folder);
    if (status == STATUS_OK && saving->folder.comm->rank == 0)
        status = engine_hash_whole(source->engine, saving->written, saving->hashes);
    if (source->released) source->released(source->payload);
    return status;
}

static enum status write_rest(struct checkpoint_saving *saving) {
    const struct checkpoint_source *source = saving->source;
    if (saving->folder.comm->rank != 0) return STATUS_OK;
    TRY(write_settings(source->engine, &saving->folder));
    TRY(checkpoint_hash_base(engine_model(source->engine), &saving->state.base));
    saving->state.data = dataset_fingerprint(source->dataset); /* the first call may read all text; steps continue
                                                                * meanwhile */
    return STATUS_OK;
}

enum status checkpoint_write_part(struct checkpoint_saving *saving) {
    enum status status = write_arena(saving);
    return prefix_step(saving, status == STATUS_OK ? write_rest(saving) : status);
}

enum status checkpoint_sum_part(struct checkpoint_saving *saving) {
    return prefix_step(saving, joint_folder_sum(&saving->folder));
}

enum status checkpoint_gather(struct checkpoint_saving *saving, enum status mine) {
    size_t tensors = engine_graph(saving->source->engine)->tensors.count;
    return joint_folder_gather(&saving->folder, mine, saving->hashes, tensors);
}

/* Later checkpoints copy tokenizer files from here. The directory that the model was read from may be an old checkpoint
 * that will be removed. */
static enum status move_model_folder(const struct checkpoint_saving *saving) {
    struct model *model = engine_model(saving->source->engine);
    /* An adapter stays with its base model. Only its own tokenizer moves. */
    char **moved = model->config.adapter.rank > 0 ? &model->adapter_folder : &model->folder;
    char *path = mem_string(saving->path);
    if (!path) return STATUS_FAILED;
    mem_free(*moved);
    *moved = path;
    return STATUS_OK;
}

static enum status publish(struct checkpoint_saving *saving) {
    const struct checkpoint_source *source = saving->source;
    char json[RUN_PATH_BYTES];
    TRY(engine_join_hashes(source->engine, saving->hashes, &saving->state.bits));
    TRY(run_path(saving->folder.path, checkpoint_state_name, json));
    TRY(write_state(json, &saving->state, source->options, &saving->folder.manifest));
    return joint_folder_publish(&saving->folder);
}

enum status checkpoint_publish(struct checkpoint_saving *saving) {
    const struct checkpoint_source *source = saving->source;
    if (saving->folder.comm->rank != 0) return STATUS_OK;
    TRY(prefix_step(saving, publish(saving)));
    TRY(move_model_folder(saving));
    /* The new checkpoint is published. Remains of old ones are removed with the next one, or on resume. */
    if (checkpoint_remove_old(source->run_folder, source->options->keep) != STATUS_OK)
        log_warning("an old checkpoint could not be removed: %s", status_message());
    return STATUS_OK;
}

enum status checkpoint_end(struct checkpoint_saving *saving, enum status mine, char **folder) {
    bool others = saving->folder.comm->rank != 0;
    enum status status = joint_folder_end(&saving->folder, mine);
    if (status == STATUS_OK && others) status = move_model_folder(saving);
    if (status == STATUS_OK) {
        *folder = saving->path;
        saving->path = NULL;
    }
    checkpoint_drop(saving);
    return status == STATUS_OK ? STATUS_OK : STATUS_FAILED;
}

void checkpoint_drop(struct checkpoint_saving *saving) {
    joint_folder_drop(&saving->folder);
    mem_free(saving->path);
    mem_free(saving->hashes);
    mem_free(saving->written);
    *saving = (struct checkpoint_saving){0};
}

/* ---- A model ---- */

static enum status write_parts(const struct engine *engine, struct joint_folder *folder) {
    TRY(joint_folder_write(folder));
    return write_settings(engine, folder);
}

static enum status write_model(const struct engine *engine, struct joint_folder *folder) {
    enum status status = write_parts(engine, folder);
    if (folder->has_runs) {
        TRY(joint_folder_meet(folder, status));
        status = joint_folder_sum(folder);
    }
    TRY(joint_folder_gather(folder, status, NULL, 0));
    manifest_keep(&folder->manifest, ".safetensors");
    return joint_folder_publish(folder);
}

enum status checkpoint_write_model(const char *run_folder, const struct engine *engine) {
    struct joint_folder folder;
    enum status status = joint_folder_open(engine_comm(engine), run_folder, "model", 0, &folder);
    if (status == STATUS_OK) status = add_weights(engine, NULL, &folder);
    status = joint_folder_begin(&folder, status);
    if (status == STATUS_OK) status = write_model(engine, &folder);
    return joint_folder_end(&folder, status);
}

enum { STATE_LIMIT_BYTES = 1 << 24 };
const char checkpoint_state_name[] = "state.json";

static bool is_checkpoint(const char *name) {
    size_t prefix = strlen(name_prefix), digits = strspn(name + (strlen(name) >= prefix ? prefix : 0), "0123456789");
    return strncmp(name, name_prefix, prefix) == 0 && digits >= NAME_DIGITS && name[prefix + digits] == '\0';
}

static int64_t step_of(const char *name) { return strtoll(name + strlen(name_prefix), NULL, 10); }

static int by_step(const void *left, const void *right) {
    int64_t a = step_of(*(char *const *)left), b = step_of(*(char *const *)right);
    return (a > b) - (a < b);
}

enum status checkpoint_list(const char *run_folder, struct names *out) {
    char folder[RUN_PATH_BYTES];
    *out = (struct names){0};
    TRY(run_path(run_folder, "checkpoints", folder));
    if (!file_exists(folder)) return STATUS_OK;
    TRY(folder_list(folder, out));
    size_t kept = 0;
    for (size_t i = 0; i < out->count; i++) {
        if (is_checkpoint(out->items[i]))
            out->items[kept++] = out->items[i];
        else
            mem_free(out->items[i]);
    }
    out->count = kept;
    if (kept > 0) qsort(out->items, kept, sizeof *out->items, by_step);
    return STATUS_OK;
}

enum status checkpoint_remove_old(const char *run_folder, int64_t keep) {
    char folder[RUN_PATH_BYTES];
    AUTO(names_free) struct names names = {0};
    if (keep == 0) return STATUS_OK;
    TRY(run_path(run_folder, "checkpoints", folder));
    TRY(checkpoint_list(run_folder, &names));
    for (size_t i = 0; i + (size_t)keep < names.count; i++)
        TRY(run_folder_drop(folder, names.items[i]));
    return STATUS_OK;
}

/* The checkpoint that `newer` others follow. */
static enum status find_checkpoint(const char *run_folder, size_t newer, char **out) {
    char folder[RUN_PATH_BYTES];
    AUTO(names_free) struct names names = {0};
    *out = NULL;
    TRY(run_path(run_folder, "checkpoints", folder));
    TRY(checkpoint_list(run_folder, &names));
    if (names.count <= newer) return STATUS_OK;
    *out = path_join(folder, names.items[names.count - 1 - newer]);
    return *out ? STATUS_OK : STATUS_FAILED;
}

enum status checkpoint_find_newest(const char *run_folder, char **out) { return find_checkpoint(run_folder, 0, out); }

enum status checkpoint_hint_older(enum status status, const char *run_folder, const char *newest) {
    AUTO_FREE char *older = NULL;
    struct status_copy failure;
    status_save(status, &failure);
    bool found = find_checkpoint(run_folder, 1, &older) == STATUS_OK && older;
    (void)status_restore(&failure);
    return found ? status_hint(status, "to go on from %s, remove %s", older, newest) : status;
}

static enum status read_hash(const char *file, const json_t *object, const char *path, const char *name,
                             uint64_t *out) {
    const char *text = json_string_value(json_object_get(object, name));
    if (text && sscanf(text, "%16" SCNx64, out) == 1) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s%s: must be 16 hexadecimal digits", file, path, name);
}

enum { OLDEST_VERSION = 3 }; /* as now, without manifest and bits */

static enum status read_version(const char *file, const json_t *object, int64_t *out) {
    TRY(json_read_version(file, object, CHECKPOINT_VERSION, out));
    if (*out >= OLDEST_VERSION) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT,
                     "%s: version: %" PRId64 " is from before Ballast 0.1.0, which read the data in another order",
                     file, *out);
    return status_hint(STATUS_BAD_INPUT, "the directory is a model: start a new run from it with `ballast train`");
}

static enum status state_from_json(const char *file, const json_t *object, struct checkpoint_state *out) {
    static const char *const required[] = {"version", "step", "tokens", "loss", "bits", "data", "plan"};
    struct checkpoint_state state = {0};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        TRY(json_require(file, object, required[i]));
    TRY(read_version(file, object, &state.version));
    TRY(json_read_int(file, object, "step", 0, INT64_MAX, &state.step));
    TRY(json_read_int(file, object, "tokens", 0, INT64_MAX, &state.tokens));
    TRY(json_read_double(file, object, "loss", -1e300, 1e300, &state.loss));
    const json_t *data = json_object_get(object, "data"), *plan = json_object_get(object, "plan");
    TRY(read_hash(file, object, "", "bits", &state.bits));
    if (state.version >= CHECKPOINT_FIRST_LISTED) TRY(read_hash(file, object, "", "base", &state.base));
    TRY(read_hash(file, data, "data.", "fingerprint", &state.data));
    if (!json_is_object(plan)) return status_set(STATUS_BAD_INPUT, "%s: plan: must be an object", file);
    TRY(plan_from_json(file, plan, &state.plan));
    *out = state;
    return STATUS_OK;
}

enum status checkpoint_read_state(const char *folder, struct checkpoint_state *out) {
    char file[RUN_PATH_BYTES];
    json_auto_t *object = NULL;
    TRY(run_path(folder, checkpoint_state_name, file));
    TRY(json_read_object(file, STATE_LIMIT_BYTES, &object));
    return state_from_json(file, object, out);
}
