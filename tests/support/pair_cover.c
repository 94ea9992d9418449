#include "support/pair_cover.h"

#include "base/mem.h"
#include "base/random.h"
#include "support/unit.h"

/* Two values that some row has. */
struct pair {
    int axes[2], values[2];
};

struct pairs {
    bool seen[PAIR_COVER_AXES][PAIR_COVER_VALUES][PAIR_COVER_AXES][PAIR_COVER_VALUES];
};

/* Legal or not, with the pair where there is one. */
static void draw(const struct pair_cover *cover, uint64_t number, const struct pair *pair, int *row) {
    for (int axis = 0; axis < cover->axes; axis++)
        row[axis] = (int)(random_u64(cover->seed, RANDOM_TEST, (uint32_t)axis, number) % (uint64_t)cover->values[axis]);
    for (int k = 0; pair && k < 2; k++)
        row[pair->axes[k]] = pair->values[k];
}

void pair_cover_draw(const struct pair_cover *cover, uint64_t number, int row[PAIR_COVER_AXES]) {
    for (uint64_t try = 0;; try++) {
        draw(cover, number + (try << 32), NULL, row);
        if (cover->is_legal(row)) return;
    }
}

static int count_new(const struct pair_cover *cover, const struct pairs *pairs, const int *row) {
    int count = 0;
    for (int a = 0; a < cover->axes; a++)
        for (int b = a + 1; b < cover->axes; b++)
            count += !pairs->seen[a][row[a]][b][row[b]];
    return count;
}

static void note(const struct pair_cover *cover, struct pairs *pairs, const int *row) {
    for (int a = 0; a < cover->axes; a++)
        for (int b = a + 1; b < cover->axes; b++)
            pairs->seen[a][row[a]][b][row[b]] = true;
}

static bool find_missing(const struct pair_cover *cover, const struct pairs *pairs, struct pair *out) {
    for (int a = 0; a < cover->axes; a++)
        for (int b = a + 1; b < cover->axes; b++)
            for (int i = 0; i < cover->values[a]; i++)
                for (int j = 0; j < cover->values[b]; j++) {
                    *out = (struct pair){{a, b}, {i, j}};
                    if (!pairs->seen[a][i][b][j]) return true;
                }
    return false;
}

/* Of some legal rows with the pair, the one with most new pairs. False where none could be drawn. */
static bool find_best(const struct pair_cover *cover, const struct pairs *pairs, const struct pair *pair,
                      uint64_t *number, int *best) {
    enum { LEGAL = 50, DRAWS = 20000 };
    int legal = 0, max = -1, row[PAIR_COVER_AXES];
    for (int i = 0; i < DRAWS && legal < LEGAL; i++) {
        draw(cover, (*number)++, pair, row);
        if (!cover->is_legal(row)) continue;
        legal++;
        int count = count_new(cover, pairs, row);
        if (count > max) max = count, memcpy(best, row, sizeof row);
    }
    return legal > 0;
}

struct pair_row *pair_cover_make(const struct pair_cover *cover, size_t *count) {
    enum { MAX = 4096 };
    struct pairs *pairs = mem_array(1, sizeof *pairs);
    struct pair_row *rows = mem_array(MAX, sizeof *rows);
    struct pair missing;
    uint64_t number = 0;
    assert_true(pairs && rows && cover->axes <= PAIR_COVER_AXES);
    for (*count = 0; *count < MAX && find_missing(cover, pairs, &missing);)
        if (find_best(cover, pairs, &missing, &number, rows[*count].value))
            note(cover, pairs, rows[(*count)++].value);
        else
            pairs->seen[missing.axes[0]][missing.values[0]][missing.axes[1]][missing.values[1]] = true;
    mem_free(pairs);
    return rows;
}
