/* Bytes that have no address, such as those of a tensor on a disk: a store copies them to and from memory. */
#pragma once

#include "base/base.h"

struct byte_store {
    /* Copies [offset, offset + bytes) of the data that `key` names to memory, or memory there. FAILED if it cannot. One
     * call at a time. */
    enum status (*read)(void *payload, const void *key, int64_t offset, int64_t bytes, void *to);
    enum status (*write)(void *payload, const void *key, int64_t offset, int64_t bytes, const void *from);
    void *payload;
};

/* Copies through a store are in pieces of at most this size. */
enum { BYTE_STORE_PIECE = 1 << 20 };
