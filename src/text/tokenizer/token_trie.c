#include "text/tokenizer/token_trie.h"

static const uint32_t NO_VALUE = UINT32_MAX;

struct token_trie_node {
    uint32_t child, sibling; /* 0 for none: node 0 is never anyone's child */
    uint32_t value;
    unsigned char byte;
};

static enum status node_create(struct token_trie *trie, unsigned char byte, uint32_t sibling, uint32_t *out) {
    if (trie->nodes.count == 0) TRY(vec_push(&trie->nodes, (struct token_trie_node){.value = NO_VALUE}));
    if (trie->nodes.count >= NO_VALUE) return status_no_memory(trie->nodes.count, "added tokens");
    *out = (uint32_t)trie->nodes.count;
    return vec_push(&trie->nodes, (struct token_trie_node){.sibling = sibling, .value = NO_VALUE, .byte = byte});
}

static uint32_t child_find(const struct token_trie *trie, uint32_t node, unsigned char byte) {
    uint32_t child = trie->nodes.items[node].child;
    while (child != 0 && trie->nodes.items[child].byte != byte)
        child = trie->nodes.items[child].sibling;
    return child;
}

enum status token_trie_add(struct token_trie *trie, const char *text, size_t bytes, uint32_t value, bool *added) {
    BUG_IF(bytes == 0, "an empty string in a trie");
    unsigned char byte = (unsigned char)text[0];
    if (trie->first[byte] == 0) TRY(node_create(trie, byte, 0, &trie->first[byte]));
    uint32_t node = trie->first[byte];
    for (size_t i = 1; i < bytes; i++) {
        byte = (unsigned char)text[i];
        uint32_t child = child_find(trie, node, byte);
        if (child == 0) {
            TRY(node_create(trie, byte, trie->nodes.items[node].child, &child));
            trie->nodes.items[node].child = child;
        }
        node = child;
    }
    *added = trie->nodes.items[node].value == NO_VALUE;
    if (!*added) return STATUS_OK;
    trie->nodes.items[node].value = value;
    trie->count++;
    if (bytes > trie->longest_bytes) trie->longest_bytes = bytes;
    return STATUS_OK;
}

size_t token_trie_match(const struct token_trie *trie, const char *text, size_t bytes, uint32_t *value) {
    size_t longest = 0;
    uint32_t node = bytes > 0 ? trie->first[(unsigned char)text[0]] : 0;
    for (size_t length = 1; node != 0; length++) {
        if (trie->nodes.items[node].value != NO_VALUE) {
            longest = length;
            *value = trie->nodes.items[node].value;
        }
        node = length < bytes ? child_find(trie, node, (unsigned char)text[length]) : 0;
    }
    return longest;
}

void token_trie_free(struct token_trie *trie) {
    vec_free(&trie->nodes);
    *trie = (struct token_trie){0};
}
