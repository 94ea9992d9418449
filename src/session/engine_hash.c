/* Hashes of weights and optimizer state, including those cut across ranks. */
#define XXH_STATIC_LINKING_ONLY /* for the fields of a hash's state, which travels to other ranks */
#include "session/engine.h"

#include <xxhash.h>

/* A hash's state in transit, without pointers into this process. */
struct baton {
    unsigned char bytes[offsetof(XXH3_state_t, extSecret)];
};

/* Turn t of an object belongs to the rank that holds its t-th run. */
struct relay {
    const struct hash_relay *request;
    size_t ranks, me;      /* of the group */
    struct hash_run *runs; /* [rank][number] */
    int32_t *order;        /* [object][turn]: the rank, -1 past the last turn */
    size_t *used;          /* by rank */
    size_t max;            /* maximum batons that a rank passes on in a turn */
    struct baton *states;  /* by object */
    struct baton *sent, *come;
    void *buffer; /* BYTE_STORE_PIECE */
    XXH3_state_t state;
};

static int64_t begin_of(const struct relay *relay, int32_t rank, size_t i) {
    return relay->runs[(size_t)rank * relay->request->count + i].begin;
}

static int32_t rank_at(const struct relay *relay, size_t i, size_t turn) {
    return turn < relay->ranks ? relay->order[i * relay->ranks + turn] : -1;
}

/* Orders the ranks that hold parts of an object by the parts' begin. */
static void order_runs(struct relay *relay, size_t i) {
    int32_t *order = relay->order + i * relay->ranks;
    size_t turns = 0;
    for (size_t rank = 0; rank < relay->ranks; rank++) {
        const struct hash_run *run = &relay->runs[rank * relay->request->count + i];
        order[rank] = -1;
        if (run->begin == run->end) continue;
        size_t at = turns++;
        for (; at > 0 && begin_of(relay, order[at - 1], i) > run->begin; at--)
            order[at] = order[at - 1];
        order[at] = (int32_t)rank;
    }
}

/* The number of objects that have this turn. */
static size_t count_turn(struct relay *relay, size_t turn) {
    size_t things = 0;
    memset(relay->used, 0, relay->ranks * sizeof *relay->used);
    for (size_t i = 0; i < relay->request->count; i++) {
        int32_t rank = rank_at(relay, i, turn);
        if (rank < 0) continue;
        things++;
        if (++relay->used[rank] > relay->max) relay->max = relay->used[rank];
    }
    return things;
}

static void plan_turns(struct relay *relay) {
    for (size_t i = 0; i < relay->request->count; i++)
        order_runs(relay, i);
    for (size_t turn = 0; count_turn(relay, turn) > 0; turn++)
        ;
}

static enum status add_run(const struct byte_store *store, const struct hash_run *run, void *buffer,
                           XXH3_state_t *state) {
    for (int64_t at = run->begin; at < run->end; at += BYTE_STORE_PIECE) {
        int64_t bytes = run->end - at < BYTE_STORE_PIECE ? run->end - at : BYTE_STORE_PIECE;
        TRY(store->read(store->payload, run->key, at, bytes, buffer));
        XXH3_64bits_update(state, buffer, (size_t)bytes);
    }
    return STATUS_OK;
}

static void restore(struct relay *relay, const struct baton *baton) {
    XXH3_64bits_reset(&relay->state);
    memcpy(&relay->state, baton->bytes, sizeof baton->bytes);
}

/* This rank's part of the turn. */
static enum status take_turn(struct relay *relay, size_t turn) {
    struct baton *sent = relay->sent;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < relay->request->count; i++) {
        if (rank_at(relay, i, turn) != (int32_t)relay->me) continue;
        XXH3_64bits_reset(&relay->state);
        if (turn > 0) restore(relay, &relay->states[i]);
        if (status == STATUS_OK)
            status = add_run(&relay->request->store, &relay->request->mine[i], relay->buffer, &relay->state);
        memcpy(sent++->bytes, &relay->state, sizeof sent->bytes);
    }
    return status;
}

/* Each rank keeps all states. An object's last state is its hash. */
static void keep_states(struct relay *relay, size_t turn) {
    memset(relay->used, 0, relay->ranks * sizeof *relay->used);
    for (size_t i = 0; i < relay->request->count; i++) {
        int32_t rank = rank_at(relay, i, turn);
        if (rank >= 0) relay->states[i] = relay->come[(size_t)rank * relay->max + relay->used[rank]++];
    }
}

/* Reports at the end whether this rank's bytes can be read, since the others wait for its batons. */
static enum status run_turns(struct relay *relay, uint64_t *hashes) {
    const struct hash_relay *request = relay->request;
    enum status status = STATUS_OK;
    for (size_t turn = 0; count_turn(relay, turn) > 0; turn++) {
        enum status mine = take_turn(relay, turn);
        if (status == STATUS_OK) status = mine;
        TRY(comm_all_gather(request->comm, &request->group, relay->sent, relay->max * sizeof *relay->sent,
                            relay->come));
        keep_states(relay, turn);
    }
    for (size_t i = 0; i < request->count; i++) {
        restore(relay, &relay->states[i]);
        hashes[i] = XXH3_64bits_digest(&relay->state);
    }
    return status;
}

static enum status make_tables(struct relay *relay) {
    size_t cells = relay->ranks * relay->request->count;
    relay->runs = mem_array(cells, sizeof *relay->runs);
    relay->order = mem_array(cells, sizeof *relay->order);
    relay->used = mem_array(relay->ranks, sizeof *relay->used);
    return relay->runs && relay->order && relay->used ? STATUS_OK : STATUS_FAILED;
}

static enum status make_batons(struct relay *relay) {
    relay->states = mem_array(relay->request->count, sizeof *relay->states);
    relay->sent = mem_array(relay->max, sizeof *relay->sent);
    relay->come = mem_array(relay->ranks * relay->max, sizeof *relay->come);
    relay->buffer = mem_array(BYTE_STORE_PIECE, 1);
    return relay->states && relay->sent && relay->come && relay->buffer ? STATUS_OK : STATUS_FAILED;
}

static void relay_free(struct relay *relay) {
    mem_free(relay->runs);
    mem_free(relay->order);
    mem_free(relay->used);
    mem_free(relay->states);
    mem_free(relay->sent);
    mem_free(relay->come);
    mem_free(relay->buffer);
}

enum status hash_relay_run(const struct hash_relay *request, uint64_t *hashes) {
    AUTO(relay_free)
    struct relay relay = {.request = request,
                          .ranks = (size_t)request->group.count,
                          .me = (size_t)mesh_group_position(&request->group, request->comm->rank)};
    TRY(comm_agree(request->comm, make_tables(&relay)));
    TRY(comm_all_gather(request->comm, &request->group, request->mine, request->count * sizeof *request->mine,
                        relay.runs));
    plan_turns(&relay);
    TRY(comm_agree(request->comm, make_batons(&relay)));
    return run_turns(&relay, hashes);
}

static bool is_unknown(const struct tensor *tensor, const bool *skip, const uint64_t *hashes) {
    return engine_keeps(tensor) && hashes[tensor->id] == 0 && !(skip && skip[tensor->id]);
}

/* ---- tensors that every rank holds ---- */

/* Hashes bytes without an address piece by piece; the hash is that of all bytes. */
static enum status hash_local(const struct engine *engine, const struct tensor *tensor, void *buffer, uint64_t *hash) {
    const struct hash_run all = {0, shape_bytes(&tensor->shape), tensor};
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    TRY(add_run(&engine->state_store, &all, buffer, &state));
    *hash = XXH3_64bits_digest(&state);
    return STATUS_OK;
}

static bool is_whole(const struct engine *engine, const struct tensor *tensor, const bool *skip,
                     const uint64_t *hashes) {
    return is_unknown(tensor, skip, hashes) && !engine_is_cut(engine, tensor->kind);
}

static enum status hash_locals(const struct engine *engine, const bool *skip, uint64_t *hashes) {
    const struct graph *graph = engine_graph(engine);
    AUTO_FREE void *buffer = mem_array(BYTE_STORE_PIECE, 1);
    if (!buffer) return STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (is_whole(engine, tensor, skip, hashes) && !runner_data(engine->main, tensor))
            TRY(hash_local(engine, tensor, buffer, &hashes[i]));
    }
    return STATUS_OK;
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

/* ---- tensors that are cut across ranks ---- */

/* Tensors of one kind. */
struct cut_tensors {
    struct hash_run *runs;
    uint64_t *hashes;
    size_t count;
};

static void cut_tensors_free(struct cut_tensors *cut) {
    mem_free(cut->runs);
    mem_free(cut->hashes);
}

/* Stages that hold the same tensors share the work: the ranks that together hold all of them are not a plain group. */
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
    AUTO(cut_tensors_free) struct cut_tensors cut = {.count = 0};
    if (!engine_is_cut(engine, kind)) return STATUS_OK;
    TRY(comm_agree(engine->plan->session->comm, list_cut(engine, kind, skip, hashes, &cut)));
    return relay_hashes(engine, kind, &cut, hashes);
}

enum status engine_hash_cut(const struct engine *engine, const bool *skip, uint64_t *hashes) {
    TRY(hash_kind(engine, TENSOR_PARAMETER, skip, hashes));
    return hash_kind(engine, TENSOR_STATE, skip, hashes);
}

/* ---- All ---- */

/* Joins hashes of weights and states in the graph's order. Policies may put other tensors between and after them. */
static uint64_t join(const struct graph *graph, const uint64_t *hashes) {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (engine_keeps(graph->tensors.items[i])) XXH3_64bits_update(&state, &hashes[i], sizeof hashes[i]);
    return XXH3_64bits_digest(&state);
}

bool engine_can_hash(const struct engine *engine) { return recipe_tensor_parallel(&engine->plan->chosen.recipe) == 1; }

enum status engine_join_hashes(const struct engine *engine, const uint64_t *hashes, uint64_t *hash) {
    const struct graph *own = engine_graph(engine);
    AUTO(graph_release) struct graph *whole = NULL;
    if (engine_can_hash(engine)) {
        *hash = join(own, hashes);
        return STATUS_OK;
    }
    /* Uses tensor ids of the graph without tensor parallelism. */
    TRY(programs_build_whole(engine->plan->session, &engine->plan->request.set, &engine->plan->chosen, &whole));
    AUTO_FREE uint64_t *by_whole = mem_array(whole->tensors.count, sizeof *by_whole);
    if (!by_whole) return STATUS_FAILED;
    for (size_t i = 0; i < own->tensors.count; i++)
        for (size_t w = 0; engine_keeps(own->tensors.items[i]) && w < whole->tensors.count; w++)
            if (whole->tensors.items[w]->kind == own->tensors.items[i]->kind &&
                strcmp(whole->tensors.items[w]->name, own->tensors.items[i]->name) == 0)
                by_whole[w] = hashes[i];
    *hash = join(whole, by_whole);
    return STATUS_OK;
}

static enum status hash_all(const struct engine *engine, uint64_t *hashes) {
    enum status status = hashes ? engine_hash_whole(engine, NULL, hashes) : STATUS_FAILED;
    if (engine_is_cut(engine, TENSOR_STATE)) status = comm_agree(engine->plan->session->comm, status);
    return status == STATUS_OK ? engine_hash_cut(engine, NULL, hashes) : status;
}

enum status engine_hash(const struct engine *engine, uint64_t *hash) {
    if (!engine_can_hash(engine))
        return status_set(STATUS_BAD_INPUT, "tensor-parallel: ranks that share tensors have no hash of all weights");
    AUTO_FREE uint64_t *hashes = mem_array(engine_graph(engine)->tensors.count, sizeof *hashes);
    TRY(hash_all(engine, hashes));
    return engine_join_hashes(engine, hashes, hash);
}
