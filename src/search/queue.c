#include "search/queue.h"

static bool before(const struct proposal *a, const struct proposal *b) {
    if (a->key < b->key || a->key > b->key) return a->key < b->key;
    return a->number < b->number;
}

enum status queue_push(struct queue *queue, struct proposal proposal) {
    proposal.number = queue->arrived++;
    TRY(vec_push(&queue->heap, proposal));
    struct proposal *heap = queue->heap.items;
    size_t at = queue->heap.count - 1;
    for (; at > 0 && before(&proposal, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = proposal;
    return STATUS_OK;
}

bool queue_pop(struct queue *queue, struct proposal *out) {
    struct proposal *heap = queue->heap.items;
    if (queue->heap.count == 0) return false;
    *out = heap[0];
    struct proposal last = heap[--queue->heap.count];
    size_t at = 0, count = queue->heap.count;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[at] = heap[child];
    }
    if (count > 0) heap[at] = last;
    return true;
}

void queue_free(struct queue *queue) { vec_free(&queue->heap); }
