/* Heap memory, growing arrays, and scratch regions.
 *
 * All of Ballast's heap memory comes through here, so that tests can count allocations and make each fail in turn. A
 * training step's own memory does not: it lies in the arenas of src/runtime/store. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

/* Zeroed memory for `count` items of `size` bytes, or NULL (with the message set) when there is none, the product
 * overflows, or a fault is injected. A request for 0 bytes gives a valid pointer. */
void *mem_array(size_t count, size_t size);
/* Has the pointer at `out` point to so many of its items (mem_array). */
#define mem_items(out, count) ((*(out) = mem_array((count), sizeof **(out))) ? STATUS_OK : STATUS_FAILED)
/* Grows or shrinks; on failure the old block stays valid and NULL is returned. New bytes are not cleared. */
void *mem_resize(void *block, size_t count, size_t size);
/* The same at an address that is a multiple of `alignment`, a power of two that divides `bytes`. */
void *mem_aligned(size_t alignment, size_t bytes);
void mem_free(void *block);
/* A copy of a string, or NULL. */
char *mem_string(const char *text);
/* printf into fresh memory, or NULL. */
char *mem_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Frees a local variable wherever its scope is left, so that TRY may leave it at any point:
 *
 *         AUTO_FREE char *path = path_join(directory, "plan.json");
 *         AUTO(costs_free) struct costs costs = {0};
 *         TRY(costs_read(path, &costs));
 *         *out = TAKE(costs);
 *         return STATUS_OK;
 *
 * AUTO names the function that frees it, which gets its address and must do for one that is all zero. The last variable
 * goes first. jansson has json_auto_t for its values. */
#define AUTO(release) __attribute__((cleanup(release)))
#define AUTO_FREE AUTO(mem_free_at) /* mem_free of a pointer */
#define AUTO_VEC AUTO(mem_free_at)  /* vec_free */
static inline void mem_free_at(void *variable) {
    void *block;
    memcpy(&block, variable, sizeof block);
    mem_free(block);
}
/* The variable's value, which the caller owns from now on; it is all zero after that. */
#define TAKE(variable)                                                                                                 \
    __extension__({                                                                                                    \
        __typeof__(variable) taken_ = (variable);                                                                      \
        memset(&(variable), 0, sizeof(variable));                                                                      \
        taken_;                                                                                                        \
    })

/* a*b and a+b for sizes that come from files; false on overflow. */
static inline bool mem_multiply(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool mem_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

/* A growing array: `VEC(int) v = {0}; TRY(vec_push(&v, 3)); v.items[0]; vec_free(&v);`. AUTO_VEC needs `items` first.
 */
#define VEC(type)                                                                                                      \
    struct {                                                                                                           \
        type *items;                                                                                                   \
        size_t count, capacity;                                                                                        \
    }

#define vec_push(v, ...)                                                                                               \
    (vec_reserve_bytes((void **)&(v)->items, &(v)->capacity, (v)->count + 1, sizeof *(v)->items)                       \
         ? ((v)->items[(v)->count++] = (__VA_ARGS__), STATUS_OK)                                                       \
         : STATUS_FAILED)
/* Space for `n` items in all; contents beyond count are undefined. */
#define vec_reserve(v, n)                                                                                              \
    (vec_reserve_bytes((void **)&(v)->items, &(v)->capacity, (n), sizeof *(v)->items) ? STATUS_OK : STATUS_FAILED)
#define vec_free(v) (mem_free((v)->items), (v)->items = NULL, (v)->count = (v)->capacity = 0, (void)0)
bool vec_reserve_bytes(void **items, size_t *capacity, size_t wanted, size_t item_bytes);

/* A region that is freed as a whole: for structures built piece by piece and dropped together (graphs, programs).
 * Zero-initialise, use, scratch_free. */
struct scratch {
    struct scratch_block *blocks; /* newest first */
};
/* Zeroed, 16-byte aligned; NULL as mem_array. Valid until scratch_free. */
void *scratch_alloc(struct scratch *scratch, size_t count, size_t size);
/* As mem_items. */
#define scratch_items(scratch, out, count)                                                                             \
    ((*(out) = scratch_alloc((scratch), (count), sizeof **(out))) ? STATUS_OK : STATUS_FAILED)
char *scratch_format(struct scratch *scratch, const char *format, ...) __attribute__((format(printf, 2, 3)));
void scratch_free(struct scratch *scratch);

/* Large blocks of whole pages, for arenas: from mmap, on huge pages where the system has them, zeroed and touched by
 * all threads, so that their memory is there before the first step. */

/* At a multiple of 4096. NULL, without a message, when the system refuses or FAULT_ALLOCATE is injected. */
void *pages_take(size_t bytes);
/* With the bytes that were taken; NULL is fine. */
void pages_release(void *base, size_t bytes);
