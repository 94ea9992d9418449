/* A table from byte strings to 32-bit ids. The strings are borrowed and must outlive the table. */
#pragma once

#include "base/base.h"
#include "base/hash.h"

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

/* A table from pairs of numbers to numbers: zero-initialise, use, pair_table_free. */
struct pair_slot {
    uint32_t left, right, value; /* PAIR_NONE in a free slot */
};
struct pair_table {
    struct pair_slot *slots; /* a power of two of them, at most half used */
    size_t slot_count, count;
};
#define PAIR_NONE UINT32_MAX

/* The slot of a pair, or the slot where it belongs; the table has slots. */
static inline struct pair_slot *pair_table_slot(const struct pair_table *table, uint32_t left, uint32_t right) {
    size_t mask = table->slot_count - 1, place = hash_mix((uint64_t)left << 32 | right) & mask;
    for (;; place = (place + 1) & mask) {
        struct pair_slot *slot = &table->slots[place];
        if ((slot->left == left && slot->right == right) || slot->value == PAIR_NONE) return slot;
    }
}

/* PAIR_NONE when it is not there. */
static inline uint32_t pair_table_find(const struct pair_table *table, uint32_t left, uint32_t right) {
    return table->count > 0 ? pair_table_slot(table, left, right)->value : PAIR_NONE;
}

/* Adds the pair, or gives it another value; below PAIR_NONE. */
enum status pair_table_set(struct pair_table *table, uint32_t left, uint32_t right, uint32_t value);
void pair_table_free(struct pair_table *table);
