#include "text/tokenizer/tables.h"

static struct string_slot *slot_find(const struct string_table *table, const char *text, size_t bytes) {
    size_t mask = table->slot_count - 1, place = hash_bytes(text, bytes) & mask;
    for (;; place = (place + 1) & mask) {
        struct string_slot *slot = &table->slots[place];
        if (!slot->text || (slot->bytes == bytes && memcmp(slot->text, text, bytes) == 0)) return slot;
    }
}

enum status string_table_reserve(struct string_table *table, size_t count) {
    size_t slot_count = 16, wanted;
    if (!mem_multiply(count, 4, &wanted)) return status_no_memory(count, "a table of strings");
    while (slot_count <= wanted / 3)
        slot_count *= 2;
    if (slot_count <= table->slot_count) return STATUS_OK;
    struct string_table grown = {.slot_count = slot_count, .count = table->count};
    grown.slots = mem_array(slot_count, sizeof *grown.slots);
    if (!grown.slots) return STATUS_FAILED;
    for (size_t i = 0; i < table->slot_count; i++) {
        const struct string_slot *slot = &table->slots[i];
        if (slot->text) *slot_find(&grown, slot->text, slot->bytes) = *slot;
    }
    mem_free(table->slots);
    *table = grown;
    return STATUS_OK;
}

enum status string_table_add(struct string_table *table, const char *text, uint32_t bytes, uint32_t id) {
    TRY(string_table_reserve(table, table->count + 1));
    *slot_find(table, text, bytes) = (struct string_slot){.text = text, .bytes = bytes, .id = id};
    table->count++;
    return STATUS_OK;
}

bool string_table_find(const struct string_table *table, const char *text, size_t bytes, uint32_t *id) {
    if (table->count == 0) return false;
    const struct string_slot *slot = slot_find(table, text, bytes);
    if (!slot->text) return false;
    *id = slot->id;
    return true;
}

void string_table_free(struct string_table *table) {
    mem_free(table->slots);
    *table = (struct string_table){0};
}

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

static enum status pair_table_grow(struct pair_table *table) {
    struct pair_table grown = {.slot_count = table->slot_count ? 2 * table->slot_count : 64, .count = table->count};
    grown.slots = mem_array(grown.slot_count, sizeof *grown.slots);
    if (!grown.slots) return STATUS_FAILED;
    for (size_t i = 0; i < grown.slot_count; i++)
        grown.slots[i].value = PAIR_NONE;
    for (size_t i = 0; i < table->slot_count; i++) {
        const struct pair_slot *slot = &table->slots[i];
        if (slot->value != PAIR_NONE) *pair_table_slot(&grown, slot->left, slot->right) = *slot;
    }
    mem_free(table->slots);
    *table = grown;
    return STATUS_OK;
}

enum status pair_table_set(struct pair_table *table, uint32_t left, uint32_t right, uint32_t value) {
    if (2 * (table->count + 1) > table->slot_count) TRY(pair_table_grow(table));
    struct pair_slot *slot = pair_table_slot(table, left, right);
    table->count += slot->value == PAIR_NONE;
    *slot = (struct pair_slot){left, right, value};
    return STATUS_OK;
}

void pair_table_free(struct pair_table *table) {
    mem_free(table->slots);
    *table = (struct pair_table){0};
}
