/* Events of a timeline file as plain rows: read and checked, chained, thinned. Private to the page. */
#ifndef BALLAST_REPORT_TIMELINE_ROWS_H
#define BALLAST_REPORT_TIMELINE_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

struct timeline_row {
    int32_t stream, name, block, section, grain, phase; /* indices of the file's lists; -1: none */
    double start_us, end_us;
    double longest_us; /* of the events it stands for: the one that gave the name */
    int64_t bytes;
    int32_t events; /* that it stands for */
    bool chained;   /* on the chain that the step's length comes from */
};

struct timeline_rows {
    VEC(struct timeline_row) items; /* by stream, then by time */
    int32_t streams, phases;
    double end_us; /* of the last event */
};

/* BAD_INPUT "NAME: events[12]: …". The caller calls vec_free(&out->items). */
enum status timeline_rows_read(const char *name, const json_t *timeline, struct timeline_rows *out);
/* Marks the chain: from the event that ends last, each time the one whose end let it begin. That is the one before it
 * on its stream, unless the stream stood still in between; then the event of another stream that had just ended. */
enum status timeline_rows_chain(struct timeline_rows *rows);
/* Joins neighbours on a stream, the shortest first, until at most `most` rows are left. */
void timeline_rows_thin(struct timeline_rows *rows, size_t most);

#endif
