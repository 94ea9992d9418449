#include "program/segments.h"

#include <stdlib.h>

static int compare_borders(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t padded_end(const struct program *program, const struct buffer *buffer) {
    return buffer->offset + program_moved_bytes(program, buffer->bytes);
}

/* Slices of an input (which programs only read) and columns count as their whole buffer: letting two streams fill the
 * columns of one buffer unordered would gain nothing. An operand that ends with its buffer includes the padding after
 * it, which copies to and from the disk move too. */
static void find_bytes(const struct program *program, const struct operand *operand, int64_t *begin, int64_t *end) {
    const struct buffer *buffer = &program->buffers.items[operand->buffer];
    bool whole = operand->stride || operand->row_bytes;
    *begin = buffer->offset + (whole ? 0 : operand->offset);
    *end = whole ? buffer->offset + buffer->bytes : *begin + operand->bytes;
    if (*end == buffer->offset + buffer->bytes) *end = padded_end(program, buffer);
}

static enum status add_borders(struct segments *segments, enum tier tier, int64_t begin, int64_t end) {
    TRY(vec_push(&segments->borders[tier], begin));
    return vec_push(&segments->borders[tier], end);
}

/* Most operands are whole buffers, whose borders are added once. */
static enum status collect(const struct program *program, struct segments *segments) {
    bool *whole = mem_array(program->buffers.count, sizeof *whole);
    if (!whole) return STATUS_FAILED;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &program->instructions.items[i].operands[k];
            if (operand->buffer < 0) continue;
            const struct buffer *buffer = &program->buffers.items[operand->buffer];
            int64_t begin, end;
            find_bytes(program, operand, &begin, &end);
            bool all = begin == buffer->offset && end == padded_end(program, buffer);
            if (all && whole[operand->buffer]) continue;
            whole[operand->buffer] |= all;
            TRY_GOTO(status, add_borders(segments, buffer->tier, begin, end), done);
        }
done:
    mem_free(whole);
    return status;
}

static void sort_borders(struct segments *segments) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t *items = segments->borders[tier].items;
        size_t count = segments->borders[tier].count, kept = 0;
        if (count > 0) qsort(items, count, sizeof *items, compare_borders);
        for (size_t i = 0; i < count; i++)
            if (i == 0 || items[i] != items[kept - 1]) items[kept++] = items[i];
        segments->borders[tier].count = kept;
        segments->first[tier] = segments->count;
        segments->count += (int32_t)kept;
    }
}

static int32_t find_border(const struct segments *segments, enum tier tier, int64_t border) {
    const int64_t *items = segments->borders[tier].items;
    int32_t low = 0, high = (int32_t)segments->borders[tier].count - 1;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (items[middle] < border)
            low = middle + 1;
        else
            high = middle;
    }
    return segments->first[tier] + low;
}

/* From `first`, which is the segment that begins with the operand, to the border where it ends: a few steps. */
static int32_t find_end(const struct segments *segments, enum tier tier, int32_t first, int64_t end) {
    const int64_t *items = segments->borders[tier].items - segments->first[tier];
    while (items[first] < end)
        first++;
    return first;
}

static enum status find_reaches(const struct program *program, struct segments *segments) {
    segments->reaches = mem_array(program->instructions.count * OPERANDS_MAX, sizeof *segments->reaches);
    if (!segments->reaches) return STATUS_FAILED;
    for (size_t i = 0; i < program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &program->instructions.items[i].operands[k];
            if (operand->buffer < 0) continue;
            int64_t begin, end;
            find_bytes(program, operand, &begin, &end);
            enum tier tier = program->buffers.items[operand->buffer].tier;
            int32_t first = find_border(segments, tier, begin);
            segments->reaches[i * OPERANDS_MAX + (size_t)k] =
                (struct reach){first, find_end(segments, tier, first, end)};
        }
    return STATUS_OK;
}

enum status segments_create(const struct program *program, struct segments *out) {
    struct segments segments = {0};
    enum status status = collect(program, &segments);
    if (status == STATUS_OK) {
        sort_borders(&segments);
        status = find_reaches(program, &segments);
    }
    if (status != STATUS_OK)
        segments_free(&segments);
    else
        *out = segments;
    return status;
}

void segments_free(struct segments *segments) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        vec_free(&segments->borders[tier]);
    mem_free(segments->reaches);
}
