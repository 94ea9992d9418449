/* Any ballast_manifest.json is refused or gives a manifest of complete files. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct manifest manifest;
    if (manifest_parse("manifest", (const char *)data, bytes, &manifest) != STATUS_OK) return 0;
    for (size_t i = 0; i < manifest.files.count; i++) {
        const struct manifest_file *file = &manifest.files.items[i];
        if (file->sums.blocks.count != file_blocks(file->sums.bytes, file->sums.block_bytes)) abort();
        if (file->name[0] == '\0' || strchr(file->name, '/')) abort();
    }
    manifest_free(&manifest);
    return 0;
}
