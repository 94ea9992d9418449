
#include <stdarg.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/terminal.h"

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

/* In memory of the region, or of the heap where there is none. */
static char *format_text(struct scratch *scratch, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0) return checked(NULL, SIZE_MAX);
    size_t bytes = (size_t)length + 1;
    char *text = scratch ? scratch_alloc(scratch, bytes, 1) : mem_array(bytes, 1);
    if (text) vsnprintf(text, bytes, format, arguments);
    return text;
}

char *mem_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = format_text(NULL, format, arguments);
    va_end(arguments);
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
    va_list arguments;
    va_start(arguments, format);
    char *text = format_text(scratch, format, arguments);
    va_end(arguments);
    return text;
}

void scratch_free(struct scratch *scratch) {
    for (struct scratch_block *block = scratch->blocks, *next; block; block = next) {
        next = block->next;
        mem_free(block);
    }
    scratch->blocks = NULL;
}

/* The system clears a page at the first write to it, which takes most of the time of loading in a virtual machine: all
 * threads write one byte of each page. */
static void touch(volatile char *base, size_t bytes) {
    enum { PAGE_BYTES = 4096, BLOCK_BYTES = 16 << 20 };
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < bytes; first += BLOCK_BYTES) {
        size_t end = bytes - first < BLOCK_BYTES ? bytes : first + BLOCK_BYTES;
        for (size_t at = first; at < end; at += PAGE_BYTES)
            base[at] = 0;
        progress_add((int64_t)(end - first));
    }
}

void *pages_take(size_t bytes) {
    if (fault_point(FAULT_ALLOCATE)) return NULL;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    /* An arena is used from end to end each step, and 4 KiB pages cost address translation. */
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    progress_begin(PROGRESS_BYTES, (int64_t)bytes, "taking memory");
    touch(base, bytes);
    progress_end();
    return base;
}

void pages_release(void *base, size_t bytes) {
    if (base) munmap(base, bytes);
}
