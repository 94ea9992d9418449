/* A table from byte strings to 32-bit ids. The strings are borrowed and must outlive the table. */
#pragma once

#include "base/base.h"

struct string_slot {
    const char *text; /* NULL in a free slot */
    uint32_t bytes, id;
};

/* Zero-initialise, use, string_table_free. */
struct string_table {
    struct string_slot *slots; /* a power of two of them, at most three quarters used */
    size_t slot_count, count;
};

/* Space for `count` strings in all, so that adding them does not rehash. */
enum status string_table_reserve(struct string_table *table, size_t count);
/* Adds a string that is not in the table yet. */
enum status string_table_add(struct string_table *table, const char *text, uint32_t bytes, uint32_t id);
bool string_table_find(const struct string_table *table, const char *text, size_t bytes, uint32_t *id);
void string_table_free(struct string_table *table);

/* A set of byte strings; finds the longest one at a place in a text. */

/* Zero-initialise, add, token_trie_free. */
struct token_trie {
    VEC(struct token_trie_node) nodes;
    uint32_t first[256]; /* node for each first byte, 0 for none */
    size_t count, longest_bytes;
};

/* Adds a string of at least one byte; *added is false when it is there already. */
enum status token_trie_add(struct token_trie *trie, const char *text, size_t bytes, uint32_t value, bool *added);
/* Length of the longest string at the beginning of the text, 0 for none. */
size_t token_trie_match(const struct token_trie *trie, const char *text, size_t bytes, uint32_t *value);
void token_trie_free(struct token_trie *trie);

/* A set of whole numbers below a bound; finds the least. Bits, and above them bits that say which words are not 0. */

enum { RANK_SET_LEVELS = 6 }; /* of 64 each: enough for 32-bit numbers */

/* Zero-initialise, rank_set_create, rank_set_free. */
struct rank_set {
    uint64_t *levels[RANK_SET_LEVELS]; /* [0]: the numbers; the last one in use is one word */
    size_t level_count;
};

static inline void rank_set_free(struct rank_set *set) {
    for (size_t i = 0; i < set->level_count; i++)
        mem_free(set->levels[i]);
    *set = (struct rank_set){0};
}

/* An empty set of numbers below `bound`. */
static inline enum status rank_set_create(struct rank_set *set, size_t bound) {
    *set = (struct rank_set){0};
    for (size_t words = bound; set->level_count == 0 || words > 1;) {
        words = words / 64 + 1;
        uint64_t **level = &set->levels[set->level_count];
        *level = mem_array(words, sizeof **level);
        if (!*level) return rank_set_free(set), STATUS_FAILED;
        set->level_count++;
    }
    return STATUS_OK;
}

static inline bool rank_set_has(const struct rank_set *set, uint32_t number) {
    return set->levels[0][number / 64] >> number % 64 & 1;
}

static inline void rank_set_add(struct rank_set *set, uint32_t number) {
    for (size_t level = 0; level < set->level_count; level++, number /= 64)
        set->levels[level][number / 64] |= (uint64_t)1 << number % 64;
}

static inline void rank_set_remove(struct rank_set *set, uint32_t number) {
    for (size_t level = 0; level < set->level_count; level++, number /= 64) {
        set->levels[level][number / 64] &= ~((uint64_t)1 << number % 64);
        if (set->levels[level][number / 64] != 0) return;
    }
}

/* False when it is empty. */
static inline bool rank_set_min(const struct rank_set *set, uint32_t *number) {
    if (set->level_count == 0 || set->levels[set->level_count - 1][0] == 0) return false;
    *number = 0;
    for (size_t level = set->level_count; level-- > 0;)
        *number = *number * 64 + (uint32_t)__builtin_ctzll(set->levels[level][*number]);
    return true;
}
