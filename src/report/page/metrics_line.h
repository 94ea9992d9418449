/* A line of metrics.jsonl as Ballast writes it, read without a tree: a million lines take 3 s of processor time,
 * not 12. */
#ifndef BALLAST_REPORT_PAGE_METRICS_LINE_H
#define BALLAST_REPORT_PAGE_METRICS_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "report/page/metrics_reader.h"

/* What a line says. NaN: nothing, or null. */
struct metrics_line {
    int64_t step;
    double values[METRIC_COUNT];
    json_t *expert_slots; /* NULL: none, as in every line that is scanned */
};

/* A flat object of numbers and nulls without escapes, "step" a whole number from 1 that comes once. False for every
 * other line, also for those that are JSON all the same: a JSON reader then has the word. `line` ends with '\n'. */
bool metrics_line_scan(const char *line, struct metrics_line *out);

#endif
