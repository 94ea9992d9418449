/* Searches with the same results on every machine: a model's graph on invented machines with several amounts of
 * memory. */
#pragma once

#include "plan/plan.h"
#include "support/step_graph.h"

enum { SEARCH_ROWS = 12 };

/* One machine and amount of memory. */
struct search_row {
    const char *machine;
    double part;   /* of the plain policy's bytes that the device holds */
    double step_s; /* of the fastest policy found; 0: nothing fits */
    int64_t compiled;
    struct policy policy; /* the fastest found */
    double walked_s;      /* of the fastest that a walk from there found (policy_walk.h) */
    struct policy walked;
};
/* How many programs each search may compile, 0: search_max_compiled; and a walk from its result. On machines whose
 * names have `machine` in them; NULL: on all. Rows of others have step_s 0. */
struct search_effort {
    int max_compiled, walked;
    const char *machine;
};

enum status search_rows_find(const struct step_graph_size *size, struct search_effort effort,
                             struct search_row rows[SEARCH_ROWS]);
