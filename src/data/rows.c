#include "data/rows.h"

#include "base/random.h"
#include "data/corpus.h"
#include "ir/ops/attributes.h"

enum { ROW_ORDER_FIRST_SHUFFLE_BUFFER = 64 };

/* Shuffle buffer k begins at row 64 (2^k - 1). */
static int64_t shuffle_buffer_begin(int k) { return ROW_ORDER_FIRST_SHUFFLE_BUFFER * (((int64_t)1 << k) - 1); }

static int shuffle_buffer_of(int64_t ordinal) {
    return 63 - __builtin_clzll((unsigned long long)(ordinal / ROW_ORDER_FIRST_SHUFFLE_BUFFER + 1));
}

int64_t row_order_shuffle_buffer_end(int64_t ordinal) {
    int k = shuffle_buffer_of(ordinal);
    return k < 57 ? shuffle_buffer_begin(k + 1) : INT64_MAX;
}

/* Shuffle buffers and epochs count their permutations from opposite ends. UINT32_MAX itself is the mixture's. */
static uint32_t round_of_shuffle_buffer(int k) { return k == 0 ? 0 : UINT32_MAX - (uint32_t)k; }

int64_t row_order_at(uint64_t seed, int64_t ordinal, int64_t rows) {
    BUG_IF(ordinal < 0 || rows < 1, "ordinal %lld of %lld rows", (long long)ordinal, (long long)rows);
    int64_t epoch = ordinal / rows;
    if (epoch > 0) return (int64_t)random_permute(seed, (uint32_t)epoch, (uint64_t)(ordinal % rows), (uint64_t)rows);
    int k = shuffle_buffer_of(ordinal);
    int64_t begin = shuffle_buffer_begin(k), end = row_order_shuffle_buffer_end(ordinal);
    if (end > rows) end = rows;
    return begin + (int64_t)random_permute(seed, round_of_shuffle_buffer(k), (uint64_t)(ordinal - begin),
                                           (uint64_t)(end - begin));
}

static const int64_t sum_limit = (int64_t)1 << 62;

enum status mixture_create(const int64_t *weights, size_t count, uint64_t seed, struct mixture *out) {
    BUG_IF(count == 0, "a mixture of nothing");
    struct mixture mixture = {.parts = mem_array(count, sizeof *mixture.parts), .count = count};
    if (!mixture.parts) return STATUS_FAILED;
    int64_t rest = 0;
    for (size_t i = count; i-- > 0;) {
        BUG_IF(weights[i] < 1, "weight %lld", (long long)weights[i]);
        if (weights[i] > sum_limit - rest) {
            mixture_free(&mixture);
            return status_set(STATUS_BAD_INPUT, "the weights of the data are too large in sum");
        }
        rest += weights[i];
        mixture.parts[i] = (struct mixture_part){
            .weight = weights[i],
            .rest = rest,
            .offset = (int64_t)(random_u64(seed, RANDOM_SHUFFLE, UINT32_MAX, i) % (uint64_t)rest),
        };
    }
    *out = mixture;
    return STATUS_OK;
}

void mixture_free(struct mixture *mixture) {
    mem_free(mixture->parts);
    *mixture = (struct mixture){0};
}

/* Of the first `position` positions that this part and the parts after it share, how many are this part's. */
static int64_t count_own(const struct mixture_part *part, int64_t position) {
    return (int64_t)(((__int128)position * part->weight + part->offset) / part->rest);
}

/* Each part takes its share of what those before it left, evenly spread, as a line is drawn on a raster (Bresenham,
 * "Algorithm for computer control of a digital plotter", IBM Systems Journal 4, 1965). */
struct mixture_draw mixture_at(const struct mixture *mixture, int64_t position) {
    for (size_t i = 0; i < mixture->count; i++) {
        const struct mixture_part *part = &mixture->parts[i];
        int64_t own = count_own(part, position);
        if (count_own(part, position + 1) > own) return (struct mixture_draw){i, own};
        position -= own;
    }
    BUG("position %lld is left over", (long long)position);
}

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
