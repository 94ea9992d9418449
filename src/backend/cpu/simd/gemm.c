/* GEMMs of packed panels, by vectors and by the processor's tiles, and packing a and b into panels. */
#include "backend/cpu/simd/amx.h"
#include "backend/cpu/simd/simd.h"

enum { PREFETCH_LINE = 64 };

/* ---- memory that is prefetched ahead of its use, a share at a time ---- */

/* Bytes that will be read soon: some of their lines of the cache are asked for in each turn of a loop. */
struct prefetch {
    const char *line;
    int64_t at, bytes, stride, lines; /* within the line that is next; of each line */
    int64_t share;                    /* of a turn */
};

INLINE struct prefetch prefetch_of(const void *from, int64_t lines, int64_t bytes, int64_t stride, int64_t turns) {
    int64_t all = lines * ((bytes + PREFETCH_LINE - 1) / PREFETCH_LINE);
    return (struct prefetch){from, 0, bytes, stride, lines, (all + turns - 1) / turns};
}

INLINE void prefetch_lines(struct prefetch *from, int64_t count) {
    for (; count > 0 && from->lines > 0; count--) {
        __builtin_prefetch(from->line + from->at, 1, 2);
        from->at += PREFETCH_LINE;
        if (from->at < from->bytes) continue;
        from->at = 0, from->line += from->stride, from->lines--;
    }
}

/* ---- by vectors ---- */

enum { LINE = 64 / (int)sizeof(float) };

/* Prefetches for a tile: its sums, its c, its share of the next panel of b. */
INLINE void fetch(const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i += LINE)
        __builtin_prefetch(from + i, 0, 2);
}

/* Finishes a vector of sums with `left` valid columns. */
INLINE void finish_vector(vf value, int64_t index, int64_t left, bool bias_bf16, const void *bias, bool bf16,
                          const void *addend, void *c) {
    if (bias) value += load(bias, index, left, bias_bf16);
    if (addend) value += load(addend, index, left, bf16);
    store(c, index, left, bf16, value);
}

/* A row of a result, and where its bias and addend are; NULL: none. */
struct result_row {
    const void *bias, *addend;
    void *c;
    bool bias_bf16;
};

INLINE struct result_row row_of(const struct gemm_result *result, int64_t row, bool bf16) {
    int64_t bytes = bf16 ? 2 : 4;
    return (struct result_row){
        .bias = result->bias,
        .addend = result->addend ? (const char *)result->addend + row * result->addend_row * bytes : NULL,
        .c = (char *)result->c + row * result->c_row * bytes,
        .bias_bf16 = result->bias_dtype == DTYPE_BF16,
    };
}

typedef vf tile_sums[GEMM_TILE_ROWS][GEMM_VECTORS];

INLINE void finish_whole(tile_sums sum, const struct gemm_result *result, int64_t row, int64_t column, bool bf16) {
    for (int i = 0; i < GEMM_TILE_ROWS; i++) {
        struct result_row to = row_of(result, row + i, bf16);
        for (int j = 0; j < GEMM_VECTORS; j++)
            finish_vector(sum[i][j], column + j * LANES, LANES, to.bias_bf16, to.bias, bf16, to.addend, to.c);
    }
}

/* A tile at the edge of c. */
static void finish_part(const float *sums, const struct gemm_result *result, int64_t row, int64_t column) {
    bool bf16 = result->dtype == DTYPE_BF16;
    for (int64_t i = 0; i < GEMM_TILE_ROWS && row + i < result->rows; i++) {
        struct result_row to = row_of(result, row + i, bf16);
        for (int64_t j = 0; j < GEMM_COLUMNS && column + j < result->columns; j += LANES)
            finish_vector(vf_load(sums + i * GEMM_COLUMNS + j), column + j, result->columns - column - j, to.bias_bf16,
                          to.bias, bf16, to.addend, to.c);
    }
}

INLINE void tile_store(tile_sums sum, float *to) {
    for (int i = 0; i < GEMM_TILE_ROWS; i++)
        for (int j = 0; j < GEMM_VECTORS; j++)
            vf_store(to + i * GEMM_COLUMNS + j * LANES, sum[i][j]);
}

INLINE void tile_finish(tile_sums sum, const struct gemm_result *result, int64_t row, int64_t column) {
    if (result->rows - row < GEMM_TILE_ROWS || result->columns - column < GEMM_COLUMNS) {
        float part[GEMM_TILE_ROWS * GEMM_COLUMNS];
        tile_store(sum, part);
        finish_part(part, result, row, column);
    } else {
        WITH_CONSTANT(bf16, result->dtype == DTYPE_BF16, finish_whole(sum, result, row, column, bf16));
    }
}

INLINE void fetch_result(const struct gemm_result *result, int64_t row, int64_t column) {
    int64_t bytes = result->dtype == DTYPE_BF16 ? 2 : 4;
    for (int64_t i = row; i < row + GEMM_TILE_ROWS && i < result->rows; i++) {
        const char *c = (const char *)result->c + (i * result->c_row + column) * bytes;
        __builtin_prefetch(c, 1, 2);
        __builtin_prefetch(c + GEMM_COLUMNS * bytes - 1, 1, 2);
        if ((int)GEMM_COLUMNS > (int)LINE) __builtin_prefetch(c + GEMM_COLUMNS * bytes / 2, 1, 2);
    }
}

/* Keeps a tile of sums in registers for all steps, then adds those of the steps before, which have come near by now. */
INLINE void tile_multiply(const struct gemm_block *block, const float *a, const float *b, float *sums, int64_t row,
                          int64_t column) {
    vf sum[GEMM_TILE_ROWS][GEMM_VECTORS];
    for (int i = 0; i < GEMM_TILE_ROWS; i++)
        for (int j = 0; j < GEMM_VECTORS; j++)
            sum[i][j] = (vf){0};
#pragma GCC unroll 2
    for (int64_t p = 0; p < block->steps; p++, a += GEMM_ROWS, b += GEMM_COLUMNS) {
        vf right[GEMM_VECTORS];
        for (int j = 0; j < GEMM_VECTORS; j++)
            right[j] = vf_load(b + j * LANES);
        for (int i = 0; i < GEMM_TILE_ROWS; i++) {
            vf left = vf_set(a[i]);
            for (int j = 0; j < GEMM_VECTORS; j++)
                sum[i][j] = vf_fma(left, right[j], sum[i][j]);
        }
    }
    if (block->accumulate)
        for (int i = 0; i < GEMM_TILE_ROWS; i++)
            for (int j = 0; j < GEMM_VECTORS; j++)
                sum[i][j] = vf_load(sums + i * GEMM_COLUMNS + j * LANES) + sum[i][j];
    if (block->result)
        tile_finish(sum, block->result, row, column);
    else
        tile_store(sum, sums);
}

/* c of the tile after this one, or of this one where it is the first. */
INLINE void fetch_next(const struct gemm_block *block, int64_t rows, int64_t row, int64_t column) {
    if (row == 0 && column == 0) fetch_result(block->result, row, column);
    row += GEMM_TILE_ROWS;
    if (row == rows) row = 0, column += GEMM_COLUMNS;
    if (column < block->columns) fetch_result(block->result, row, column);
}

/* A panel of b stays in the first cache while all rows pass; the next one is fetched meanwhile, a share by each tile.
 */
void SIMD_NAME(simd_gemm)(const struct gemm_block *block) {
    int64_t rows = (block->rows + GEMM_ROWS - 1) / GEMM_ROWS * GEMM_ROWS;
    int64_t tiles = rows / GEMM_TILE_ROWS * ((block->columns + GEMM_COLUMNS - 1) / GEMM_COLUMNS);
    struct prefetch later =
        prefetch_of(block->later.from, block->later.lines, block->later.bytes, block->later.stride, tiles);
    int64_t share = (block->steps * GEMM_COLUMNS * GEMM_TILE_ROWS / rows + LINE - 1) / LINE * LINE;
    const float *b = block->b;
    float *sums = block->sums;
    for (int64_t j = 0; j < block->columns; j += GEMM_COLUMNS, b += block->b_stride) {
        const float *next = b + block->b_stride, *a = block->a;
        bool last = j + GEMM_COLUMNS >= block->columns;
        for (int64_t i = 0; i < rows; i += GEMM_TILE_ROWS, sums += GEMM_TILE_ROWS * GEMM_COLUMNS) {
            int64_t within = i % GEMM_ROWS;
            if (!last) fetch(next, share), next += share;
            if (block->accumulate) fetch(sums, GEMM_TILE_ROWS * GEMM_COLUMNS);
            if (block->result) fetch_next(block, rows, i, j);
            prefetch_lines(&later, later.share);
            tile_multiply(block, a + within, b, sums, i, j);
            if (within + GEMM_TILE_ROWS == GEMM_ROWS) a += block->a_stride;
        }
    }
}

/* Steps that are asked for ahead where each is a row of its own. */
enum { STEPS_AHEAD = 8 };

/* Steps of a panel lie together in the matrix: rows of it are read from end to end of the panels. */
INLINE void pack_along(bool bf16, const struct gemm_packing *packing) {
    int64_t width = packing->width, bytes = bf16 ? 2 : 4, all = packing->panels * width * bytes;
    for (int64_t p = 0; p < packing->steps; p++) {
        const char *ahead = (const char *)packing->from + (p + STEPS_AHEAD) * packing->step_stride * bytes;
        for (int64_t i = 0; i < all; i += 64)
            __builtin_prefetch(ahead + i, 0, 2);
        for (int64_t panel = 0; panel < packing->panels; panel++) {
            float *to = packing->to + panel * packing->panel_stride + p * width;
            for (int64_t j = 0, at = panel * width; j < width; j += LANES, at += LANES)
                vf_store(to + j, at < packing->left
                                     ? load(packing->from, p * packing->step_stride + at, packing->left - at, bf16)
                                     : (vf){0});
        }
    }
}

/* A square of LANES lines and steps; `left` lines and steps are there. */
INLINE void pack_square(bool bf16, const void *from, int64_t at, int64_t stride, int64_t lines, int64_t steps,
                        int64_t width, float *to) {
    vf square[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        square[i] = i < lines ? load(from, at + i * stride, steps, bf16) : (vf){0};
    vf_turn(square);
    if (steps >= LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            vf_store(to + i * width, square[i]);
    } else {
        for (int i = 0; i < steps; i++)
            vf_store(to + i * width, square[i]);
    }
}

/* Lines lie apart in the matrix, and neighbours are steps. Whole cache lines of a group of lines are read before the
 * next group, while the group after it is prefetched. */
INLINE void pack_across(bool bf16, const struct gemm_packing *packing) {
    int64_t width = packing->width, steps = packing->steps, stride = packing->stride, bytes = bf16 ? 2 : 4;
    int64_t line = 64 / bytes > LANES ? 64 / bytes : LANES;
    for (int64_t panel = 0; panel < packing->panels; panel++) {
        float *to = packing->to + panel * packing->panel_stride;
        int64_t first = panel * width;
        for (int64_t j = 0; j < width; j += LANES)
            for (int64_t p = 0; p < steps; p += line) {
                const char *ahead = (const char *)packing->from + ((first + j + LANES) * stride + p) * bytes;
                for (int i = 0; i < LANES; i++)
                    __builtin_prefetch(ahead + i * stride * bytes, 0, 2);
                for (int64_t q = p; q < p + line && q < steps; q += LANES)
                    pack_square(bf16, packing->from, (first + j) * stride + q, stride, packing->left - first - j,
                                steps - q, width, to + q * width + j);
            }
    }
}

void SIMD_NAME(simd_gemm_pack)(const struct gemm_packing *packing) {
    WITH_CONSTANT(bf16, packing->dtype == DTYPE_BF16, {
        if (packing->stride == 1)
            pack_along(bf16, packing);
        else
            pack_across(bf16, packing);
    });
}

INLINE void finish_row(int64_t n, const float *sums, bool bias_bf16, const void *bias, bool bf16, const void *addend,
                       void *c) {
    int64_t i = 0;
    for (; n - i >= LANES; i += LANES)
        finish_vector(vf_load(sums + i), i, LANES, bias_bf16, bias, bf16, addend, c);
    if (i < n) finish_vector(load(sums, i, n - i, false), i, n - i, bias_bf16, bias, bf16, addend, c);
}

INLINE void finish(const struct gemm_result *result, const float *sums, int64_t sums_row, bool bf16) {
    int64_t n = result->columns, bytes = bf16 ? 2 : 4;
    bool bias_bf16 = result->bias_dtype == DTYPE_BF16;
    for (int64_t row = 0; row < result->rows; row++, sums += sums_row) {
        const char *addend = result->addend ? (const char *)result->addend + row * result->addend_row * bytes : NULL;
        char *c = (char *)result->c + row * result->c_row * bytes;
        if (result->bias)
            finish_row(n, sums, bias_bf16, result->bias, bf16, addend, c);
        else if (addend)
            finish_row(n, sums, false, NULL, bf16, addend, c);
        else
            finish_row(n, sums, false, NULL, bf16, NULL, c);
    }
}

void SIMD_NAME(simd_gemm_finish)(const struct gemm_result *result, const float *sums, int64_t sums_row) {
    WITH_CONSTANT(bf16, result->dtype == DTYPE_BF16, finish(result, sums, sums_row, bf16));
}

/* GEMMs of packed pairs of bf16 by the processor's tiles (AMX): four tiles of sums, 32 rows by 32 columns, stay in
 * their registers for all steps. */

#if SIMD_LANES == 16

enum { TILE_WORDS = AMX_WORDS, PANEL = AMX_BLOCK, LINE_BYTES = PREFETCH_LINE };
/* In which what memory is asked for comes: some 64 cycles each. */
enum { TURNS_AHEAD = 8 };

/* c[32][32] (+)= a b over words of two steps; a [32][words], b [words][32]. */
INLINE AMX void panel_multiply(int64_t words, const float *a, const float *b, float *sums, bool accumulate,
                               struct prefetch *c, struct prefetch *later) {
    if (accumulate)
        amx_block_load(sums, PANEL);
    else
        amx_block_zero();
    for (int64_t word = 0; word < words; word += TILE_WORDS) {
        amx_block_add(a + word, words, b + word * PANEL, PANEL);
        prefetch_lines(c, c->share);
        prefetch_lines(later, later->share);
    }
}

/* Rows of a panel become columns. */
static void turn_panel(const float *from, float *to) {
    for (int row = 0; row < PANEL; row += LANES)
        for (int column = 0; column < PANEL; column += LANES) {
            vf square[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                square[i] = vf_load(from + (row + i) * PANEL + column);
            vf_turn(square);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                vf_store(to + (column + i) * PANEL + row, square[i]);
        }
}

/* The part of c of a panel whose sums begin with this row and column. */
static struct gemm_result part_of(const struct gemm_result *result, int64_t sums_row, int64_t sums_column) {
    int64_t bytes = result->dtype == DTYPE_BF16 ? 2 : 4, bias_bytes = result->bias_dtype == DTYPE_BF16 ? 2 : 4;
    int64_t row = result->turned ? sums_column : sums_row, column = result->turned ? sums_row : sums_column;
    struct gemm_result part = *result;
    part.rows = result->rows - row < PANEL ? result->rows - row : PANEL;
    part.columns = result->columns - column < PANEL ? result->columns - column : PANEL;
    part.c = (char *)result->c + (row * result->c_row + column) * bytes;
    if (part.bias) part.bias = (const char *)result->bias + column * bias_bytes;
    if (part.addend) part.addend = (const char *)result->addend + (row * result->addend_row + column) * bytes;
    return part;
}

static void panel_finish(const struct gemm_result *part, const float *sums) {
    float turned[PANEL * PANEL];
    if (part->turned) turn_panel(sums, turned);
    SIMD_NAME(simd_gemm_finish)(part, part->turned ? turned : sums, PANEL);
}

/* Panels of a block, each panel of b with all of a, and a turn for each tile of words. */
struct panels {
    int64_t down, all, turns, ahead; /* ahead: c of so many panels is on its way while one is computed */
};

static struct panels panels_of(const struct gemm_block *block) {
    struct panels panels = {.down = (block->rows + PANEL - 1) / PANEL, .turns = block->steps / TILE_WORDS};
    panels.all = panels.down * ((block->columns + PANEL - 1) / PANEL);
    panels.ahead = 1 + TURNS_AHEAD / panels.turns;
    return panels;
}

static struct prefetch prefetch_of_panel(const struct gemm_block *block, const struct panels *panels, int64_t panel) {
    if (!block->result || panel >= panels->all) return (struct prefetch){.lines = 0};
    struct gemm_result part = part_of(block->result, panel % panels->down * PANEL, panel / panels->down * PANEL);
    int64_t element = part.dtype == DTYPE_BF16 ? 2 : 4, before = (int64_t)((uintptr_t)part.c % LINE_BYTES);
    return prefetch_of((const char *)part.c - before, part.rows, part.columns * element + before, part.c_row * element,
                       panels->turns);
}

/* A panel of b stays in the first cache while all rows pass. */
AMX void SIMD_NAME(simd_gemm_pairs)(const struct gemm_block *block) {
    struct panels panels = panels_of(block);
    struct prefetch later = prefetch_of(block->later.from, block->later.lines, block->later.bytes, block->later.stride,
                                        panels.all * panels.turns);
    float *sums = block->sums;
    amx_begin();
    for (int64_t panel = 0; panel < panels.ahead; panel++) {
        struct prefetch first = prefetch_of_panel(block, &panels, panel);
        prefetch_lines(&first, INT64_MAX);
    }
    for (int64_t panel = 0; panel < panels.all; panel++, sums += PANEL * PANEL) {
        const float *a = block->a + panel % panels.down * block->a_stride;
        const float *b = block->b + panel / panels.down * block->b_stride;
        struct prefetch c = prefetch_of_panel(block, &panels, panel + panels.ahead);
        panel_multiply(block->steps, a, b, sums, block->accumulate, &c, &later);
        if (block->result) {
            float whole[PANEL * PANEL];
            struct gemm_result part = part_of(block->result, panel % panels.down * PANEL, panel / panels.down * PANEL);
            amx_block_store(whole, PANEL);
            panel_finish(&part, whole);
        } else {
            amx_block_store(sums, PANEL);
        }
    }
    _tile_release();
}

#else

void SIMD_NAME(simd_gemm_pairs)(const struct gemm_block *block) { (void)block; }

#endif
