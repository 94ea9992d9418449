#include "base/nearest.h"

enum { LENGTH_MAX = 64 };

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

/* Letters to insert, delete, replace or swap with their neighbour (optimal string alignment). */
static size_t edit_distance(const char *a, const char *b) {
    size_t rows[3][LENGTH_MAX + 1], a_length = strlen(a), b_length = strlen(b);
    if (a_length > LENGTH_MAX || b_length > LENGTH_MAX) return LENGTH_MAX;
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        above[j] = before[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replace = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min(replace, min(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = min(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = above, above = row, row = oldest;
    }
    return above[b_length];
}

void nearest_consider(struct nearest *nearest, const char *candidate) {
    size_t distance = edit_distance(nearest->wanted, candidate), length = strlen(nearest->wanted);
    /* A name that was begun and not finished is near too. */
    if (length >= 3 && strncmp(nearest->wanted, candidate, length) == 0) distance = 1;
    size_t limit = length / 3 > 2 ? length / 3 : 2;
    if (distance > limit || distance >= length || (nearest->best && distance >= nearest->distance)) return;
    nearest->best = candidate;
    nearest->distance = distance;
}

enum status nearest_hint(enum status code, const char *thing, const char *wanted, const char *const *names,
                         size_t count) {
    struct nearest nearest = {.wanted = wanted};
    for (size_t i = 0; i < count; i++)
        nearest_consider(&nearest, names[i]);
    if (nearest.best) return status_hint(code, "the nearest legal %s is %s", thing, nearest.best);
    char all[512] = "";
    for (size_t i = 0, used = 0; i < count && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s",
                                 i == 0          ? ""
                                 : i + 1 < count ? ", "
                                                 : " and ",
                                 names[i]);
    return status_hint(code, "the legal %ss are %s", thing, all);
}
