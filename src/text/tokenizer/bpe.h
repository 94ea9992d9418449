/* The pairs of a word in the order in which they are merged: lowest rank first, of equal ones the leftmost.
 *
 * Pairs of a rank are mostly added from left to right, since merging another rank, from left to right, makes them. So
 * each rank has a list in that order, and adding and taking are constant time. Pairs that come out of order, and those
 * of short words, go to a binary heap next to the lists; the earlier of the two heads is taken. */
#pragma once

#include "base/base.h"
#include "text/tokenizer/alphabet.h"
#include "text/tokenizer/steps.h"
#include "text/tokenizer/tables.h"
#include "text/tokenizer/tokenizer.h"

/* A word is a list of symbols, at first its characters or bytes. A merge turns the left one into the pair and removes
 * the right one. Places are indices; BPE_NO_PLACE at the ends. */
struct bpe_symbol {
    uint32_t id;
    uint32_t previous, next; /* in the word */
    uint32_t rank;           /* of the pair that it forms with the next one; BPE_NO_RANK: it forms none */
    uint32_t before, after;  /* in its rank's list; before is BPE_NOT_LISTED when it is not there */
};

/* Zero-initialise, bpe_queue_open, ..., bpe_queue_free. */
struct bpe_queue {
    VEC(uint64_t) heap;     /* rank << 32 | place; entries whose symbol has another rank by now are out of date */
    struct bpe_list *lists; /* [rank]: of those in `listed` */
    struct rank_set listed; /* ranks whose list is not empty */
    bool uses_lists;
};

/* Byte-pair encoding (Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016) over
 * the bytes or characters of words: a vocabulary, and pairs of tokens in the order in which they are merged. */

struct bpe_pair {
    uint32_t left, right;
    uint32_t rank; /* the lower, the earlier it is merged; BPE_NO_RANK in a free slot */
};

/* Zero-initialise, set the alphabet's `bytes` and `byte_fallback`, bpe_model_add_token for each, bpe_alphabet_read,
 * bpe_model_add_merge for each (and bpe_alphabet_note_merge), bpe_model_free. */
struct bpe_model {
    struct string_table vocabulary; /* as in the file; texts are borrowed */
    size_t longest_token_bytes;
    struct bpe_pair *pairs; /* a table with a power of two slots, at most half of them used */
    size_t pair_slots, pair_count;
    VEC(uint32_t) results; /* [rank]: the id that the pair becomes */
    struct bpe_alphabet alphabet;
    bool ignore_merges; /* a word that is a token is not taken apart */
};

enum status bpe_model_add_token(struct bpe_model *model, const char *text, uint32_t bytes, uint32_t id);
/* Gives the pair the next rank; a pair that is there already loses its old one. */
enum status bpe_model_add_merge(struct bpe_model *model, uint32_t left, uint32_t right, uint32_t result);
void bpe_model_free(struct bpe_model *model);

/* Working memory of one thread: zero-initialise, bpe_workspace_free. */
struct bpe_workspace {
    VEC(struct bpe_symbol) symbols;
    struct bpe_queue queue;
    struct text_buffer text;
};
void bpe_workspace_free(struct bpe_workspace *workspace);
/* Appends the ids of one word (any bytes where the alphabet is bytes, else UTF-8), in time linear in its length (n log
 * n where merges do not go from left to right). */
enum status bpe_model_encode(const struct bpe_model *model, struct bpe_workspace *workspace, const char *word,
                             size_t bytes, struct token_ids *out);

/* Segments are words; their ids go to output->ids, by way of a cache of bounded size. Settings: a struct bpe_model. */
extern const struct text_step_type text_bpe_step;
