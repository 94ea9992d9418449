#include "collective/collective.h"

enum { BLOCK_ALIGNMENT = 64 };

struct comm_range comm_block(enum comm_kind kind, int64_t bytes, int count, int position) {
    int64_t each = (bytes + count - 1) / count;
    if (kind != COMM_ALL_TO_ALL) each = (each + BLOCK_ALIGNMENT - 1) / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT;
    int64_t begin = each * position, end = begin + each;
    return (struct comm_range){begin < bytes ? begin : bytes, end < bytes ? end : bytes};
}
