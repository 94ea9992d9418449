#include "base/hash.h"

/* Half a byte at a time: the events of a step are a few hundred bytes. */
uint32_t crc32c(const void *data, size_t bytes) {
    const uint32_t reversed_polynomial = 0x82f63b78;
    uint32_t table[16], crc = 0xffffffff;
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int bit = 0; bit < 4; bit++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ reversed_polynomial : table[i] >> 1;
    }
    for (const unsigned char *at = data, *end = at + bytes; at < end; at++) {
        crc = crc >> 4 ^ table[(crc ^ *at) & 15];
        crc = crc >> 4 ^ table[(crc ^ (uint32_t)*at >> 4) & 15];
    }
    return ~crc;
}
