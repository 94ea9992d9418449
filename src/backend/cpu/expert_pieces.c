#include "backend/cpu/expert_pieces.h"

#include "backend/cpu/matmul_parts.h"

static void add_fixed_sizes(struct expert_pieces *pieces, int64_t max) {
    for (int64_t rows = pieces->tile; pieces->wholes < PIECE_WHOLE_SIZES && (pieces->wholes == 0 || rows <= max);
         rows *= PIECE_WHOLE_STEP)
        pieces->whole[pieces->wholes++] = rows;
    for (int i = 0; i < pieces->wholes; i++) {
        int64_t rows = pieces->whole[i] - pieces->tile + PIECE_ROWS_STEP;
        for (; rows < pieces->whole[i]; rows += PIECE_ROWS_STEP)
            pieces->rows[pieces->sizes++] = rows;
        pieces->rows[pieces->sizes++] = pieces->whole[i];
    }
    pieces->max = pieces->rows[pieces->sizes - 1];
}

struct expert_pieces expert_pieces_of(int64_t tile, int64_t max, bool any) {
    struct expert_pieces pieces = {.any = any, .tile = tile, .step = smaller(tile, PIECE_ROWS_STEP)};
    if (any)
        pieces.max = smaller(PIECE_ROWS_MAX, rounded_up(max, pieces.step));
    else
        add_fixed_sizes(&pieces, max);
    return pieces;
}

static int fixed_size(const struct expert_pieces *pieces, int64_t rows) {
    int64_t tiles = rounded_up(rows, pieces->tile);
    int whole = pieces->wholes - 1, size = 0;
    while (pieces->whole[whole] > tiles)
        whole--;
    int64_t wanted = smaller(rows, pieces->whole[whole]);
    while (pieces->rows[size] < wanted)
        size++;
    return size;
}

int64_t expert_pieces_first(const struct expert_pieces *pieces, int64_t rows, int *size) {
    if (pieces->any) return equal_part(rows, pieces->max, pieces->step);
    *size = fixed_size(pieces, rows);
    return pieces->rows[*size];
}
