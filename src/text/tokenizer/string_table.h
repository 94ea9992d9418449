/* A table from byte strings to 32-bit ids. The strings are borrowed and must outlive the table. */
#ifndef BALLAST_TEXT_TOKENIZER_STRING_TABLE_H
#define BALLAST_TEXT_TOKENIZER_STRING_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

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

#endif
