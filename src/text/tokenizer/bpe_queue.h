/* The pairs of a word in the order in which they are merged: lowest rank first, of equal ones the leftmost.
 *
 * Pairs of a rank are mostly added from left to right, since merging another rank, from left to right, makes them. So
 * each rank has a list in that order, and adding and taking are constant time. Pairs that come out of order, and those
 * of short words, go to a binary heap next to the lists; the earlier of the two heads is taken. */
#ifndef BALLAST_TEXT_TOKENIZER_BPE_QUEUE_H
#define BALLAST_TEXT_TOKENIZER_BPE_QUEUE_H

#include "base/mem.h"
#include "text/tokenizer/rank_set.h"

/* A word is a list of symbols, at first its characters or bytes. A merge turns the left one into the pair and removes
 * the right one. Places are indices; BPE_NO_PLACE at the ends. */
struct bpe_symbol {
    uint32_t id;
    uint32_t previous, next; /* in the word */
    uint32_t rank;           /* of the pair that it forms with the next one; BPE_NO_RANK: it forms none */
    uint32_t before, after;  /* in its rank's list; before is BPE_NOT_LISTED when it is not there */
};
static const uint32_t BPE_NO_RANK = UINT32_MAX, BPE_NO_PLACE = UINT32_MAX, BPE_NOT_LISTED = UINT32_MAX - 1;

/* Zero-initialise, bpe_queue_open, ..., bpe_queue_free. */
struct bpe_queue {
    VEC(uint64_t) heap;     /* rank << 32 | place; entries whose symbol has another rank by now are out of date */
    struct bpe_list *lists; /* [rank]: of those in `listed` */
    struct rank_set listed; /* ranks whose list is not empty */
    bool uses_lists;
};

/* Makes the (empty) queue ready for a word of `count` symbols and a model of `ranks` merges. */
enum status bpe_queue_open(struct bpe_queue *queue, size_t count, size_t ranks);
/* Adds the pair of a symbol, whose rank is set. */
enum status bpe_queue_add(struct bpe_queue *queue, struct bpe_symbol *symbols, uint32_t place);
/* Removes a symbol's pair, before its rank changes. */
void bpe_queue_remove(struct bpe_queue *queue, struct bpe_symbol *symbols, uint32_t place);
/* Takes the first pair; false when there is none. */
bool bpe_queue_take(struct bpe_queue *queue, struct bpe_symbol *symbols, uint32_t *place);
/* Empties it. */
void bpe_queue_clear(struct bpe_queue *queue);
void bpe_queue_free(struct bpe_queue *queue);

#endif
