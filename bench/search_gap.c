/* What stopping early costs a search, with as many compiled programs as a start has time for
 * (bench/support/search_rows.h).
 *
 *     build/bench/search_gap [MOST_COMPILED]
 *
 * MOST_COMPILED (200): what the longer search may compile. Each row is a model, a machine and an amount of memory, as a
 * part of what the plain policy takes; 1.000 is no worse. The last line has the mean and the most of all rows. */
#include <stdio.h>
#include <stdlib.h>

#include "base/process.h"
#include "support/search_rows.h"

static const struct step_graph_size sizes[] = {
    {"12 x 768, 2 grains of 1024", 12, 768, 12, 50257, 1024, 2},
    {"12 x 768, 8 grains of 1024", 12, 768, 12, 50257, 1024, 8},
    {"36 x 1280, 1 grain of 1024", 36, 1280, 20, 50257, 1024, 1},
    {"36 x 1280, 8 grains of 1024", 36, 1280, 20, 50257, 1024, 8},
    {"48 x 1600, 1 grain of 512", 48, 1600, 25, 50257, 512, 1},
};

struct gaps {
    int rows;
    double sum, most;
};

static enum status compare(const struct step_graph_size *size, int most, struct gaps *gaps) {
    struct search_row usual[SEARCH_ROWS], longer[SEARCH_ROWS];
    TRY(search_rows_find(size, 0, usual));
    TRY(search_rows_find(size, most, longer));
    for (int i = 0; i < SEARCH_ROWS; i++) {
        if (usual[i].step_s == 0 || longer[i].step_s == 0) continue;
        double ratio = usual[i].step_s / longer[i].step_s;
        printf("%-28s %-21s %.2f  %8.3f s of %3lld, %8.3f s of %3lld: %.3f\n", size->name, usual[i].machine,
               usual[i].part, usual[i].step_s, (long long)usual[i].compiled, longer[i].step_s,
               (long long)longer[i].compiled, ratio);
        gaps->rows++;
        gaps->sum += ratio;
        if (ratio > gaps->most) gaps->most = ratio;
    }
    return STATUS_OK;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    int most = count > 1 ? atoi(arguments[1]) : 200;
    struct gaps gaps = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (compare(&sizes[i], most, &gaps) != STATUS_OK) {
            fprintf(stderr, "search_gap: %s: %s\n", sizes[i].name, status_message());
            return 1;
        }
    printf("%d rows: mean %.3f, most %.3f\n", gaps.rows, gaps.sum / (gaps.rows > 0 ? gaps.rows : 1), gaps.most);
    return 0;
}
