/* Timelines as a Chrome trace, the JSON that Perfetto and chrome://tracing show ("Trace Event Format", Google, 2016).
 */
#pragma once

#include <jansson.h>

#include "base/base.h"

/* An empty trace: {"displayTimeUnit": "ms", "traceEvents": []}. NULL when out of memory. */
json_t *trace_create(void);
/* Adds a timeline in the form of timeline_to_json as a process of its own: streams as threads, memory by tier and kind
 * as counters. `process` counts from 1; `file` stands for where the timeline was read. BAD_INPUT naming file and field
 * for what is no timeline. */
enum status trace_add(json_t *trace, int process, const char *file, const json_t *timeline);
