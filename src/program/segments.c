#include "program/segments.h"

#include <stdlib.h>

static int compare_borders(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Slices of an input (which programs only read) and columns are taken to reach their whole buffer: what holds its bytes
 * is known for all of them at once, and nothing is gained by letting two streams fill the columns of one buffer
 * unordered. What ends with its buffer reaches through the padding after it, which moves along to and from the disk. */
static void reach(const struct program *program, const struct operand *operand, int64_t *begin, int64_t *end) {
    const struct buffer *buffer = &program->buffers.items[operand->buffer];
    bool whole = operand->stride || operand->row_bytes;
    *begin = buffer->offset + (whole ? 0 : operand->offset);
    *end = whole ? buffer->offset + buffer->bytes : *begin + operand->bytes;
    if (*end == buffer->offset + buffer->bytes)
        *end = buffer->offset + (buffer->bytes + program->alignment - 1) / program->alignment * program->alignment;
}

static enum status collect(const struct program *program, struct segments *segments) {
    for (size_t i = 0; i < program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &program->instructions.items[i].operands[k];
            if (operand->buffer < 0) continue;
            int64_t begin, end;
            reach(program, operand, &begin, &end);
            enum tier tier = program->buffers.items[operand->buffer].tier;
            TRY(vec_push(&segments->borders[tier], begin));
            TRY(vec_push(&segments->borders[tier], end));
        }
    return STATUS_OK;
}

enum status segments_create(const struct program *program, struct segments *out) {
    struct segments segments = {0};
    enum status status = collect(program, &segments);
    if (status != STATUS_OK) {
        segments_free(&segments);
        return status;
    }
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t *items = segments.borders[tier].items;
        size_t count = segments.borders[tier].count, kept = 0;
        if (count > 0) qsort(items, count, sizeof *items, compare_borders);
        for (size_t i = 0; i < count; i++)
            if (i == 0 || items[i] != items[kept - 1]) items[kept++] = items[i];
        segments.borders[tier].count = kept;
        segments.first[tier] = segments.count;
        segments.count += (int32_t)kept;
    }
    *out = segments;
    return STATUS_OK;
}

void segments_free(struct segments *segments) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        vec_free(&segments->borders[tier]);
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

void segments_of_operand(const struct segments *segments, const struct program *program, const struct operand *operand,
                         int32_t *first, int32_t *end) {
    int64_t begin, stop;
    reach(program, operand, &begin, &stop);
    enum tier tier = program->buffers.items[operand->buffer].tier;
    *first = find_border(segments, tier, begin);
    *end = find_border(segments, tier, stop);
}
