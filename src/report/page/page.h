/* The page: one HTML file that needs nothing else, made of the sources in src/report/page/sources and one JSON document
 * (page_data.h).
 *
 * Files, in the order to read them:
 *   page: this file; page_data: the document, from the files of a run or a plan;
 *   metrics_reader: metrics.jsonl and samples.jsonl as they grow, in bounded memory;
 *   timeline: a timeline checked, chained and thinned;
 *   serve, serve_absent: the page over HTTP, a build without it; prometheus: /metrics;
 *   trace: timelines for Perfetto.
 *   scale_page: plans for many devices, drawn here in C, for a page and for files;
 *   sources/ (page.html, style.css, and scripts, each one idea):
 *     main: also follows a live run; dom, format, scale: helpers; view: zoom and cursor on one axis;
 *     curves, curve_data: training; step, schedule, memory, timeline, events: one step;
 *     scatter, policy, plan: the plan and what it was chosen over; samples, summary. */
#pragma once

#include <jansson.h>

#include "base/base.h"

/* The document as text that may stand in a <script>: no "<", ">" or "&" is left in it, whatever the texts hold.
 * mem_free. NULL when out of memory. */
char *page_text_of(const json_t *document);
/* The whole page, with a NUL after it; mem_free. NULL when out of memory. `bytes` may be NULL. */
char *page_make(const json_t *document, size_t *bytes);

/* The page before and after its data; src/report/page/make_page_source.cmake generates both from the sources. */
extern const unsigned char page_source_before[], page_source_after[];
extern const size_t page_source_before_bytes, page_source_after_bytes;
