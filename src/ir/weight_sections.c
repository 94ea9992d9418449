#include "ir/weight_sections.h"

#include <string.h>

int64_t weight_piece_overlap(const struct weight_piece *piece, int64_t at, int64_t bytes, int64_t *begin) {
    int64_t end = piece->first + piece->bytes - at;
    *begin = piece->first > at ? piece->first - at : 0;
    if (end > bytes) end = bytes;
    return end > *begin ? end - *begin : 0;
}

void weight_piece_put(const struct weight_piece *piece, int64_t at, int64_t bytes, const void *from) {
    int64_t begin, count = weight_piece_overlap(piece, at, bytes, &begin);
    if (count > 0) memcpy(weight_piece_at(piece, at + begin), (const unsigned char *)from + begin, (size_t)count);
}
