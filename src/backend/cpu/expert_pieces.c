#include "backend/cpu/expert_pieces.h"

struct expert_pieces expert_pieces_of(int64_t tile, int64_t most) {
    struct expert_pieces pieces = {.tile = tile};
    for (int64_t rows = tile; pieces.wholes < PIECE_WHOLE_SIZES && (pieces.wholes == 0 || rows <= most);
         rows *= PIECE_WHOLE_STEP)
        pieces.whole[pieces.wholes++] = rows;
    for (int i = 0; i < pieces.wholes; i++) {
        int64_t rows = pieces.whole[i] - tile + PIECE_ROWS_STEP;
        for (; rows < pieces.whole[i]; rows += PIECE_ROWS_STEP)
            pieces.rows[pieces.sizes++] = rows;
        pieces.rows[pieces.sizes++] = pieces.whole[i];
    }
    return pieces;
}

int expert_pieces_first(const struct expert_pieces *pieces, int64_t rows) {
    int64_t tiles = (rows + pieces->tile - 1) / pieces->tile * pieces->tile;
    int whole = pieces->wholes - 1, size = 0;
    while (pieces->whole[whole] > tiles)
        whole--;
    int64_t wanted = rows < pieces->whole[whole] ? rows : pieces->whole[whole];
    while (pieces->rows[size] < wanted)
        size++;
    return size;
}
