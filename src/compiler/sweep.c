#include "compiler/sweep.h"

#include <string.h>

struct gap {
    int64_t begin, end;
};

/* Ascending and never touching; the last one has no end. */
struct gaps {
    VEC(struct gap) list;
};

static void remove_gap(struct gaps *gaps, size_t at) {
    gaps->list.count--;
    memmove(gaps->list.items + at, gaps->list.items + at + 1, (gaps->list.count - at) * sizeof *gaps->list.items);
}

static int64_t take(struct gaps *gaps, int64_t bytes) {
    size_t at = 0;
    while (gaps->list.items[at].end - gaps->list.items[at].begin < bytes)
        at++;
    struct gap *gap = &gaps->list.items[at];
    int64_t offset = gap->begin;
    gap->begin += bytes;
    if (gap->begin == gap->end) remove_gap(gaps, at);
    return offset;
}

static enum status give_back(struct gaps *gaps, int64_t begin, int64_t end) {
    size_t low = 0, high = gaps->list.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (gaps->list.items[middle].begin < begin)
            low = middle + 1;
        else
            high = middle;
    }
    bool joins_before = low > 0 && gaps->list.items[low - 1].end == begin;
    bool joins_after = low < gaps->list.count && gaps->list.items[low].begin == end;
    if (joins_before) {
        gaps->list.items[low - 1].end = joins_after ? gaps->list.items[low].end : end;
        if (joins_after) remove_gap(gaps, low);
        return STATUS_OK;
    }
    if (joins_after) {
        gaps->list.items[low].begin = begin;
        return STATUS_OK;
    }
    TRY(vec_reserve(&gaps->list, gaps->list.count + 1));
    memmove(gaps->list.items + low + 1, gaps->list.items + low, (gaps->list.count - low) * sizeof *gaps->list.items);
    gaps->list.items[low] = (struct gap){begin, end};
    gaps->list.count++;
    return STATUS_OK;
}

static int64_t bytes_of(const struct buffer *buffer, int64_t alignment) {
    return (buffer->bytes + alignment - 1) / alignment * alignment;
}

enum status sweep_place(struct buffer *const *by_first, struct buffer *const *by_last, size_t count, int64_t alignment,
                        int64_t base, int64_t *top) {
    struct gaps gaps = {0};
    enum status status = vec_push(&gaps.list, (struct gap){base, INT64_MAX});
    *top = base;
    for (size_t i = 0, dead = 0; i < count && status == STATUS_OK; i++) {
        for (; dead < count && by_last[dead]->last < by_first[i]->first && status == STATUS_OK; dead++)
            status =
                give_back(&gaps, by_last[dead]->offset, by_last[dead]->offset + bytes_of(by_last[dead], alignment));
        if (status != STATUS_OK) break;
        by_first[i]->offset = take(&gaps, bytes_of(by_first[i], alignment));
        int64_t end = by_first[i]->offset + bytes_of(by_first[i], alignment);
        if (end > *top) *top = end;
    }
    vec_free(&gaps.list);
    return status;
}
