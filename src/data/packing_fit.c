/* Best fit decreasing (Johnson et al., "Worst-case performance bounds for simple one-dimensional packing algorithms",
 * SIAM J. Comput. 3, 1974) over rows kept by the space that is left in them. */
#include "base/mem.h"
#include "data/packing.h"

struct fit {
    int64_t capacity;
    int64_t leaves;      /* power of two above capacity */
    unsigned char *tree; /* node i: whether some row has space in the range of leaves below it */
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

/* The least space of at least `size` that a row has; -1: none. */
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
