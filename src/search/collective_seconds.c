#include "search/collective_seconds.h"

#include "collective/comm_schedule.h"
#include "plan/shards.h"

/* What an operation works on, and its seconds. Chunks are of few sizes, and most operations alike. */
struct operation {
    enum comm_kind kind;
    int coarse, fine; /* shards of width `coarse` from those of width `fine` */
    int64_t bytes;
    double seconds;
};

struct measurer {
    const struct step_cut *cut;
    const struct partition *partition;
    bool flat;
    const struct cluster_rates *rates;
    struct lane_tree tree; /* of ranks */
    int *owners;
    VEC(struct operation) known;
};

static enum status measure(struct measurer *measurer, struct operation *operation, int64_t block_bytes) {
    const struct rank_place *place = &measurer->cut->place;
    int ranks = rank_place_data(place);
    bool sums = operation->kind != COMM_ALL_GATHER;
    shard_owners(measurer->partition, ranks, rank_place_data_rank(place), operation->coarse, operation->fine,
                 measurer->owners);
    const struct comm_spec spec = {.kind = operation->kind,
                                   .group = shard_group_of(place, operation->coarse, operation->fine),
                                   .bytes = operation->bytes,
                                   .in_place = place->in_place,
                                   .on_device = place->on_device,
                                   .round_bf16 = sums && measurer->cut->rounds_sums,
                                   .block_bytes = block_bytes,
                                   .owner = measurer->owners,
                                   .flat = measurer->flat && !place->on_device,
                                   .tree = sums ? &measurer->tree : NULL};
    struct comm_schedule schedule;
    TRY(comm_schedule_create(&place->mesh, place->rank, rank_place_message_bytes(place), &spec, &schedule));
    const struct program_collective collective = {.kind = operation->kind,
                                                  .group = spec.group,
                                                  .bytes = operation->bytes,
                                                  .round_bf16 = spec.round_bf16,
                                                  .traffic = schedule.traffic};
    operation->seconds =
        costs_collective_s(measurer->rates, place, measurer->flat, &collective) + measurer->rates->issue_s;
    comm_schedule_free(&schedule);
    return vec_push(&measurer->known, *operation);
}

/* Adds the operation's seconds. `bytes` of the rank's shard of width `coarse`, each finer one at most `block_bytes`. */
static enum status add(struct measurer *measurer, enum comm_kind kind, int coarse, int fine, int64_t bytes,
                       int64_t block_bytes, double *sum) {
    struct operation operation = {kind, coarse, fine, bytes, 0};
    if (coarse == fine || bytes == 0) return STATUS_OK;
    for (size_t i = 0; i < measurer->known.count; i++) {
        const struct operation *known = &measurer->known.items[i];
        if (known->kind == kind && known->coarse == coarse && known->fine == fine && known->bytes == bytes) {
            *sum += known->seconds;
            return STATUS_OK;
        }
    }
    TRY(measure(measurer, &operation, block_bytes));
    *sum += operation.seconds;
    return STATUS_OK;
}

/* A gather of the rank's shard of a chunk. */
static enum status add_gather(struct measurer *measurer, const struct shard_cut *cut, int coarse, int fine,
                              int64_t element_bytes, double *sum) {
    struct shard_range range = shard_range_of(cut, coarse, rank_place_data_rank(&measurer->cut->place));
    return add(measurer, COMM_ALL_GATHER, coarse, fine, (range.end - range.begin) * element_bytes,
               shard_piece_elements(cut) * (cut->ranks / fine) * element_bytes, sum);
}

static enum status add_chunk(struct measurer *measurer, const struct states *states, int32_t chunk, double *round_s,
                             struct collective_seconds *out) {
    const struct chunk_sum whole = chunk_sum_of(states->from, chunk);
    const struct shard_cut cut = {*measurer->partition, rank_place_data(&measurer->cut->place),
                                  states->chunks.chunks.items[chunk].elements};
    int p = cut.partition.parameters, g = cut.partition.gradients, o = cut.partition.optimizer;
    if (cut.elements == 0) return STATUS_OK;
    const struct chunk *packed = &states->chunks.chunks.items[chunk];
    int64_t parameter_bytes = dtype_bytes(states->chunks.parameters.items[packed->first]->shape.dtype);
    double gather_s = 0;
    TRY(add_gather(measurer, &cut, 1, p, parameter_bytes, &gather_s));
    out->gather_s += gather_s;
    if (states->read_again[chunk]) out->gather_again_s += gather_s;
    if (gather_s > out->largest_gather_s) out->largest_gather_s = gather_s;
    if (whole.summed == 0) return STATUS_OK;
    int64_t piece_bytes = shard_piece_elements(&cut) * (int64_t)sizeof(float);
    enum comm_kind kind = g > 1 ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE;
    TRY(add(measurer, kind, 1, cut.ranks, whole.summed, piece_bytes, round_s));
    if (g == 1) return add_gather(measurer, &cut, p, o, parameter_bytes, &out->once_s);
    TRY(add_gather(measurer, &cut, g, cut.ranks, (int64_t)sizeof(float), round_s));
    TRY(add(measurer, COMM_ALL_GATHER, 1, g, cut.elements / SHARD_BLOCK * (int64_t)sizeof(double),
            shard_piece_elements(&cut) / SHARD_BLOCK * (cut.ranks / g) * (int64_t)sizeof(double), &out->once_s));
    return add_gather(measurer, &cut, p, o, parameter_bytes, &out->once_s);
}

/* Without a partition sums are as long as their packs, and their blocks those of comm_block. */
static enum status add_reductions(struct measurer *measurer, const struct states *states, double *round_s) {
    int ranks = rank_place_data(&measurer->cut->place);
    for (size_t i = 0; i < states->gradients.count; i++)
        TRY(add(measurer, COMM_ALL_REDUCE, 1, ranks, states->gradients.items[i].summed, 0, round_s));
    return STATUS_OK;
}

static enum status open(struct measurer *measurer, int ranks) {
    struct lane_tree lanes;
    measurer->owners = mem_array((size_t)ranks, sizeof *measurer->owners);
    if (!measurer->owners) return STATUS_FAILED;
    TRY(lane_tree_of_shape(&measurer->cut->lanes, &lanes));
    enum status status = lane_tree_top(&lanes, ranks, &measurer->tree);
    lane_tree_free(&lanes);
    return status;
}

static enum status measure_all(struct measurer *measurer, const struct states *states, struct collective_seconds *out) {
    double round_s = 0;
    TRY(open(measurer, rank_place_data(&measurer->cut->place)));
    if (partition_cuts(measurer->partition))
        for (int32_t c = 0; c < states_count(states); c++)
            TRY(add_chunk(measurer, states, c, &round_s, out));
    else
        TRY(add_reductions(measurer, states, &round_s));
    out->reduce_s = round_s * (double)measurer->cut->reductions;
    return STATUS_OK;
}

enum status collective_seconds_measure(const struct step_cut *cut, const struct states *states,
                                       const struct partition *partition, bool flat, const struct cluster_rates *rates,
                                       struct collective_seconds *out) {
    const struct partition widths = {partition_width(partition->parameters), partition_width(partition->gradients),
                                     partition_width(partition->optimizer)};
    struct measurer measurer = {.cut = cut, .partition = &widths, .flat = flat, .rates = rates};
    *out = (struct collective_seconds){.reduce_s = 0};
    if (rank_place_data(&cut->place) == 1) return STATUS_OK;
    enum status status = measure_all(&measurer, states, out);
    lane_tree_free(&measurer.tree);
    mem_free(measurer.owners);
    vec_free(&measurer.known);
    return status;
}
