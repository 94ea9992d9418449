#include "text/tokenizer/string_table.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

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
