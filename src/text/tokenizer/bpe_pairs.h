/* Pairs of neighbouring symbols in the words of a text: how often each occurs, in which words, and which is the most
 * frequent. Used while merges are learned. */
#ifndef BALLAST_TEXT_TOKENIZER_BPE_PAIRS_H
#define BALLAST_TEXT_TOKENIZER_BPE_PAIRS_H

#include "base/mem.h"

struct bpe_pair_count {
    uint32_t left, right;
    int64_t count;
    VEC(uint32_t) words; /* where it occurs or once occurred; ascending */
};

/* A pair and the count that it had when it was put in the queue; counts only fall after that. */
struct bpe_pair_entry {
    int64_t count;
    uint32_t left, right, pair;
};

/* Zero-initialise, use, bpe_pairs_free. */
struct bpe_pairs {
    VEC(struct bpe_pair_count) items;
    uint32_t *slots; /* hash table of indices of items + 1, 0 for a free slot */
    size_t slot_count;
    VEC(struct bpe_pair_entry) queue; /* binary heap, the most frequent first, then the smallest ids */
};

/* Adds `change` to the count of a pair in a word. Words must come in ascending order, except that a merge (all of
 * whose new pairs have not occurred before) begins again. */
enum status bpe_pairs_count(struct bpe_pairs *pairs, uint32_t left, uint32_t right, uint32_t word, int64_t change);
/* Queues the pairs from index `from` on whose count is not 0. */
enum status bpe_pairs_queue(struct bpe_pairs *pairs, size_t from);
/* Takes the most frequent pair from the queue; NULL when there is none. Valid until the next bpe_pairs_count. */
struct bpe_pair_count *bpe_pairs_take(struct bpe_pairs *pairs);
void bpe_pairs_free(struct bpe_pairs *pairs);

#endif
