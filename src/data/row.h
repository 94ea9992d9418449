/* One sequence of a batch, and how it is filled. */
#ifndef BALLAST_DATA_ROW_H
#define BALLAST_DATA_ROW_H

#include <stdint.h>

#include "data/corpus.h"

/* Arrays of `length`. positions and segments may be NULL. */
struct row {
    int64_t length;
    int32_t *tokens, *targets;
    int32_t *positions; /* of a token in its segment, from 0 */
    int32_t *segments;  /* which segment a token is of, from 0 */
};

/* Writes position and segment of the token at a place, where the row has them. */
void row_place(const struct row *row, int64_t at, int64_t position, int32_t segment);

/* Tokens first .. first+length-1 of a corpus, each with its successor as target; *counted is the number of targets
 * that count. The row is one segment unless `border` is at least 0: then each token of that id ends a segment, and has
 * no target, since what follows is another document. As corpus_read. */
enum status row_fill_tokens(const struct row *row, struct corpus *corpus, int64_t first, int64_t border,
                            int64_t *counted);
/* From `from` on: tokens 0 with targets TARGET_PADDING, as one segment more. */
void row_fill_padding(const struct row *row, int64_t from, int32_t segment);

#endif
