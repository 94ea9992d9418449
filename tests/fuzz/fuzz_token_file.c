/* Token files of any content: either refused or read to the last token. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/token_file.h"

static void read_all(const struct token_view *view) {
    enum { PART = 100 };
    int32_t out[PART];
    for (int64_t first = 0; first < view->count; first += PART)
        token_view_read(view, first, view->count - first < PART ? view->count - first : PART, out);
    uint64_t hash;
    int64_t vocab_size = 1000;
    if (token_view_examine("input", view, vocab_size, &hash) != STATUS_OK) return;
    for (int64_t i = 0; i < view->count; i++) {
        token_view_read(view, i, 1, out);
        if (out[0] < 0 || out[0] >= vocab_size) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    /* At an aligned place, as a mapped file is, with nothing after it. */
    unsigned char *file = mem_array(bytes, 1);
    if (!file) return 0;
    memcpy(file, data, bytes);
    struct token_view view;
    if (token_file_parse("input", file, bytes, &view) == STATUS_OK) read_all(&view);
    mem_free(file);
    return 0;
}
