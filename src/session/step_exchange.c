#include "session/step_exchange.h"

#include <string.h>

struct step_entry {
    int64_t status, value; /* targets, or what the least is wanted of */
    double losses[];
};

enum { ENTRY_ALIGNMENT = 64 }; /* blocks of a gather */

static struct step_entry *entry_of(const struct step_exchange *exchange, int rank) {
    return (struct step_entry *)(exchange->entries + rank * exchange->entry_bytes);
}

static int ranks_of(const struct step_exchange *exchange) { return mesh_ranks(&exchange->comm->mesh); }

/* ---- Opening ---- */

/* Where the losses of the place's shares belong. */
static void find_places(const struct step_exchange *exchange, const struct lane_shares *shares, int64_t *places) {
    for (int64_t i = 0; i < exchange->slots; i++) {
        const struct lane_share *share = i < (int64_t)shares->list.count ? &shares->list.items[i] : NULL;
        places[i] = share && share->micro_batches > 0 ? share->round * exchange->tree.lanes + share->lane : -1;
    }
}

static enum status make_places(struct step_exchange *exchange, const struct lane_shares *shares) {
    size_t ranks = (size_t)ranks_of(exchange);
    for (size_t rank = 0; rank < ranks; rank++)
        if ((int64_t)shares[rank].list.count > exchange->slots) exchange->slots = (int64_t)shares[rank].list.count;
    exchange->places = mem_array(ranks * (size_t)exchange->slots, sizeof *exchange->places);
    exchange->by = mem_array((size_t)(shares->rounds * exchange->tree.lanes), sizeof *exchange->by);
    if (!exchange->places || !exchange->by) return STATUS_FAILED;
    for (size_t rank = 0; rank < ranks; rank++)
        find_places(exchange, &shares[rank], exchange->places + (int64_t)rank * exchange->slots);
    return STATUS_OK;
}

static enum status map_shares(struct step_exchange *exchange, const struct plan *plan) {
    struct rank_place place = plan->place;
    int ranks = ranks_of(exchange);
    struct lane_shares *shares = mem_array((size_t)ranks, sizeof *shares);
    if (!shares) return STATUS_FAILED;
    enum status status = lane_tree_of_shape(&exchange->recipe->lanes, &exchange->tree);
    for (place.rank = 0; place.rank < ranks && status == STATUS_OK; place.rank++)
        status = lane_shares_create(exchange->recipe, &place, &shares[place.rank]);
    if (status == STATUS_OK) status = make_places(exchange, shares);
    for (int rank = 0; rank < ranks; rank++)
        lane_shares_free(&shares[rank]);
    mem_free(shares);
    return status;
}

static enum status make_gather(struct step_exchange *exchange) {
    int64_t losses = exchange->slots * exchange->figures * (int64_t)sizeof(double);
    int64_t entry = (int64_t)sizeof(struct step_entry) + losses, staging;
    exchange->entry_bytes = (entry + ENTRY_ALIGNMENT - 1) / ENTRY_ALIGNMENT * ENTRY_ALIGNMENT;
    int64_t bytes = ranks_of(exchange) * exchange->entry_bytes;
    exchange->entries = mem_aligned(ENTRY_ALIGNMENT, (size_t)bytes);
    if (!exchange->entries) return STATUS_FAILED;
    memset(exchange->entries, 0, (size_t)bytes);
    struct comm_spec spec = {
        .kind = COMM_ALL_GATHER, .group = comm_group_all(exchange->comm), .data = exchange->entries, .bytes = bytes};
    TRY(comm_staging_bytes(exchange->comm, &spec, &staging));
    if (staging > 0) {
        exchange->staging = mem_aligned(ENTRY_ALIGNMENT, (size_t)(staging + ENTRY_ALIGNMENT - 1) / 64 * 64);
        if (!exchange->staging) return STATUS_FAILED;
    }
    spec.staging = exchange->staging;
    return comm_create(exchange->comm, &spec, &exchange->gather);
}

enum status step_exchange_open(struct comm *comm, const struct plan *plan, int figures, struct step_exchange *out) {
    *out = (struct step_exchange){.comm = comm, .recipe = &plan->recipe, .place = plan->place, .figures = figures};
    if (figures > 0) TRY(map_shares(out, plan));
    return make_gather(out);
}

void step_exchange_close(struct step_exchange *exchange) {
    comm_free(exchange->gather);
    mem_free(exchange->entries);
    mem_free(exchange->staging);
    mem_free(exchange->places);
    mem_free(exchange->by);
    lane_tree_free(&exchange->tree);
    *exchange = (struct step_exchange){.comm = NULL};
}

/* ---- Between steps ---- */

static enum status meet(struct step_exchange *exchange) {
    comm_start(exchange->gather);
    return comm_wait(exchange->gather);
}

static enum status gather_entry(struct step_exchange *exchange, enum status mine, int64_t value) {
    struct step_entry *entry = entry_of(exchange, exchange->comm->rank);
    entry->status = mine;
    entry->value = value;
    return meet(exchange);
}

/* An error's message is more than a word holds, and needs no speed. */
static enum status first_status(struct step_exchange *exchange, enum status mine) {
    enum status first = STATUS_OK;
    for (int rank = 0; rank < ranks_of(exchange); rank++) {
        enum status status = (enum status)entry_of(exchange, rank)->status;
        if (status != STATUS_OK && !status_is_stop(status))
            return comm_agree(exchange->comm, status_is_stop(mine) ? STATUS_OK : mine);
        if (first == STATUS_OK) first = status;
    }
    return first;
}

/* Ranks that differ along the other axes have the same rows. */
static bool counts_targets(const struct step_exchange *exchange, int rank) {
    struct rank_place place = exchange->place;
    place.rank = rank;
    return rank_place_tensor_rank(&place) == 0 && rank_place_stage(&place) == 0;
}

enum status step_exchange_targets(struct step_exchange *exchange, enum status mine, int64_t targets, int64_t *all) {
    TRY(gather_entry(exchange, mine, targets));
    *all = 0;
    for (int rank = 0; rank < ranks_of(exchange); rank++)
        *all += counts_targets(exchange, rank) ? entry_of(exchange, rank)->value : 0;
    return first_status(exchange, mine);
}

enum status step_exchange_agree(struct step_exchange *exchange, enum status mine) {
    TRY(gather_entry(exchange, mine, 0));
    return first_status(exchange, mine);
}

enum status step_exchange_min(struct step_exchange *exchange, enum status mine, int64_t value, int64_t *min) {
    TRY(gather_entry(exchange, mine, value));
    *min = value;
    for (int rank = 0; rank < ranks_of(exchange); rank++)
        if (entry_of(exchange, rank)->value < *min) *min = entry_of(exchange, rank)->value;
    return first_status(exchange, mine);
}

static int tensor_rank_of(const struct step_exchange *exchange, int rank) {
    struct rank_place place = exchange->place;
    place.rank = rank;
    return rank_place_tensor_rank(&place);
}

/* One figure of all shares, in its places. */
static void place_figure(struct step_exchange *exchange, int figure) {
    int64_t slots = exchange->slots;
    for (int rank = 0; rank < ranks_of(exchange); rank++)
        for (int64_t i = 0; i < slots; i++) {
            int64_t place = exchange->places[rank * slots + i];
            if (place < 0 || !group_axis_counts(exchange->loss_parts, tensor_rank_of(exchange, rank))) continue;
            double before = tensor_rank_of(exchange, rank) > 0 ? exchange->by[place] : 0;
            exchange->by[place] = before + entry_of(exchange, rank)->losses[i * exchange->figures + figure];
        }
}

enum status step_exchange_loss(struct step_exchange *exchange, const double *mine, double *all) {
    struct step_entry *entry = entry_of(exchange, exchange->comm->rank);
    int64_t slots = exchange->slots, figures = exchange->figures;
    for (int64_t i = 0; i < slots; i++)
        if (exchange->places[exchange->comm->rank * slots + i] >= 0)
            memcpy(entry->losses + i * figures, mine + i * figures, (size_t)figures * sizeof *mine);
    TRY(meet(exchange));
    for (int figure = 0; figure < figures; figure++) {
        place_figure(exchange, figure);
        all[figure] = lane_shares_total(exchange->recipe, &exchange->tree, exchange->by);
    }
    return STATUS_OK;
}
