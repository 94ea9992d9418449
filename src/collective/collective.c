#include "collective/collective.h"

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
