#include "plan/shards.h"

enum { LEVELS = 4 };

/* The widths from the coarsest to the finest, each a multiple of the one before. */
static void list_widths(const struct partition *partition, int ranks, int widths[LEVELS]) {
    widths[0] = partition_width(partition->parameters);
    widths[1] = partition_width(partition->gradients);
    widths[2] = partition_width(partition->optimizer);
    widths[3] = ranks;
}

int shard_piece_of(const struct partition *partition, int ranks, int rank) {
    int widths[LEVELS], piece = 0, before = 1;
    list_widths(partition, ranks, widths);
    for (int level = 0; level < LEVELS; level++) {
        int parts = widths[level] / before;
        piece = piece * parts + rank / before % parts;
        before = widths[level];
    }
    return piece;
}

int64_t shard_piece_elements(const struct shard_cut *cut) {
    int64_t blocks = cut->elements / SHARD_BLOCK;
    return (blocks + cut->ranks - 1) / cut->ranks * SHARD_BLOCK;
}

int64_t shard_elements(const struct shard_cut *cut, int width) {
    int64_t elements = shard_piece_elements(cut) * (cut->ranks / width);
    return elements < cut->elements ? elements : cut->elements;
}

struct shard_range shard_range_of(const struct shard_cut *cut, int width, int rank) {
    int pieces = cut->ranks / width, first = shard_piece_of(&cut->partition, cut->ranks, rank) / pieces * pieces;
    struct shard_range range = {first * shard_piece_elements(cut), (first + pieces) * shard_piece_elements(cut)};
    if (range.begin > cut->elements) range.begin = cut->elements;
    if (range.end > cut->elements) range.end = cut->elements;
    return range;
}

struct comm_group shard_group(int rank, int coarse, int fine) {
    return (struct comm_group){.first = rank - rank % fine + rank % coarse, .stride = coarse, .count = fine / coarse};
}

struct comm_group shard_group_of(const struct rank_place *place, int coarse, int fine) {
    struct comm_group data = rank_place_data_group(place);
    struct comm_group part = shard_group(rank_place_data_rank(place), coarse, fine);
    return mesh_group_within(&data, &part);
}

void shard_owners(const struct partition *partition, int ranks, int rank, int coarse, int fine, int *owners) {
    struct comm_group group = shard_group(rank, coarse, fine);
    for (int position = 0; position < group.count; position++) {
        int piece = shard_piece_of(partition, ranks, mesh_group_rank(&group, position));
        owners[piece / (ranks / fine) % group.count] = position;
    }
}
