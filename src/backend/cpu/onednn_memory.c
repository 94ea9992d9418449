#include "backend/cpu/onednn_memory.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* As many groups as there are threads at once, so that each finds a group that no other uses. */
enum { GROUPS = 512, SLOTS = 16, SLOT_BYTES = 128 };

struct group {
    _Alignas(64) _Atomic uint32_t used; /* a bit for each slot */
    _Alignas(64) unsigned char slots[SLOTS][SLOT_BYTES];
};

static struct group groups[GROUPS];
static _Atomic uint32_t threads;
static _Thread_local int inside, own_group = -1;

void onednn_memory_enter(void) {
    if (own_group < 0) own_group = (int)(atomic_fetch_add(&threads, 1) % GROUPS);
    inside++;
}

void onednn_memory_leave(void) { inside--; }

static void *slot_take(struct group *group) {
    uint32_t used = atomic_load_explicit(&group->used, memory_order_relaxed);
    while (used != (UINT32_C(1) << SLOTS) - 1) {
        int slot = __builtin_ctz(~used);
        if (atomic_compare_exchange_weak_explicit(&group->used, &used, used | UINT32_C(1) << slot, memory_order_acquire,
                                                  memory_order_relaxed))
            return group->slots[slot];
    }
    return NULL;
}

static bool slot_give(const void *block) {
    uintptr_t offset = (uintptr_t)block - (uintptr_t)groups;
    if (offset >= sizeof groups) return false;
    struct group *group = &groups[offset / sizeof *group];
    uintptr_t slot = ((uintptr_t)block - (uintptr_t)group->slots) / SLOT_BYTES;
    atomic_fetch_and_explicit(&group->used, ~(UINT32_C(1) << slot), memory_order_release);
    return true;
}

/* Calls the C++ library's operator, or malloc and free in a program without the C++ library. */
static void *pass_on_new(size_t bytes) {
    static void *(*_Atomic next)(size_t);
    void *(*function)(size_t) = atomic_load(&next);
    if (!function) {
        *(void **)&function = dlsym(RTLD_NEXT, "_Znwm");
        if (!function) function = malloc;
        atomic_store(&next, function);
    }
    return function(bytes);
}

static void pass_on_delete(void *block) {
    static void (*_Atomic next)(void *);
    void (*function)(void *) = atomic_load(&next);
    if (!function) {
        *(void **)&function = dlsym(RTLD_NEXT, "_ZdlPv");
        if (!function) function = free;
        atomic_store(&next, function);
    }
    function(block);
}

/* operator new(size_t), operator delete(void *) and operator delete(void *, size_t) by their names in the object code
 * (Itanium C++ ABI, 64-bit). */
void *onednn_operator_new(size_t bytes) __asm__("_Znwm");
void onednn_operator_delete(void *block) __asm__("_ZdlPv");
void onednn_operator_delete_sized(void *block, size_t bytes) __asm__("_ZdlPvm");

void *onednn_operator_new(size_t bytes) {
    void *slot = inside > 0 && bytes <= SLOT_BYTES ? slot_take(&groups[own_group]) : NULL;
    return slot ? slot : pass_on_new(bytes);
}

void onednn_operator_delete(void *block) {
    if (!slot_give(block)) pass_on_delete(block);
}

void onednn_operator_delete_sized(void *block, size_t bytes) {
    (void)bytes;
    onednn_operator_delete(block);
}
