#include "data/rows.h"

#include "base/random.h"
#include "ir/ops/attributes.h"
#include "text/chat/example.h"

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

/* This part's share of the first `position` positions that it and the parts after it share. */
static int64_t count_own(const struct mixture_part *part, int64_t position) {
    return (int64_t)(((__int128)position * part->weight + part->offset) / part->rest);
}

/* Each part takes its share of the remaining positions, evenly spread, like a line drawn on a raster (Bresenham,
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

/* Writes position and segment of the token at a place, if the row has them. */
static void row_place(const struct row *row, int64_t at, int64_t position, int32_t segment) {
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
    /* Targets are the inputs shifted by one, so the row is read once with one more token. */
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

/* Best fit decreasing (Johnson et al., "Worst-case performance bounds for simple one-dimensional packing algorithms",
 * SIAM J. Comput. 3, 1974) over rows indexed by their free space. */

struct fit {
    int64_t capacity;
    int64_t leaves;      /* power of two above capacity */
    unsigned char *tree; /* node i: whether some row has a free space in the range of leaves below it */
    uint32_t *newest;    /* [capacity + 1]: a row with that space; UINT32_MAX: none */
    uint32_t *next;      /* by row: the next with the same space */
};

static void update_tree(struct fit *fit, int64_t space) {
    int64_t node = fit->leaves + space;
    fit->tree[node] = fit->newest[space] != UINT32_MAX;
    for (node /= 2; node >= 1; node /= 2)
        fit->tree[node] = fit->tree[2 * node] || fit->tree[2 * node + 1];
}

static void put_row(struct fit *fit, uint32_t row, int64_t space) {
    fit->next[row] = fit->newest[space];
    fit->newest[space] = row;
    update_tree(fit, space);
}

/* The least free space of at least `size` in a row; -1: none. */
static int64_t find_space(const struct fit *fit, int64_t size) {
    int64_t node = fit->leaves + size;
    if (fit->tree[node]) return size;
    /* up to the first right sibling that holds something, then down its left side */
    while (node > 1 && (node % 2 == 1 || !fit->tree[node + 1]))
        node /= 2;
    if (node <= 1) return -1;
    for (node++; node < fit->leaves;)
        node = fit->tree[2 * node] ? 2 * node : 2 * node + 1;
    return node - fit->leaves;
}

static uint32_t take_row(struct fit *fit, int64_t size, int64_t *rows) {
    int64_t space = find_space(fit, size);
    uint32_t row;
    if (space < 0) {
        row = (uint32_t)(*rows)++;
        space = fit->capacity;
    } else {
        row = fit->newest[space];
        fit->newest[space] = fit->next[row];
        update_tree(fit, space);
    }
    put_row(fit, row, space - size);
    return row;
}

/* Items by decreasing size, equal ones in their order (a counting sort). */
static enum status sort_items(const int32_t *sizes, int64_t count, int64_t capacity, uint32_t *sorted) {
    int64_t *place = mem_array((size_t)capacity + 2, sizeof *place);
    if (!place) return STATUS_FAILED;
    for (int64_t i = 0; i < count; i++)
        place[capacity - sizes[i] + 1]++;
    for (int64_t size = 0; size <= capacity; size++)
        place[size + 1] += place[size];
    for (int64_t i = 0; i < count; i++)
        sorted[place[capacity - sizes[i]]++] = (uint32_t)i;
    mem_free(place);
    return STATUS_OK;
}

static enum status fit_items(struct fit *fit, const int32_t *sizes, int64_t count, uint32_t *sorted, uint32_t *row_of,
                             int64_t *rows) {
    TRY(sort_items(sizes, count, fit->capacity, sorted));
    for (int64_t i = 0; i <= fit->capacity; i++)
        fit->newest[i] = UINT32_MAX;
    *rows = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t item = sorted[i];
        row_of[item] = sizes[item] > 0 ? take_row(fit, sizes[item], rows) : UINT32_MAX;
    }
    return STATUS_OK;
}

enum status packing_fit(const int32_t *sizes, int64_t count, int64_t capacity, uint32_t *row_of, int64_t *rows) {
    struct fit fit = {.capacity = capacity, .leaves = 1};
    while (fit.leaves <= capacity)
        fit.leaves *= 2;
    fit.tree = mem_array((size_t)fit.leaves * 2, sizeof *fit.tree);
    fit.newest = mem_array((size_t)capacity + 1, sizeof *fit.newest);
    fit.next = mem_array((size_t)count, sizeof *fit.next);
    uint32_t *sorted = mem_array((size_t)count, sizeof *sorted);
    bool there = fit.tree && fit.newest && fit.next && sorted;
    enum status status = there ? fit_items(&fit, sizes, count, sorted, row_of, rows) : STATUS_FAILED;
    mem_free(sorted);
    mem_free(fit.next);
    mem_free(fit.newest);
    mem_free(fit.tree);
    return status;
}

enum { BLOCK = 1 << 14 };

static bool is_target(uint32_t marked, bool loss_on_all) {
    return (marked & EXAMPLE_TRAINED) || (loss_on_all && !(marked & EXAMPLE_MASKED));
}

/* Results of one pass over the ids. */
struct examination {
    const struct dataset_options *options;
    double held;
    const char *name; /* of the corpus */
    struct packing *packing;
    VEC(int64_t) starts;
    VEC(int32_t) sizes; /* positions in a row; 0: omitted */
    int64_t position;   /* of the next id */
    bool trains;        /* the current example, within a row's positions */
};

static void end_example(struct examination *examination) {
    size_t count = examination->sizes.count;
    if (count == 0) return;
    int64_t max = examination->options->sequence_tokens;
    int64_t size = examination->position - examination->starts.items[count - 1] - 1;
    examination->packing->cut += size > max;
    examination->packing->left_out += !examination->trains;
    examination->sizes.items[count - 1] = !examination->trains ? 0 : (int32_t)(size < max ? size : max);
}

static enum status examine_id(struct examination *examination, uint32_t marked) {
    const struct dataset_options *options = examination->options;
    if (marked & EXAMPLE_FIRST) {
        end_example(examination);
        if (examination->starts.count == UINT32_MAX)
            return status_set(STATUS_BAD_INPUT, "%s: more than 2^32 examples", examination->name);
        TRY(vec_push(&examination->starts, examination->position));
        TRY(vec_push(&examination->sizes, 0));
        examination->trains = false;
    } else if (examination->starts.count == 0) {
        return status_set(STATUS_BAD_INPUT, "%s: does not begin with an example", examination->name);
    } else if (is_target(marked, options->loss_on_all)) {
        int64_t place = examination->position - examination->starts.items[examination->starts.count - 1] - 1;
        examination->trains |= place < options->sequence_tokens;
    }
    if ((marked & EXAMPLE_ID) >= options->vocab_size)
        return status_set(STATUS_BAD_INPUT, "%s: has id %u, but the model's vocabulary has %lld", examination->name,
                          marked & EXAMPLE_ID, (long long)options->vocab_size);
    examination->position++;
    return STATUS_OK;
}

static enum status examine_ids(struct examination *examination, struct corpus *corpus) {
    int32_t ids[BLOCK];
    int64_t tokens = corpus_extent(corpus).tokens;
    for (int64_t first = 0; first < tokens; first += BLOCK) {
        int64_t count = tokens - first < BLOCK ? tokens - first : BLOCK;
        TRY(corpus_read(corpus, first, count, ids));
        for (int64_t i = 0; i < count; i++)
            TRY(examine_id(examination, (uint32_t)ids[i]));
    }
    end_example(examination);
    return vec_push(&examination->starts, examination->position);
}

int64_t packing_held(int64_t count, double fraction) {
    int64_t held = (int64_t)((double)count * fraction);
    if (fraction > 0 && held < 1) held = 1;
    if (held < count) return held;
    return count > 0 ? count - 1 : 0;
}

/* Packs consecutive examples into rows, after `rows` others. Best fit makes rows of long examples first; a fixed random
 * order spreads them. */
static enum status fit_part(const int32_t *sizes, int64_t count, int64_t capacity, uint32_t *row_of, int64_t *rows) {
    int64_t added;
    if (count == 0) return STATUS_OK;
    TRY(packing_fit(sizes, count, capacity, row_of, &added));
    for (int64_t i = 0; i < count; i++)
        if (row_of[i] != UINT32_MAX)
            row_of[i] = (uint32_t)(*rows + (int64_t)random_permute(0, 0, row_of[i], (uint64_t)added));
    *rows += added;
    return STATUS_OK;
}

static int64_t count_kept(const int32_t *sizes, int64_t count) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        kept += sizes[i] > 0;
    return kept;
}

static enum status fit_together(const struct examination *examination, uint32_t *row_of) {
    struct packing *packing = examination->packing;
    const int32_t *sizes = examination->sizes.items;
    int64_t count = packing->examples, capacity = examination->options->sequence_tokens, first_held = count;
    for (int64_t held = packing_held(count_kept(sizes, count), examination->held); held > 0;)
        held -= sizes[--first_held] > 0;
    packing->rows = 0;
    TRY(fit_part(sizes, first_held, capacity, row_of, &packing->rows));
    packing->held_rows = -packing->rows;
    TRY(fit_part(sizes + first_held, count - first_held, capacity, row_of + first_held, &packing->rows));
    packing->held_rows += packing->rows;
    packing->packed_rows = packing->rows;
    return STATUS_OK;
}

static enum status fit_apart(const struct examination *examination, uint32_t *row_of) {
    struct packing *packing = examination->packing;
    const struct dataset_options *options = examination->options;
    const int32_t *sizes = examination->sizes.items;
    int64_t count = packing->examples;
    if (!options->pairs) TRY(packing_fit(sizes, count, options->sequence_tokens, row_of, &packing->packed_rows));
    packing->rows = 0;
    for (int64_t i = 0; i < count; i++)
        row_of[i] = sizes[i] > 0 ? (uint32_t)packing->rows++ : UINT32_MAX;
    if (options->pairs) packing->packed_rows = packing->rows;
    return STATUS_OK;
}

/* Examples by row (a counting sort). */
static enum status order_examples(struct packing *packing, const uint32_t *row_of) {
    packing->row_first = mem_array((size_t)packing->rows + 2, sizeof *packing->row_first);
    packing->order = mem_array((size_t)packing->examples, sizeof *packing->order);
    if (!packing->row_first || !packing->order) return STATUS_FAILED;
    /* Counts are stored one place further on, so that filling moves each entry to its row's begin. */
    int64_t *next = packing->row_first + 1;
    for (int64_t i = 0; i < packing->examples; i++)
        if (row_of[i] != UINT32_MAX) next[row_of[i] + 1]++;
    for (int64_t row = 0; row < packing->rows; row++)
        next[row + 1] += next[row];
    for (int64_t i = 0; i < packing->examples; i++)
        if (row_of[i] != UINT32_MAX) packing->order[next[row_of[i]]++] = (uint32_t)i;
    return STATUS_OK;
}

/* If one example of a pair is omitted, omits the other. */
static enum status match_pairs(struct examination *examination) {
    int32_t *sizes = examination->sizes.items;
    if (examination->sizes.count % 2 != 0)
        return status_set(STATUS_BAD_INPUT, "%s: %zu examples are no pairs", examination->name,
                          examination->sizes.count);
    examination->packing->left_out = 0;
    for (size_t i = 0; i < examination->sizes.count; i += 2) {
        if (sizes[i] > 0 && sizes[i + 1] > 0) continue;
        sizes[i] = sizes[i + 1] = 0;
        examination->packing->left_out++;
    }
    return STATUS_OK;
}

static int compare_lengths(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Measures the lengths of examples, some of which are truncated. */
static enum status measure_lengths(struct packing *packing) {
    size_t count = (size_t)packing->examples;
    int64_t *lengths = mem_array(count, sizeof *lengths);
    if (!lengths) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        lengths[i] = packing->starts[i + 1] - packing->starts[i] - 1;
    qsort(lengths, count, sizeof *lengths, compare_lengths);
    packing->longest = lengths[count - 1];
    packing->percentile_95 = lengths[(count * 95 + 99) / 100 - 1];
    mem_free(lengths);
    return STATUS_OK;
}

static enum status make_rows(const struct examination *examination) {
    struct packing *packing = examination->packing;
    bool together = examination->options->pack_examples && !examination->options->pairs;
    AUTO_FREE uint32_t *row_of = mem_array((size_t)packing->examples, sizeof *row_of);
    if (!row_of) return STATUS_FAILED;
    enum status status = (together ? fit_together : fit_apart)(examination, row_of);
    for (int64_t i = 0; i < packing->examples; i++)
        packing->places += examination->sizes.items[i];
    if (status == STATUS_OK) status = order_examples(packing, row_of);
    return status;
}

enum status packing_create(struct corpus *corpus, const struct dataset_options *options, double held, const char *name,
                           struct packing *out) {
    struct packing packing = {0};
    struct examination examination = {.options = options, .held = held, .name = name, .packing = &packing};
    enum status status = examine_ids(&examination, corpus);
    packing.starts = examination.starts.items;
    packing.examples = (int64_t)examination.sizes.count;
    TRY_GOTO(status, status, done);
    if (options->pairs) TRY_GOTO(status, match_pairs(&examination), done);
    if (packing.cut > 0) TRY_GOTO(status, measure_lengths(&packing), done);
    TRY_GOTO(status, make_rows(&examination), done);
    *out = packing;
done:
    vec_free(&examination.sizes);
    if (status != STATUS_OK) packing_free(&packing);
    return status;
}

void packing_free(struct packing *packing) {
    mem_free(packing->starts);
    mem_free(packing->order);
    mem_free(packing->row_first);
    *packing = (struct packing){0};
}

/* Inputs and targets are both marked ids, one apart: an input's target follows it. */
static enum status fill_example(const struct packing *packing, struct corpus *corpus, uint32_t example,
                                bool loss_on_all, int32_t segment, const struct row *row, int64_t *at,
                                int64_t *counted) {
    int64_t first = packing->starts[example], size = packing->starts[example + 1] - first - 1;
    if (size > row->length - *at) size = row->length - *at;
    TRY(corpus_read(corpus, first, size, row->tokens + *at));
    TRY(corpus_read(corpus, first + 1, size, row->targets + *at));
    for (int64_t i = 0; i < size; i++, ++*at) {
        uint32_t target = (uint32_t)row->targets[*at];
        bool counts = is_target(target, loss_on_all);
        row->tokens[*at] = (int32_t)((uint32_t)row->tokens[*at] & EXAMPLE_ID);
        row->targets[*at] = counts ? (int32_t)(target & EXAMPLE_ID) : TARGET_IGNORE;
        row_place(row, *at, i, segment);
        *counted += counts;
    }
    return STATUS_OK;
}

enum status packing_fill_row(const struct packing *packing, struct corpus *corpus, int64_t index, bool loss_on_all,
                             const struct row *row, int64_t *counted) {
    *counted = 0;
    int64_t at = 0, from = packing->row_first[index], to = packing->row_first[index + 1];
    for (int64_t i = from; i < to; i++)
        TRY(fill_example(packing, corpus, packing->order[i], loss_on_all, (int32_t)(i - from), row, &at, counted));
    row_fill_padding(row, at, (int32_t)(to - from));
    return STATUS_OK;
}
