#include "session/engine.h"

#include <math.h>

#include "ir/ops/ops.h"

struct step_entry {
    int64_t status, value; /* targets, or the value to minimize */
    double losses[];
};

enum { ENTRY_ALIGNMENT = 64 }; /* blocks of a gather */

static struct step_entry *entry_of(const struct step_collectives *collectives, int rank) {
    return (struct step_entry *)(collectives->entries + rank * collectives->entry_bytes);
}

static int ranks_of(const struct step_collectives *collectives) { return mesh_ranks(&collectives->comm->mesh); }

/* ---- Opening ---- */

/* Where the losses of the place's shares belong. */
static void find_places(const struct step_collectives *collectives, const struct lane_shares *shares, int64_t *places) {
    for (int64_t i = 0; i < collectives->slots; i++) {
        const struct lane_share *share = i < (int64_t)shares->list.count ? &shares->list.items[i] : NULL;
        places[i] = share && share->micro_batches > 0 ? share->round * collectives->tree.lanes + share->lane : -1;
    }
}

static enum status make_places(struct step_collectives *collectives, const struct lane_shares *shares) {
    size_t ranks = (size_t)ranks_of(collectives);
    for (size_t rank = 0; rank < ranks; rank++)
        if ((int64_t)shares[rank].list.count > collectives->slots)
            collectives->slots = (int64_t)shares[rank].list.count;
    collectives->places = mem_array(ranks * (size_t)collectives->slots, sizeof *collectives->places);
    collectives->by = mem_array((size_t)(shares->rounds * collectives->tree.lanes), sizeof *collectives->by);
    if (!collectives->places || !collectives->by) return STATUS_FAILED;
    for (size_t rank = 0; rank < ranks; rank++)
        find_places(collectives, &shares[rank], collectives->places + (int64_t)rank * collectives->slots);
    return STATUS_OK;
}

static enum status map_shares(struct step_collectives *collectives, const struct plan *plan) {
    struct rank_place place = plan->place;
    int ranks = ranks_of(collectives);
    AUTO_FREE struct lane_shares *shares = mem_array((size_t)ranks, sizeof *shares);
    if (!shares) return STATUS_FAILED;
    enum status status = lane_tree_of_shape(&collectives->recipe->lanes, &collectives->tree);
    for (place.rank = 0; place.rank < ranks && status == STATUS_OK; place.rank++)
        status = lane_shares_create(collectives->recipe, &place, &shares[place.rank]);
    if (status == STATUS_OK) status = make_places(collectives, shares);
    for (int rank = 0; rank < ranks; rank++)
        lane_shares_free(&shares[rank]);
    return status;
}

static enum status make_gather(struct step_collectives *collectives) {
    int64_t losses = collectives->slots * collectives->figures * (int64_t)sizeof(double);
    int64_t entry = (int64_t)sizeof(struct step_entry) + losses, staging;
    collectives->entry_bytes = (entry + ENTRY_ALIGNMENT - 1) / ENTRY_ALIGNMENT * ENTRY_ALIGNMENT;
    int64_t bytes = ranks_of(collectives) * collectives->entry_bytes;
    collectives->entries = mem_aligned(ENTRY_ALIGNMENT, (size_t)bytes);
    if (!collectives->entries) return STATUS_FAILED;
    memset(collectives->entries, 0, (size_t)bytes);
    struct comm_spec spec = {.kind = COMM_ALL_GATHER,
                             .group = comm_group_all(collectives->comm),
                             .data = collectives->entries,
                             .bytes = bytes};
    TRY(comm_staging_bytes(collectives->comm, &spec, &staging));
    if (staging > 0) {
        collectives->staging = mem_aligned(ENTRY_ALIGNMENT, (size_t)(staging + ENTRY_ALIGNMENT - 1) / 64 * 64);
        if (!collectives->staging) return STATUS_FAILED;
    }
    spec.staging = collectives->staging;
    return comm_create(collectives->comm, &spec, &collectives->gather);
}

enum status step_collectives_open(struct comm *comm, const struct plan *plan, int figures,
                                  struct step_collectives *out) {
    *out = (struct step_collectives){.comm = comm, .recipe = &plan->recipe, .place = plan->place, .figures = figures};
    if (figures > 0) TRY(map_shares(out, plan));
    return make_gather(out);
}

void step_collectives_close(struct step_collectives *collectives) {
    comm_free(collectives->gather);
    mem_free(collectives->entries);
    mem_free(collectives->staging);
    mem_free(collectives->places);
    mem_free(collectives->by);
    lane_tree_free(&collectives->tree);
    *collectives = (struct step_collectives){.comm = NULL};
}

/* ---- Between steps ---- */

static enum status meet(struct step_collectives *collectives) {
    comm_start(collectives->gather);
    return comm_wait(collectives->gather);
}

static enum status gather_entry(struct step_collectives *collectives, enum status mine, int64_t value) {
    struct step_entry *entry = entry_of(collectives, collectives->comm->rank);
    entry->status = mine;
    entry->value = value;
    return meet(collectives);
}

/* An error's message is longer than an entry and needs no speed. */
static enum status first_status(struct step_collectives *collectives, enum status mine) {
    enum status first = STATUS_OK;
    for (int rank = 0; rank < ranks_of(collectives); rank++) {
        enum status status = (enum status)entry_of(collectives, rank)->status;
        if (status != STATUS_OK && !status_is_stop(status))
            return comm_agree(collectives->comm, status_is_stop(mine) ? STATUS_OK : mine);
        if (first == STATUS_OK) first = status;
    }
    return first;
}

/* Ranks that differ along the other axes have the same rows. */
static bool counts_targets(const struct step_collectives *collectives, int rank) {
    struct rank_place place = collectives->place;
    place.rank = rank;
    return rank_place_tensor_rank(&place) == 0 && rank_place_stage(&place) == 0;
}

enum status step_collectives_targets(struct step_collectives *collectives, enum status mine, int64_t targets,
                                     int64_t *all) {
    TRY(gather_entry(collectives, mine, targets));
    *all = 0;
    for (int rank = 0; rank < ranks_of(collectives); rank++)
        *all += counts_targets(collectives, rank) ? entry_of(collectives, rank)->value : 0;
    return first_status(collectives, mine);
}

enum status step_collectives_agree(struct step_collectives *collectives, enum status mine) {
    TRY(gather_entry(collectives, mine, 0));
    return first_status(collectives, mine);
}

enum status step_collectives_min(struct step_collectives *collectives, enum status mine, int64_t value, int64_t *min) {
    TRY(gather_entry(collectives, mine, value));
    *min = value;
    for (int rank = 0; rank < ranks_of(collectives); rank++)
        if (entry_of(collectives, rank)->value < *min) *min = entry_of(collectives, rank)->value;
    return first_status(collectives, mine);
}

static int tensor_rank_of(const struct step_collectives *collectives, int rank) {
    struct rank_place place = collectives->place;
    place.rank = rank;
    return rank_place_tensor_rank(&place);
}

/* Places one figure of all shares. */
static void place_figure(struct step_collectives *collectives, int figure) {
    int64_t slots = collectives->slots;
    for (int rank = 0; rank < ranks_of(collectives); rank++)
        for (int64_t i = 0; i < slots; i++) {
            int64_t place = collectives->places[rank * slots + i];
            if (place < 0 || !group_axis_counts(collectives->loss_parts, tensor_rank_of(collectives, rank))) continue;
            double before = tensor_rank_of(collectives, rank) > 0 ? collectives->by[place] : 0;
            collectives->by[place] = before + entry_of(collectives, rank)->losses[i * collectives->figures + figure];
        }
}

enum status step_collectives_loss(struct step_collectives *collectives, const double *mine, double *all) {
    struct step_entry *entry = entry_of(collectives, collectives->comm->rank);
    int64_t slots = collectives->slots, figures = collectives->figures;
    for (int64_t i = 0; i < slots; i++)
        if (collectives->places[collectives->comm->rank * slots + i] >= 0)
            memcpy(entry->losses + i * figures, mine + i * figures, (size_t)figures * sizeof *mine);
    TRY(meet(collectives));
    for (int figure = 0; figure < figures; figure++) {
        place_figure(collectives, figure);
        all[figure] = lane_shares_total(collectives->recipe, &collectives->tree, collectives->by);
    }
    return STATUS_OK;
}

static int64_t count_layers(const struct graph *graph) {
    int64_t layers = 0;
    for (size_t n = 0; n < graph->nodes.count; n++)
        layers += graph->nodes.items[n]->op == &op_count_slots;
    return layers;
}

/* Finds them from the last layer to the first, as in the backward pass. */
static void find_results(const struct graph *graph, struct expert_counts *counts) {
    int64_t layer = counts->layers;
    for (size_t n = 0; n < graph->nodes.count; n++)
        if (graph->nodes.items[n]->op == &op_count_slots) counts->results[--layer] = graph->nodes.items[n]->out[0];
    counts->experts = shape_elements(&counts->results[0]->shape);
}

enum status expert_counts_open(const struct graph *graph, const struct comm *comm, struct expert_counts *out) {
    *out = (struct expert_counts){.layers = count_layers(graph)};
    if (out->layers == 0) return STATUS_OK;
    out->results = mem_array((size_t)out->layers, sizeof *out->results);
    if (!out->results) return STATUS_FAILED;
    find_results(graph, out);
    size_t elements = (size_t)(out->layers * out->experts);
    out->of = mem_array(elements, sizeof *out->of);
    out->every = mem_array(elements * (size_t)mesh_ranks(&comm->mesh), sizeof *out->every);
    return out->of && out->every ? STATUS_OK : STATUS_FAILED;
}

void expert_counts_close(struct expert_counts *counts) {
    mem_free(counts->results);
    mem_free(counts->of);
    mem_free(counts->every);
    *counts = (struct expert_counts){0};
}

/* Adds the counts of this rank's shares. */
static void add_shares(const struct expert_counts *counts, const struct runner *runner, int64_t shares, double *out) {
    memset(out, 0, (size_t)(counts->layers * counts->experts) * sizeof *out);
    for (int64_t layer = 0; layer < counts->layers; layer++) {
        const double *made = runner_data(runner, counts->results[layer]);
        for (int64_t i = 0; i < shares * counts->experts; i++)
            out[layer * counts->experts + i % counts->experts] += made[i];
    }
}

enum status expert_counts_collect(struct expert_counts *counts, const struct runner *runner, struct comm *comm,
                                  int64_t shares, bool counts_once) {
    const struct comm_group all = comm_group_all(comm);
    int64_t elements = counts->layers * counts->experts;
    if (elements == 0) return STATUS_OK;
    add_shares(counts, runner, counts_once ? shares : 0, counts->of);
    TRY(comm_all_gather(comm, &all, counts->of, (size_t)elements * sizeof *counts->of, counts->every));
    for (int64_t i = 0; i < elements; i++) {
        counts->of[i] = 0;
        for (int rank = 0; rank < all.count; rank++)
            counts->of[i] += counts->every[rank * elements + i];
    }
    return STATUS_OK;
}

struct expert_spread expert_counts_spread(const struct expert_counts *counts) {
    struct expert_spread spread = {INFINITY, 0};
    for (int64_t layer = 0; layer < counts->layers; layer++) {
        const double *of = counts->of + layer * counts->experts;
        double sum = 0;
        for (int64_t e = 0; e < counts->experts; e++)
            sum += of[e];
        for (int64_t e = 0; e < counts->experts && sum > 0; e++) {
            double part = of[e] * (double)counts->experts / sum;
            spread.min = fmin(spread.min, part);
            spread.max = fmax(spread.max, part);
        }
    }
    return spread;
}
