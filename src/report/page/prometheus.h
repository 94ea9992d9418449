/* The numbers of a run in Prometheus' text format (version 0.0.4). */
#pragma once

#include <jansson.h>

/* Of a run's document (page_data.h): each number that is known, with HELP and TYPE. mem_free; NULL when out of memory.
 */
char *prometheus_text(const json_t *document);
