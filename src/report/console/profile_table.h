/* What was measured, for people: the machine, its rates, and a model's operators. */
#pragma once

#include "base/base.h"
#include "machine/cluster.h"
#include "profile/model.h"

/* An operator of a step. */
struct profile_row {
    const struct profiled_operator *profiled;
    int64_t count; /* calls in a step */
};

/* Rates and slowdowns; those that were not measured are left out. */
void profile_table_print_machine(FILE *out, const struct cluster *cluster);
/* Seconds, GFLOP/s, GB/s, spread and count of each, those first that take most of a step; a note where a spread is
 * more than a tenth. Sorts the rows. */
void profile_table_print_operators(FILE *out, struct profile_row *rows, int count);
/* A line after `lead` where operators were measured on parts of them, else nothing. */
void profile_table_print_parts(FILE *out, const char *lead, const struct costs *costs);
/* Seconds of all calls. */
double profile_table_sum(const struct profile_row *rows, int count);
