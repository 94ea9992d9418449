/* Any token file is refused, or can be read to the last token. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "data/token_file.h"

static void read_all(const struct token_view *view) {
    enum { PART = 100 };
    int32_t out[PART];
    for (int64_t first = 0; first < view->count; first += PART)
        if (token_view_read(view, first, view->count - first < PART ? view->count - first : PART, out) != STATUS_OK)
            abort();
    uint64_t hash;
    int64_t vocab_size = 1000;
    if (token_view_examine("input", view, vocab_size, &hash) != STATUS_OK) return;
    for (int64_t i = 0; i < view->count; i++) {
        if (token_view_read(view, i, 1, out) != STATUS_OK || out[0] < 0 || out[0] >= vocab_size) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct token_view view;
    struct file_input file = file_input_of_memory(data, bytes);
    if (token_file_parse("input", &file, &view) == STATUS_OK) read_all(&view);
    return 0;
}
