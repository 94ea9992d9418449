#define XXH_STATIC_LINKING_ONLY /* what a state is made of: it goes to other ranks */
#include "session/hash_relay.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

/* A state as it travels: without what points into this process. */
struct baton {
    unsigned char bytes[offsetof(XXH3_state_t, extSecret)];
};

/* Turn t of a thing: the rank that has its t-th run. */
struct relay {
    const struct hash_relay *request;
    size_t ranks, me;      /* of the group */
    struct hash_run *runs; /* [rank][number] */
    int32_t *order;        /* [number][turn]: the rank, -1 behind the last turn */
    size_t *used;          /* by rank */
    size_t max;            /* batons that a rank hands on in a turn */
    struct baton *states;  /* by number */
    struct baton *sent, *come;
    void *buffer; /* BYTE_STORE_PIECE */
    XXH3_state_t *state;
};

static int64_t begin_of(const struct relay *relay, int32_t rank, size_t i) {
    return relay->runs[(size_t)rank * relay->request->count + i].begin;
}

static int32_t rank_at(const struct relay *relay, size_t i, size_t turn) {
    return turn < relay->ranks ? relay->order[i * relay->ranks + turn] : -1;
}

/* Ranks that have something of a thing, by where it begins. */
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

/* How many things have such a turn. */
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

static enum status hash_bytes(struct relay *relay, const struct hash_run *run) {
    const struct byte_store *store = &relay->request->store;
    for (int64_t at = run->begin; at < run->end; at += BYTE_STORE_PIECE) {
        int64_t bytes = run->end - at < BYTE_STORE_PIECE ? run->end - at : BYTE_STORE_PIECE;
        TRY(store->read(store->payload, run->key, at, bytes, relay->buffer));
        XXH3_64bits_update(relay->state, relay->buffer, (size_t)bytes);
    }
    return STATUS_OK;
}

static void restore(struct relay *relay, const struct baton *baton) {
    XXH3_64bits_reset(relay->state);
    memcpy(relay->state, baton->bytes, sizeof baton->bytes);
}

/* This rank's part. */
static enum status take_turn(struct relay *relay, size_t turn) {
    struct baton *sent = relay->sent;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < relay->request->count; i++) {
        if (rank_at(relay, i, turn) != (int32_t)relay->me) continue;
        XXH3_64bits_reset(relay->state);
        if (turn > 0) restore(relay, &relay->states[i]);
        if (status == STATUS_OK) status = hash_bytes(relay, &relay->request->mine[i]);
        memcpy(sent++->bytes, relay->state, sizeof sent->bytes);
    }
    return status;
}

/* Each rank keeps all states: a thing's last one is its hash. */
static void keep_states(struct relay *relay, size_t turn) {
    memset(relay->used, 0, relay->ranks * sizeof *relay->used);
    for (size_t i = 0; i < relay->request->count; i++) {
        int32_t rank = rank_at(relay, i, turn);
        if (rank >= 0) relay->states[i] = relay->come[(size_t)rank * relay->max + relay->used[rank]++];
    }
}

/* Whether this rank's bytes can be read is told at the end: the others wait for its batons. */
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
        hashes[i] = XXH3_64bits_digest(relay->state);
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
    relay->state = XXH3_createState();
    bool made = relay->states && relay->sent && relay->come && relay->buffer && relay->state;
    return made ? STATUS_OK : status_no_memory(BYTE_STORE_PIECE, "hashes of tensors");
}

static void relay_free(struct relay *relay) {
    mem_free(relay->runs);
    mem_free(relay->order);
    mem_free(relay->used);
    mem_free(relay->states);
    mem_free(relay->sent);
    mem_free(relay->come);
    mem_free(relay->buffer);
    XXH3_freeState(relay->state);
}

enum status hash_relay_run(const struct hash_relay *request, uint64_t *hashes) {
    struct relay relay = {.request = request,
                          .ranks = (size_t)request->group.count,
                          .me = (size_t)mesh_group_position(&request->group, request->comm->rank)};
    enum status status;
    TRY_GOTO(status, comm_agree(request->comm, make_tables(&relay)), done);
    TRY_GOTO(status,
             comm_all_gather(request->comm, &request->group, request->mine, request->count * sizeof *request->mine,
                             relay.runs),
             done);
    plan_turns(&relay);
    TRY_GOTO(status, comm_agree(request->comm, make_batons(&relay)), done);
    status = run_turns(&relay, hashes);
done:
    relay_free(&relay);
    return status;
}
