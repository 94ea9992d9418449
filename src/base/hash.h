/* Hashes for tables in memory. Not for files: values may differ between machines. */
#pragma once

#include "base/base.h"

/* A bijection on 64 bits in which every input bit reaches every output bit. */
static inline uint64_t hash_mix(uint64_t value) {
    value = (value ^ value >> 32) * 0x9E3779B97F4A7C15u;
    value = (value ^ value >> 29) * 0xBF58476D1CE4E5B9u;
    return value ^ value >> 32;
}

static inline uint64_t hash_bytes(const char *text, size_t bytes) {
    uint64_t hash = bytes, word;
    for (; bytes >= sizeof word; text += sizeof word, bytes -= sizeof word) {
        memcpy(&word, text, sizeof word);
        hash = hash_mix(hash ^ word);
    }
    word = 0;
    for (size_t i = 0; i < bytes; i++)
        word = word << 8 | (unsigned char)text[i];
    return hash_mix(hash ^ word);
}

/* CRC-32C (Castagnoli), as in iSCSI (RFC 3720, section 12.1). */

uint32_t crc32c(const void *data, size_t bytes);
