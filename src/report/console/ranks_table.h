/* The communication of several ranks per step, for people. */
#ifndef BALLAST_REPORT_CONSOLE_RANKS_TABLE_H
#define BALLAST_REPORT_CONSOLE_RANKS_TABLE_H

#include <stdio.h>

#include "machine/links.h"
#include "plan/ranks.h"
#include "search/sim/step_summary.h"

/* The ranks; the bytes that one of them moves; how much of the time overlaps with its compute; and how sure these
 * seconds are. Nothing on one rank. */
void ranks_table_print(FILE *out, const struct rank_place *place, const struct step_summary *step,
                       const struct cluster_links *links);

#endif
