/* The plan for people: model, recipe, and memory by kind of every tier. */
#ifndef BALLAST_REPORT_PLAN_TABLE_H
#define BALLAST_REPORT_PLAN_TABLE_H

#include <stdio.h>

#include "train/train_setup.h"

/* Exact bytes of each kind in each tier, the arena, the capacity, and "projected … of … available". */
void plan_table_print(FILE *out, const struct train_setup *setup);

#endif
