/* Measures how much slower a policy is because a search stops after the number of compiled programs that a start has
 * time for (bench/support/search_rows.h).
 *
 *     build/bench/search_gap [MAX_COMPILED [WALKED [MODEL [MACHINE]]]]
 *
 * The reference is a longer search, which compiles up to MAX_COMPILED (200) programs. From its result, a walk then
 * tries WALKED (0) more policies, in and beyond the search's space (bench/support/policy_walk.h). MODEL and MACHINE
 * select rows whose names contain them.
 *
 * A row is a model, a machine and an amount of memory, as a fraction of the plain policy's. 1.000 means no worse than
 * the best known policy. If a row is more than 2% worse, both policies follow. The last line has the mean and the
 * maximum of all rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/terminal.h"
#include "support/policy_spread.h"
#include "support/search_rows.h"

static const struct step_graph_size sizes[] = {
    {"8 x 512, 4 micro-batches of 128", 8, 512, 8, 512, 128, 4},
    {"8 x 256, 8 micro-batches of 256", 8, 256, 8, 512, 256, 8},
    {"12 x 768, 2 micro-batches of 1024", 12, 768, 12, 50257, 1024, 2},
    {"12 x 768, 8 micro-batches of 1024", 12, 768, 12, 50257, 1024, 8},
    {"36 x 1280, 1 micro-batch of 1024", 36, 1280, 20, 50257, 1024, 1},
    {"36 x 1280, 8 micro-batches of 1024", 36, 1280, 20, 50257, 1024, 8},
    {"48 x 1600, 1 micro-batch of 512", 48, 1600, 25, 50257, 512, 1},
};

static const double PRINTED = 1.02;

struct gaps {
    int rows;
    double sum, max;
};

static void print_policy(const char *name, const struct policy *policy) {
    char text[POLICY_TEXT];
    printf("    %-7s %s\n            %s\n", name, policy_spread_print(policy, text), policy->schedule);
}

static enum status compare(const struct step_graph_size *size, struct search_effort effort, struct gaps *gaps) {
    struct search_row usual[SEARCH_ROWS], longer[SEARCH_ROWS];
    TRY(search_rows_find(size, (struct search_effort){.machine = effort.machine}, usual));
    TRY(search_rows_find(size, effort, longer));
    for (int i = 0; i < SEARCH_ROWS; i++) {
        if (usual[i].step_s == 0 || longer[i].step_s == 0) continue;
        double ratio = usual[i].step_s / longer[i].walked_s;
        printf("%-28s %-21s %.2f  %8.3f s of %3lld, %8.3f s of %3lld, %8.3f s walked: %.3f\n", size->name,
               usual[i].machine, usual[i].part, usual[i].step_s, (long long)usual[i].compiled, longer[i].step_s,
               (long long)longer[i].compiled, longer[i].walked_s, ratio);
        if (ratio > PRINTED) {
            print_policy("usual", &usual[i].policy);
            print_policy("longer", &longer[i].policy);
            print_policy("walked", &longer[i].walked);
        }
        fflush(stdout);
        gaps->rows++;
        gaps->sum += ratio;
        if (ratio > gaps->max) gaps->max = ratio;
    }
    return STATUS_OK;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    const struct search_effort effort = {count > 1 ? atoi(arguments[1]) : 200, count > 2 ? atoi(arguments[2]) : 0,
                                         count > 4 ? arguments[4] : NULL};
    struct gaps gaps = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if ((count <= 3 || strstr(sizes[i].name, arguments[3])) && compare(&sizes[i], effort, &gaps) != STATUS_OK) {
            fprintf(stderr, "search_gap: %s: %s\n", sizes[i].name, status_message());
            return 1;
        }
    printf("%d rows: mean %.3f, most %.3f\n", gaps.rows, gaps.sum / (gaps.rows > 0 ? gaps.rows : 1), gaps.max);
    return 0;
}
