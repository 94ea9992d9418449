/* A set of byte strings; finds the longest one at a place in a text. */
#ifndef BALLAST_TEXT_TOKENIZER_TOKEN_TRIE_H
#define BALLAST_TEXT_TOKENIZER_TOKEN_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

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

#endif
