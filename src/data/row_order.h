/* In which order a source's rows are trained on: a pure function of the seed.
 *
 * An endless sequence of ordinals goes through the rows in epochs. Later epochs permute all rows. The first permutes
 * them within shuffle buffers of 64, 128, 256, ... rows, the last of which ends where the rows do: whoever reads it
 * needs the beginning of the text only, and never more than 64 rows beyond twice what was read, so that training can
 * begin while the rest is being tokenized. The order is this one whether or not it is. Up to 64 rows are one shuffle
 * buffer. */
#ifndef BALLAST_DATA_ROW_ORDER_H
#define BALLAST_DATA_ROW_ORDER_H

#include <stdint.h>

enum { ROW_ORDER_FIRST_SHUFFLE_BUFFER = 64 };

/* The end of the shuffle buffer of an ordinal >= 0, as if the number of rows were unlimited: more than the ordinal. */
int64_t row_order_shuffle_buffer_end(int64_t ordinal);

/* The row, 0 to rows - 1, of an ordinal. `rows` >= 1 is the number of rows, or any lower bound of it that is at least
 * row_order_shuffle_buffer_end(ordinal): all give the same row. */
int64_t row_order_at(uint64_t seed, int64_t ordinal, int64_t rows);

#endif
