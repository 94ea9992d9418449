#include "text/tokenizer/bpe_pairs.h"

#include "base/hash.h"

static uint32_t *slot_find(const struct bpe_pairs *pairs, uint32_t left, uint32_t right) {
    size_t mask = pairs->slot_count - 1, place = hash_mix((uint64_t)left << 32 | right) & mask;
    for (;; place = (place + 1) & mask) {
        uint32_t *slot = &pairs->slots[place];
        if (*slot == 0) return slot;
        const struct bpe_pair_count *pair = &pairs->items.items[*slot - 1];
        if (pair->left == left && pair->right == right) return slot;
    }
}

static enum status slots_grow(struct bpe_pairs *pairs) {
    size_t slot_count = pairs->slot_count ? 2 * pairs->slot_count : 1024;
    uint32_t *slots = mem_array(slot_count, sizeof *slots);
    if (!slots) return STATUS_FAILED;
    mem_free(pairs->slots);
    pairs->slots = slots;
    pairs->slot_count = slot_count;
    for (size_t i = 0; i < pairs->items.count; i++)
        *slot_find(pairs, pairs->items.items[i].left, pairs->items.items[i].right) = (uint32_t)i + 1;
    return STATUS_OK;
}

enum status bpe_pairs_count(struct bpe_pairs *pairs, uint32_t left, uint32_t right, uint32_t word, int64_t change) {
    if (2 * (pairs->items.count + 1) > pairs->slot_count) TRY(slots_grow(pairs));
    uint32_t *slot = slot_find(pairs, left, right);
    if (*slot == 0) {
        if (pairs->items.count >= UINT32_MAX - 1) return status_no_memory(pairs->items.count, "pairs of tokens");
        TRY(vec_push(&pairs->items, (struct bpe_pair_count){.left = left, .right = right}));
        *slot = (uint32_t)pairs->items.count;
    }
    struct bpe_pair_count *pair = &pairs->items.items[*slot - 1];
    pair->count += change;
    bool known = pair->words.count > 0 && pair->words.items[pair->words.count - 1] == word;
    return change < 0 || known ? STATUS_OK : vec_push(&pair->words, word);
}

static bool comes_before(const struct bpe_pair_entry *a, const struct bpe_pair_entry *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static void queue_sink(struct bpe_pairs *pairs) {
    struct bpe_pair_entry *queue = pairs->queue.items, entry = queue[0];
    size_t place = 0, count = pairs->queue.count;
    for (size_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && comes_before(&queue[child + 1], &queue[child])) child++;
        if (!comes_before(&queue[child], &entry)) break;
        queue[place] = queue[child];
    }
    queue[place] = entry;
}

enum status bpe_pairs_queue(struct bpe_pairs *pairs, size_t from) {
    for (size_t i = from; i < pairs->items.count; i++) {
        const struct bpe_pair_count *pair = &pairs->items.items[i];
        if (pair->count <= 0) continue;
        struct bpe_pair_entry entry = {pair->count, pair->left, pair->right, (uint32_t)i};
        TRY(vec_push(&pairs->queue, entry));
        struct bpe_pair_entry *queue = pairs->queue.items;
        size_t place = pairs->queue.count - 1;
        for (size_t parent; place > 0 && comes_before(&entry, &queue[parent = (place - 1) / 2]); place = parent)
            queue[place] = queue[parent];
        queue[place] = entry;
    }
    return STATUS_OK;
}

struct bpe_pair_count *bpe_pairs_take(struct bpe_pairs *pairs) {
    while (pairs->queue.count > 0) {
        struct bpe_pair_entry *first = &pairs->queue.items[0];
        struct bpe_pair_count *pair = &pairs->items.items[first->pair];
        if (first->count == pair->count) {
            *first = pairs->queue.items[--pairs->queue.count];
            if (pairs->queue.count > 0) queue_sink(pairs);
            return pair;
        }
        first->count = pair->count; /* its count fell: put it back in order */
        queue_sink(pairs);
    }
    return NULL;
}

void bpe_pairs_free(struct bpe_pairs *pairs) {
    for (size_t i = 0; i < pairs->items.count; i++)
        vec_free(&pairs->items.items[i].words);
    vec_free(&pairs->items);
    mem_free(pairs->slots);
    vec_free(&pairs->queue);
}
