/* A timeline file (search/sim/timeline.h) made ready for the page: checked field by field, thinned to what a screen can
 * show, and with the chain of events that the step's length comes from. */
#ifndef BALLAST_REPORT_PAGE_PAGE_TIMELINE_H
#define BALLAST_REPORT_PAGE_PAGE_TIMELINE_H

#include <jansson.h>

#include "base/status.h"

enum {
    PAGE_TIMELINE_EVENTS = 12000, /* at most, of about 50 bytes each in the page */
    PAGE_TIMELINE_POINTS = 1200   /* of each tier */
};

/* The file's object with
 *   - "events" rows whose last numbers are: how many events the row stands for (neighbours on a stream that are too
 *     short to be seen go together; the name is that of the longest), 1 where it is on the chain, else 0, and the row
 *     whose end let it begin, -1 where that is not known;
 *   - "bounds": [{"role", "phase", "seconds"}] of the chain, the largest first;
 *   - "points" of which the highest and the lowest in each interval of time are left.
 * BAD_INPUT "FILE: FIELD: …". The caller drops it. */
enum status page_timeline_read(const char *path, json_t **out);
/* The same of an object that is there already; `name` stands for the path in messages. */
enum status page_timeline_make(const char *name, const json_t *timeline, json_t **out);

#endif
