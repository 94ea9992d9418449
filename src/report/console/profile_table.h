/* Measurements, for people: the machine, its rates, and a model's operators. */
#pragma once

#include "base/base.h"
#include "machine/cluster.h"
#include "profile/model.h"

/* An operator of a step. */
struct profile_row {
    const struct profiled_operator *profiled;
    int64_t count; /* calls per step */
};

/* Rates and slowdowns; unmeasured ones are omitted. */
void profile_table_print_machine(FILE *out, const struct cluster *cluster);
/* Seconds, GFLOP/s, GB/s, spread and count of each, in decreasing order of time per step. Notes a spread of more than a
 * tenth. Sorts the rows. */
void profile_table_print_operators(FILE *out, struct profile_row *rows, int count);
/* A line after `lead` if operators were measured on parts of them, otherwise nothing. */
void profile_table_print_parts(FILE *out, const char *lead, const struct costs *costs);
/* Seconds of all calls. */
double profile_table_sum(const struct profile_row *rows, int count);
