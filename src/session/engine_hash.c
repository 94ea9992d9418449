/* Hashes of weights and optimizer state. */
#include <string.h>
#include <xxhash.h>

#include "session/engine.h"
#include "session/hash_relay.h"

static bool is_unknown(const struct tensor *tensor, const bool *skip, const uint64_t *hashes) {
    bool kept = tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
    return kept && hashes[tensor->id] == 0 && !(skip && skip[tensor->id]);
}

/* ---- What every rank has ---- */

/* The hash of bytes without an address, a piece at a time: the same as of all at once. */
static enum status hash_local(const struct engine *engine, const struct tensor *tensor, void *buffer, uint64_t *hash) {
    int64_t bytes = shape_bytes(&tensor->shape);
    XXH3_state_t *state = XXH3_createState();
    if (!state) return status_no_memory(0, "a hash");
    enum status status = STATUS_OK;
    XXH3_64bits_reset(state);
    for (int64_t at = 0; at < bytes && status == STATUS_OK; at += BYTE_STORE_PIECE) {
        int64_t count = bytes - at < BYTE_STORE_PIECE ? bytes - at : BYTE_STORE_PIECE;
        status = runner_read(engine->main, tensor, at, count, buffer);
        XXH3_64bits_update(state, buffer, (size_t)count);
    }
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

static bool is_whole(const struct engine *engine, const struct tensor *tensor, const bool *skip,
                     const uint64_t *hashes) {
    return is_unknown(tensor, skip, hashes) && !engine_is_cut(engine, tensor->kind);
}

static enum status hash_locals(const struct engine *engine, const bool *skip, uint64_t *hashes) {
    const struct graph *graph = engine_graph(engine);
    void *buffer = mem_array(BYTE_STORE_PIECE, 1);
    enum status status = buffer ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count && status == STATUS_OK; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (is_whole(engine, tensor, skip, hashes) && !runner_data(engine->main, tensor))
            status = hash_local(engine, tensor, buffer, &hashes[i]);
    }
    mem_free(buffer);
    return status;
}

enum status engine_hash_whole(const struct engine *engine, const bool *skip, uint64_t *hashes) {
    const struct graph *graph = engine_graph(engine);
    int64_t count = (int64_t)graph->tensors.count;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        const void *data = is_whole(engine, tensor, skip, hashes) ? runner_data(engine->main, tensor) : NULL;
        if (data) hashes[i] = XXH3_64bits(data, (size_t)shape_bytes(&tensor->shape));
    }
    return hash_locals(engine, skip, hashes);
}

/* ---- What ranks have together ---- */

/* Tensors of one kind. */
struct cut_tensors {
    struct hash_run *runs;
    uint64_t *hashes;
    size_t count;
};

/* Of stages, those that are equal share out what they have: the ranks that have all together are no plain group. */
static struct hash_run run_of(const struct engine *engine, const struct tensor *tensor) {
    struct safetensors_run run;
    int64_t element = dtype_bytes(tensor->shape.dtype);
    if (rank_place_pipeline_parallel(&engine->plan->chosen.place) > 1)
        run = engine_written_run(engine, tensor);
    else
        (void)runner_local_shard(engine->main, tensor, &run.first, &run.elements);
    return (struct hash_run){run.first * element, (run.first + run.elements) * element, tensor};
}

static enum status list_cut(const struct engine *engine, enum tensor_kind kind, const bool *skip,
                            const uint64_t *hashes, struct cut_tensors *out) {
    const struct graph *graph = engine_graph(engine);
    out->runs = mem_array(graph->tensors.count, sizeof *out->runs);
    out->hashes = mem_array(graph->tensors.count, sizeof *out->hashes);
    if (!out->runs || !out->hashes) return STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != kind || !is_unknown(tensor, skip, hashes)) continue;
        out->runs[out->count++] = run_of(engine, tensor);
    }
    return STATUS_OK;
}

static enum status relay_hashes(const struct engine *engine, enum tensor_kind kind, struct cut_tensors *cut,
                                uint64_t *hashes) {
    struct comm *comm = engine->plan->session->comm;
    struct comm_group all = comm_group_all(comm);
    int width = rank_place_pipeline_parallel(&engine->plan->chosen.place) > 1 ? all.count : engine_width(engine, kind);
    struct hash_relay relay = {.comm = comm,
                               .group = mesh_group_part(&all, comm->rank, width),
                               .mine = cut->runs,
                               .count = cut->count,
                               .store = engine->state_store};
    TRY(hash_relay_run(&relay, cut->hashes));
    for (size_t i = 0; i < cut->count; i++)
        hashes[((const struct tensor *)cut->runs[i].key)->id] = cut->hashes[i];
    return STATUS_OK;
}

static enum status hash_kind(const struct engine *engine, enum tensor_kind kind, const bool *skip, uint64_t *hashes) {
    struct cut_tensors cut = {.count = 0};
    if (!engine_is_cut(engine, kind)) return STATUS_OK;
    enum status status = comm_agree(engine->plan->session->comm, list_cut(engine, kind, skip, hashes, &cut));
    if (status == STATUS_OK) status = relay_hashes(engine, kind, &cut, hashes);
    mem_free(cut.runs);
    mem_free(cut.hashes);
    return status;
}

enum status engine_hash_cut(const struct engine *engine, const bool *skip, uint64_t *hashes) {
    TRY(hash_kind(engine, TENSOR_PARAMETER, skip, hashes));
    return hash_kind(engine, TENSOR_STATE, skip, hashes);
}

/* ---- All ---- */

static bool is_kept(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

/* Of weights and states in the graph's order: policies may have other tensors between and behind them. */
static enum status join(const struct graph *graph, const uint64_t *hashes, uint64_t *hash) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) return status_no_memory(0, "a hash");
    XXH3_64bits_reset(state);
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (is_kept(graph->tensors.items[i])) XXH3_64bits_update(state, &hashes[i], sizeof hashes[i]);
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return STATUS_OK;
}

bool engine_can_hash(const struct engine *engine) { return recipe_tensor_parallel(&engine->plan->chosen.recipe) == 1; }

/* By the ids that tensors have in the graph of ranks that share none. */
static enum status join_by_whole(const struct engine *engine, const struct graph *whole, const uint64_t *hashes,
                                 uint64_t *hash) {
    const struct graph *own = engine_graph(engine);
    uint64_t *by_whole = mem_array(whole->tensors.count, sizeof *by_whole);
    if (!by_whole) return STATUS_FAILED;
    for (size_t i = 0; i < own->tensors.count; i++)
        for (size_t w = 0; is_kept(own->tensors.items[i]) && w < whole->tensors.count; w++)
            if (whole->tensors.items[w]->kind == own->tensors.items[i]->kind &&
                strcmp(whole->tensors.items[w]->name, own->tensors.items[i]->name) == 0)
                by_whole[w] = hashes[i];
    enum status status = join(whole, by_whole, hash);
    mem_free(by_whole);
    return status;
}

enum status engine_join_hashes(const struct engine *engine, const uint64_t *hashes, uint64_t *hash) {
    struct graph *whole;
    if (engine_can_hash(engine)) return join(engine_graph(engine), hashes, hash);
    TRY(programs_build_whole(engine->plan->session, &engine->plan->request.set, &engine->plan->chosen, &whole));
    enum status status = join_by_whole(engine, whole, hashes, hash);
    graph_free(whole);
    return status;
}

static enum status hash_all(const struct engine *engine, uint64_t *hashes) {
    enum status status = hashes ? engine_hash_whole(engine, NULL, hashes) : STATUS_FAILED;
    if (engine_is_cut(engine, TENSOR_STATE)) status = comm_agree(engine->plan->session->comm, status);
    return status == STATUS_OK ? engine_hash_cut(engine, NULL, hashes) : status;
}

enum status engine_hash(const struct engine *engine, uint64_t *hash) {
    if (!engine_can_hash(engine))
        return status_set(STATUS_BAD_INPUT, "tensor-parallel: ranks that share tensors have no hash of all weights");
    uint64_t *hashes = mem_array(engine_graph(engine)->tensors.count, sizeof *hashes);
    enum status status = hash_all(engine, hashes);
    if (status == STATUS_OK) status = engine_join_hashes(engine, hashes, hash);
    mem_free(hashes);
    return status;
}
