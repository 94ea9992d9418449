#include "text/tokenizer/bpe_queue.h"

/* Below this the heap alone is faster: its few entries lie side by side. */
enum { LISTED_SYMBOLS_MIN = 96 };

struct bpe_list {
    uint32_t first, last; /* places */
};

/* --- the heap --- */

static void heap_sink(uint64_t *heap, size_t count) {
    uint64_t entry = heap[0];
    size_t place = 0;
    for (size_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (entry <= heap[child]) break;
        heap[place] = heap[child];
    }
    heap[place] = entry;
}

static enum status heap_add(struct bpe_queue *queue, uint64_t entry) {
    TRY(vec_push(&queue->heap, entry));
    uint64_t *heap = queue->heap.items;
    size_t place = queue->heap.count - 1;
    for (size_t parent; place > 0 && entry < heap[parent = (place - 1) / 2]; place = parent)
        heap[place] = heap[parent];
    heap[place] = entry;
    return STATUS_OK;
}

static void heap_drop_first(struct bpe_queue *queue) {
    uint64_t *heap = queue->heap.items;
    heap[0] = heap[--queue->heap.count];
    if (queue->heap.count > 1) heap_sink(heap, queue->heap.count);
}

/* The first entry that is not out of date. */
static bool heap_first(struct bpe_queue *queue, const struct bpe_symbol *symbols, uint64_t *entry) {
    while (queue->heap.count > 0) {
        *entry = queue->heap.items[0];
        if (symbols[(uint32_t)*entry].rank == *entry >> 32) return true;
        heap_drop_first(queue);
    }
    return false;
}

/* --- the lists --- */

enum status bpe_queue_open(struct bpe_queue *queue, size_t count, size_t ranks) {
    queue->uses_lists = count >= LISTED_SYMBOLS_MIN;
    if (!queue->uses_lists || queue->lists || ranks == 0) return STATUS_OK;
    TRY(rank_set_create(&queue->listed, ranks));
    queue->lists = mem_array(ranks, sizeof *queue->lists);
    if (!queue->lists) return rank_set_free(&queue->listed), STATUS_FAILED;
    return STATUS_OK;
}

enum status bpe_queue_add(struct bpe_queue *queue, struct bpe_symbol *symbols, uint32_t place) {
    struct bpe_symbol *symbol = &symbols[place];
    uint64_t entry = (uint64_t)symbol->rank << 32 | place;
    symbol->before = BPE_NOT_LISTED;
    if (!queue->uses_lists) return heap_add(queue, entry);
    struct bpe_list *list = &queue->lists[symbol->rank];
    bool listed = rank_set_has(&queue->listed, symbol->rank);
    if (listed && list->last > place) return heap_add(queue, entry);
    symbol->before = listed ? list->last : BPE_NO_PLACE;
    symbol->after = BPE_NO_PLACE;
    if (listed) {
        symbols[list->last].after = place;
    } else {
        list->first = place;
        rank_set_add(&queue->listed, symbol->rank);
    }
    list->last = place;
    return STATUS_OK;
}

void bpe_queue_remove(struct bpe_queue *queue, struct bpe_symbol *symbols, uint32_t place) {
    struct bpe_symbol *symbol = &symbols[place];
    if (symbol->rank == BPE_NO_RANK || symbol->before == BPE_NOT_LISTED) return;
    struct bpe_list *list = &queue->lists[symbol->rank];
    if (symbol->before == BPE_NO_PLACE)
        list->first = symbol->after;
    else
        symbols[symbol->before].after = symbol->after;
    if (symbol->after == BPE_NO_PLACE)
        list->last = symbol->before;
    else
        symbols[symbol->after].before = symbol->before;
    symbol->before = BPE_NOT_LISTED;
    if (list->first == BPE_NO_PLACE) rank_set_remove(&queue->listed, symbol->rank);
}

bool bpe_queue_take(struct bpe_queue *queue, struct bpe_symbol *symbols, uint32_t *place) {
    uint32_t rank;
    uint64_t entry = 0;
    bool heaped = heap_first(queue, symbols, &entry);
    if (queue->uses_lists && rank_set_min(&queue->listed, &rank)) {
        uint64_t listed = (uint64_t)rank << 32 | queue->lists[rank].first;
        if (!heaped || listed < entry) {
            *place = (uint32_t)listed;
            return bpe_queue_remove(queue, symbols, *place), true;
        }
    }
    if (!heaped) return false;
    *place = (uint32_t)entry;
    bpe_queue_remove(queue, symbols, *place); /* it may have come to the list as well */
    return heap_drop_first(queue), true;
}

void bpe_queue_clear(struct bpe_queue *queue) {
    uint32_t rank;
    queue->heap.count = 0;
    while (rank_set_min(&queue->listed, &rank))
        rank_set_remove(&queue->listed, rank);
}

void bpe_queue_free(struct bpe_queue *queue) {
    vec_free(&queue->heap);
    mem_free(queue->lists);
    rank_set_free(&queue->listed);
    *queue = (struct bpe_queue){0};
}
