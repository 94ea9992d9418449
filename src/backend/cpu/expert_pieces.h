/* How an expert's rows, whose number is known only when its kernel is called, are cut into pieces of a few sizes, for
 * which products are made ready: the largest first. So the pieces depend on the number of rows alone. The last one may
 * end with rows of the tile that hold no slot; most of these are left out. */
#ifndef BALLAST_BACKEND_CPU_EXPERT_PIECES_H
#define BALLAST_BACKEND_CPU_EXPERT_PIECES_H

#include <stdint.h>

/* Whole pieces: a tile, and STEP times as many rows each. Of the last tile of a piece, ROWS_STEP rows are left out at a
 * time. */
enum {
    PIECE_WHOLE_SIZES = 3,
    PIECE_WHOLE_STEP = 4,
    PIECE_ROWS_STEP = 16,
    PIECE_TILE_STEPS = 4,
    PIECE_SIZES = PIECE_WHOLE_SIZES * PIECE_TILE_STEPS
};

struct expert_pieces {
    int64_t tile, whole[PIECE_WHOLE_SIZES], rows[PIECE_SIZES]; /* the largest last */
    int wholes, sizes;
};
/* Of tiles of so many rows, where an expert has `most` rows at most. */
struct expert_pieces expert_pieces_of(int64_t tile, int64_t most);
/* The piece that such a number of rows begins with. */
int expert_pieces_first(const struct expert_pieces *pieces, int64_t rows);

#endif
