/* CRC-32C (Castagnoli), as in iSCSI (RFC 3720, section 12.1). */
#ifndef BALLAST_BASE_CRC32C_H
#define BALLAST_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *data, size_t bytes);

#endif
