#include "data/row.h"

#include <stdbool.h>

#include "ir/ops/op_attributes.h"

void row_place(const struct row *row, int64_t at, int64_t position, int32_t segment) {
    if (row->positions) row->positions[at] = (int32_t)position;
    if (row->segments) row->segments[at] = segment;
}

static int64_t place_tokens(const struct row *row, int64_t border) {
    int64_t position = 0, counted = 0;
    int32_t segment = 0;
    for (int64_t i = 0; i < row->length; i++) {
        row_place(row, i, position++, segment);
        bool ends = border >= 0 && row->tokens[i] == border;
        if (ends) {
            row->targets[i] = TARGET_IGNORE;
            position = 0;
            segment++;
        }
        counted += !ends;
    }
    return counted;
}

enum status row_fill_tokens(const struct row *row, struct corpus *corpus, int64_t first, int64_t border,
                            int64_t *counted) {
    int64_t length = row->length;
    /* Targets are the inputs moved on by one, so the row is read once with one token more. */
    TRY(corpus_read(corpus, first, length, row->tokens));
    for (int64_t i = 0; i + 1 < length; i++)
        row->targets[i] = row->tokens[i + 1];
    TRY(corpus_read(corpus, first + length, 1, row->targets + length - 1));
    *counted = place_tokens(row, border);
    return STATUS_OK;
}

void row_fill_padding(const struct row *row, int64_t from, int32_t segment) {
    for (int64_t i = from; i < row->length; i++) {
        row->tokens[i] = 0;
        row->targets[i] = TARGET_PADDING;
        row_place(row, i, i - from, segment);
    }
}
