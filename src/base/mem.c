#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

static void *checked(void *block, size_t bytes) {
    if (!block) (void)status_no_memory(bytes, "a working structure");
    return block;
}

void *mem_array(size_t count, size_t size) {
    size_t bytes;
    if (!mem_multiply(count, size, &bytes)) return checked(NULL, SIZE_MAX);
    if (fault_point(FAULT_ALLOCATE)) return checked(NULL, bytes);
    return checked(calloc(1, bytes ? bytes : 1), bytes);
}

void *mem_resize(void *block, size_t count, size_t size) {
    size_t bytes;
    if (!mem_multiply(count, size, &bytes)) return checked(NULL, SIZE_MAX);
    if (fault_point(FAULT_ALLOCATE)) return checked(NULL, bytes);
    return checked(realloc(block, bytes ? bytes : 1), bytes);
}

void *mem_aligned(size_t alignment, size_t bytes) {
    if (fault_point(FAULT_ALLOCATE)) return checked(NULL, bytes);
    void *block = checked(aligned_alloc(alignment, bytes), bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

void mem_free(void *block) { free(block); }

char *mem_string(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = mem_array(bytes, 1);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *mem_format(const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? checked(NULL, SIZE_MAX) : mem_array((size_t)length + 1, 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

bool vec_reserve_bytes(void **items, size_t *capacity, size_t wanted, size_t item_bytes) {
    if (wanted <= *capacity) return true;
    size_t grown = *capacity + *capacity / 2 + 8;
    if (grown < wanted) grown = wanted;
    void *block = mem_resize(*items, grown, item_bytes);
    if (!block) return false;
    *items = block;
    *capacity = grown;
    return true;
}

enum { SCRATCH_BLOCK_BYTES = 1 << 16 };

struct scratch_block {
    struct scratch_block *next;
    size_t used, bytes; /* of data */
    _Alignas(16) unsigned char data[];
};

void *scratch_alloc(struct scratch *scratch, size_t count, size_t size) {
    size_t bytes, total;
    if (!mem_multiply(count, size, &bytes) || !mem_add(bytes, 15, &total)) return checked(NULL, SIZE_MAX);
    bytes = total & ~(size_t)15;
    struct scratch_block *block = scratch->blocks;
    if (!block || block->bytes - block->used < bytes) {
        size_t capacity = bytes > SCRATCH_BLOCK_BYTES ? bytes : SCRATCH_BLOCK_BYTES;
        if (!mem_add(capacity, sizeof *block, &total)) return checked(NULL, SIZE_MAX);
        block = mem_array(total, 1);
        if (!block) return NULL;
        block->next = scratch->blocks;
        block->bytes = capacity;
        scratch->blocks = block;
    }
    void *result = block->data + block->used;
    block->used += bytes;
    return result;
}

char *scratch_format(struct scratch *scratch, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? checked(NULL, SIZE_MAX) : scratch_alloc(scratch, (size_t)length + 1, 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void scratch_free(struct scratch *scratch) {
    for (struct scratch_block *block = scratch->blocks, *next; block; block = next) {
        next = block->next;
        mem_free(block);
    }
    scratch->blocks = NULL;
}
