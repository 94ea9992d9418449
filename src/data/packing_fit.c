/* Best fit decreasing (Johnson et al., "Worst-case performance bounds for simple one-dimensional packing algorithms",
 * SIAM J. Comput. 3, 1974) over rows kept by the room that is left in them. */
#include "base/mem.h"
#include "data/packing.h"

struct fit {
    int64_t room;
    int64_t leaves;      /* power of two above room */
    unsigned char *tree; /* node i: whether some row has room in the range of leaves below it */
    uint32_t *newest;    /* [room + 1]: a row with that room; UINT32_MAX: none */
    uint32_t *next;      /* by row: the next with the same room */
};

static void update_tree(struct fit *fit, int64_t room) {
    int64_t node = fit->leaves + room;
    fit->tree[node] = fit->newest[room] != UINT32_MAX;
    for (node /= 2; node >= 1; node /= 2)
        fit->tree[node] = fit->tree[2 * node] || fit->tree[2 * node + 1];
}

static void put_row(struct fit *fit, uint32_t row, int64_t room) {
    fit->next[row] = fit->newest[room];
    fit->newest[room] = row;
    update_tree(fit, room);
}

/* The least room of at least `size` that a row has; -1: none. */
static int64_t find_room(const struct fit *fit, int64_t size) {
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
    int64_t room = find_room(fit, size);
    uint32_t row;
    if (room < 0) {
        row = (uint32_t)(*rows)++;
        room = fit->room;
    } else {
        row = fit->newest[room];
        fit->newest[room] = fit->next[row];
        update_tree(fit, room);
    }
    put_row(fit, row, room - size);
    return row;
}

/* Items by decreasing size, equal ones in their order (a counting sort). */
static enum status sort_items(const int32_t *sizes, int64_t count, int64_t room, uint32_t *sorted) {
    int64_t *place = mem_array((size_t)room + 2, sizeof *place);
    if (!place) return STATUS_FAILED;
    for (int64_t i = 0; i < count; i++)
        place[room - sizes[i] + 1]++;
    for (int64_t size = 0; size <= room; size++)
        place[size + 1] += place[size];
    for (int64_t i = 0; i < count; i++)
        sorted[place[room - sizes[i]]++] = (uint32_t)i;
    mem_free(place);
    return STATUS_OK;
}

static enum status fit_items(struct fit *fit, const int32_t *sizes, int64_t count, uint32_t *sorted, uint32_t *row_of,
                             int64_t *rows) {
    TRY(sort_items(sizes, count, fit->room, sorted));
    for (int64_t i = 0; i <= fit->room; i++)
        fit->newest[i] = UINT32_MAX;
    *rows = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t item = sorted[i];
        row_of[item] = sizes[item] > 0 ? take_row(fit, sizes[item], rows) : UINT32_MAX;
    }
    return STATUS_OK;
}

enum status packing_fit(const int32_t *sizes, int64_t count, int64_t room, uint32_t *row_of, int64_t *rows) {
    struct fit fit = {.room = room, .leaves = 1};
    while (fit.leaves <= room)
        fit.leaves *= 2;
    fit.tree = mem_array((size_t)fit.leaves * 2, sizeof *fit.tree);
    fit.newest = mem_array((size_t)room + 1, sizeof *fit.newest);
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
