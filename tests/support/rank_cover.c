#include "support/rank_cover.h"

#include "base/mem.h"
#include "support/unit.h"

enum { VALUES_MAX = 64 };

struct pairs {
    bool seen[RANK_AXES][VALUES_MAX][RANK_AXES][VALUES_MAX];
};

static int count_new(const struct pairs *pairs, const struct rank_case *spec) {
    int count = 0;
    for (int a = 0; a < RANK_AXES; a++)
        for (int b = a + 1; b < RANK_AXES; b++)
            count += !pairs->seen[a][spec->value[a]][b][spec->value[b]];
    return count;
}

static void note(struct pairs *pairs, const struct rank_case *spec) {
    for (int a = 0; a < RANK_AXES; a++)
        for (int b = a + 1; b < RANK_AXES; b++)
            pairs->seen[a][spec->value[a]][b][spec->value[b]] = true;
}

/* Two values that some case has. */
struct pair {
    int axes[2], values[2];
};

static struct rank_case with_pair(struct rank_case spec, const struct pair *pair) {
    for (int k = 0; k < 2; k++)
        spec.value[pair->axes[k]] = pair->values[k];
    return spec;
}

static bool has_axis(const struct pair *pair, enum rank_axis axis) {
    return pair->axes[0] == (int)axis || pair->axes[1] == (int)axis;
}

/* Lanes and stages that no job of so many ranks could have are the only pairs that no case has. */
static bool is_possible(const struct pair *pair) {
    bool bound = has_axis(pair, RANK_AXIS_job) && (has_axis(pair, RANK_AXIS_lanes) || has_axis(pair, RANK_AXIS_stages));
    struct rank_case spec = with_pair((struct rank_case){.seed = 0}, pair);
    return !bound || rank_case_is_legal(&spec);
}

static bool find_missing(const struct pairs *pairs, struct pair *out) {
    for (int a = 0; a < RANK_AXES; a++)
        for (int b = a + 1; b < RANK_AXES; b++)
            for (int i = 0; i < rank_axis_values((enum rank_axis)a); i++)
                for (int j = 0; j < rank_axis_values((enum rank_axis)b); j++) {
                    *out = (struct pair){{a, b}, {i, j}};
                    if (!pairs->seen[a][i][b][j] && is_possible(out)) return true;
                }
    return false;
}

/* A legal case with the pair. */
static struct rank_case draw_with(uint64_t seed, uint64_t *number, const struct pair *pair) {
    struct rank_case spec;
    do
        spec = with_pair(rank_case_random(seed, (*number)++), pair);
    while (!rank_case_is_legal(&spec));
    return spec;
}

/* Each case has a pair that none had, and of some random ones around it the one with most new pairs. */
struct rank_case *rank_cover_pairs(uint64_t seed, size_t *count) {
    enum { TRIES = 50, MAX = 4096 };
    struct pairs *pairs = mem_array(1, sizeof *pairs);
    struct rank_case *cases = mem_array(MAX, sizeof *cases);
    assert_true(pairs && cases);
    struct pair missing;
    uint64_t number = 0;
    for (*count = 0; *count < MAX && find_missing(pairs, &missing); (*count)++) {
        struct rank_case *best = &cases[*count];
        for (int i = 0; i < TRIES; i++) {
            struct rank_case tried = draw_with(seed, &number, &missing);
            if (i == 0 || count_new(pairs, &tried) > count_new(pairs, best)) *best = tried;
        }
        note(pairs, best);
    }
    mem_free(pairs);
    return cases;
}

size_t rank_cover_take(struct rank_case *cases, size_t count, enum rank_axis axis, int value) {
    size_t taken = 0;
    for (size_t i = 0; i < count; i++) {
        if (cases[i].value[axis] != value) continue;
        struct rank_case held = cases[taken];
        cases[taken++] = cases[i];
        cases[i] = held;
    }
    return taken;
}
