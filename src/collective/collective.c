#include "collective/collective.h"

struct comm_group mesh_group(const struct mesh *mesh, int rank, enum mesh_group_kind kind) {
    int node = mesh_node(mesh, rank), place = rank % mesh->per_node;
    if (kind == MESH_NODE) return (struct comm_group){node * mesh->per_node, 1, mesh->per_node};
    if (kind == MESH_PEERS) return (struct comm_group){place, mesh->per_node, mesh->nodes};
    return (struct comm_group){0, 1, mesh_ranks(mesh)};
}

int mesh_group_position(const struct comm_group *group, int rank) {
    int distance = rank - group->first;
    if (distance < 0 || distance % group->stride != 0 || distance / group->stride >= group->count) return -1;
    return distance / group->stride;
}

struct comm_group mesh_group_part(const struct comm_group *group, int rank, int width) {
    int first = mesh_group_position(group, rank) / width * width;
    return (struct comm_group){mesh_group_rank(group, first), group->stride, width};
}

struct comm_group mesh_group_pair(int a, int b) {
    return a < b ? (struct comm_group){a, b - a, 2} : (struct comm_group){b, a - b, 2};
}

struct comm_group mesh_group_within(const struct comm_group *outer, const struct comm_group *inner) {
    return (struct comm_group){mesh_group_rank(outer, inner->first), outer->stride * inner->stride, inner->count};
}

int mesh_group_per_node(const struct mesh *mesh, const struct comm_group *group) {
    int in_first = 0;
    while (in_first < group->count &&
           mesh_node(mesh, mesh_group_rank(group, in_first)) == mesh_node(mesh, group->first))
        in_first++;
    if (group->count % in_first != 0) return 0;
    for (int i = 0; i < group->count; i++) { /* each run of so many ranks is one node's */
        int node = mesh_node(mesh, mesh_group_rank(group, i));
        if (i % in_first != 0 && node != mesh_node(mesh, mesh_group_rank(group, i - 1))) return 0;
        if (i > 0 && i % in_first == 0 && node == mesh_node(mesh, mesh_group_rank(group, i - 1))) return 0;
    }
    return in_first;
}

enum { BLOCK_ALIGNMENT = 64 };

struct comm_range comm_block(enum comm_kind kind, int64_t bytes, int count, int position) {
    int64_t each = (bytes + count - 1) / count;
    if (kind != COMM_ALL_TO_ALL) each = (each + BLOCK_ALIGNMENT - 1) / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT;
    int64_t begin = each * position, end = begin + each;
    return (struct comm_range){begin < bytes ? begin : bytes, end < bytes ? end : bytes};
}

struct comm_range comm_spec_block(const struct comm_spec *spec, int block) {
    int64_t each = spec->block_bytes, bytes = spec->bytes;
    if (spec->kind == COMM_BROADCAST) return (struct comm_range){0, bytes};
    if (each <= 0) return comm_block(spec->kind, bytes, spec->group.count, block);
    int64_t begin = each * block, end = begin + each;
    return (struct comm_range){begin < bytes ? begin : bytes, end < bytes ? end : bytes};
}
