/* Results of cases with known answers, and the sections that have a solver. */
#pragma once

#include <stdio.h>

#include "base/mem.h"
#include "support/case_json.h"

enum { CASE_FAULT_BYTES = 160 };
/* Objectives are equal within this, relative to the larger. */
#define CASE_GAP_MAX 1e-3

struct case_result {
    const char *section;
    int index;                    /* of the case in its list */
    char place[CASE_PLACE_BYTES]; /* in the section: "grids[0].cases[3]" */
    double objective;             /* INFINITY: there is no solution */
    json_t *more;                 /* further fields of the result, or NULL; owned */
    bool silent;                  /* not in the array of results, where its case has another */
    bool answered;                /* the file holds an answer */
    double gap;                   /* of the objective, relative to the answer; below 0: better */
    char fault[CASE_FAULT_BYTES]; /* "": it holds */
};
struct case_results {
    struct case_result *items;
    size_t count, capacity;
    FILE *skipped; /* where what has no solver is named; NULL: nowhere */
};

/* Adds it, with `more`, which is dropped where that fails. */
enum status case_results_add(struct case_results *results, const struct case_result *result);
void case_results_free(struct case_results *results);

/* Names a case that is left out, and why. */
void case_skip(const struct case_results *results, const char *name, const char *place, const char *why);

/* Compares the objective with an answer; INFINITY where the file says that there is no solution. Equal within
 * CASE_GAP_MAX or, with `may_be_better`, less. */
void case_compare(struct case_result *result, double answer, bool may_be_better);
/* The first fault stays. */
void case_fail(struct case_result *result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts the section's name before the message of a case that failed; the place is in it. */
enum status case_named(const char *name, enum status status);
/* Solves all cases of a section whose value is `section`; errors name the section, the place in it and the field. */
typedef enum status case_solver(const char *name, const json_t *section, struct case_results *out);
case_solver solve_difference_cases, solve_conversion_cases, solve_mesh_cases, solve_reshape_cases, solve_strategy_cases,
    solve_colossal_cases, solve_alpa_cases, solve_stage_cases, solve_rotor_cases, solve_other_cases;

/* Solves all sections of a file's top value, in its order. Those without a solver are named on `skipped`, where that is
 * not NULL. Free `out` with case_results_free, also after a failure. */
enum status case_results_solve(const json_t *file, FILE *skipped, struct case_results *out);
