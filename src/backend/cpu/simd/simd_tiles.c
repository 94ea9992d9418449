/* GEMMs of packed pairs of bf16 by the processor's tiles (AMX): four tiles of sums, 32 rows by 32 columns, stay in
 * their registers for all steps. */
#include "backend/cpu/simd/amx.h"
#include "backend/cpu/simd/prefetch.h"
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/turn.h"

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
