/* The page: one HTML file that needs nothing else, made of the sources in src/report/page/sources and one JSON document
 * (below).
 *
 * Files, in the order to read them:
 *   page: this file: the document, from the files of a run or a plan; the page; /metrics of a server;
 *   metrics_reader: metrics.jsonl and samples.jsonl as they grow, in bounded memory;
 *   timeline: a timeline checked, chained and thinned; timelines for Perfetto;
 *   serve, serve_absent: the page over HTTP, a build without it;
 *   scale_page: plans for many devices, drawn here in C, for a page and for files;
 *   sources/ (page.html, style.css, and scripts, each one idea):
 *     main: also follows a live run; dom, format, scale: helpers; view: zoom and cursor on one axis;
 *     curves, curve_data: training; step, schedule, memory, timeline, events: one step;
 *     scatter, policy, plan: the plan and what it was chosen over; samples, summary. */
#pragma once

#include <jansson.h>

#include "base/base.h"

/* What the page shows, as one JSON document, gathered from the files of a run or from a plan file:
 *
 *   {"version", "ballast", "kind": "run" or "plan", "name", "directory", "model_name", "revision",
 *    "resume":    the command that goes on with a run, for a shell
 *    "model":     numbers and texts of the model's config.json, or null
 *    "options":   of run.json, or null
 *    "plan":      RUN_DIR/plan.json, else what run.json says; the plan file
 *    "measured":  RUN_DIR/timeline.json by timeline.h, or null
 *    "predicted": RUN_DIR/predicted.json, or null
 *    "metrics":   metrics_reader.h, or null
 *    "samples":   metrics_reader.h
 *    "compare":    another run's {"name", "folder", "step_tokens", "metrics"}, or null
 *    "end":       {"state", "message"} by train/run_state.h, where page_run_end was called}
 *
 * A run's name is that of its directory; "directory" is its path without links. A plan has no directory.
 * Only run.json or the plan file must be there. What is there is checked: BAD_INPUT names file and field. */

/* The caller drops the document. */
enum status page_data_of_plan(const char *plan_path, json_t **out);
/* Sets "predicted" from what timeline_to_json gives. */
enum status page_data_predict(json_t *document, const json_t *timeline);

/* A run that may still go on: its metrics are read once, however often the document is asked for. */
struct page_run;
/* compared: another run's directory, whose curves are drawn too; NULL: none. BAD_INPUT where that one is no run. The
 * run's own directory need not be there yet. */
enum status page_run_open(const char *run_folder, const char *compared, struct page_run **out);
void page_run_close(struct page_run *run);
enum status page_run_data(struct page_run *run, json_t **out);
/* Sets "end": how the run ended, or that it goes on. Not for a run of this process, which is about to take its lock. */
enum status page_run_end(const char *run_folder, json_t *document);
/* {"revision", "metrics", "compare", "samples": their count}: what changes from step to step. The revision is another
 * when a file other than the metrics has changed, so that the whole document is worth asking for. */
enum status page_run_changes(struct page_run *run, json_t **out);

/* The document as text that may stand in a <script>: no "<", ">" or "&" is left in it, whatever the texts hold.
 * mem_free. NULL when out of memory. */
char *page_text_of(const json_t *document);
/* The whole page, with a NUL after it; mem_free. NULL when out of memory. `bytes` may be NULL. */
char *page_make(const json_t *document, size_t *bytes);

/* The page before and after its data; src/report/page/make_page_source.cmake generates both from the sources. */
extern const unsigned char page_source_before[], page_source_after[];
extern const size_t page_source_before_bytes, page_source_after_bytes;

/* The numbers of a run in Prometheus' text format (version 0.0.4). */

/* Of a run's document: each number that is known, with HELP and TYPE. mem_free; NULL when out of memory.
 */
char *prometheus_text(const json_t *document);
