/* The page: one self-contained HTML file, made from the sources in src/report/page/sources and one JSON document
 * (below).
 *
 * Files, in the order to read them:
 * - page: this file; the document, from the files of a run or a plan; the page; a server's /metrics
 * - metrics_reader: metrics.jsonl and samples.jsonl as they grow, in bounded memory
 * - timeline: checks, chains and thins a timeline; timelines for Perfetto
 * - serve, serve_absent: the page over HTTP; a build without it
 * - scale_page: plans for many devices, drawn in C, for a page and for files
 *
 * In sources/, next to page.html and style.css, the scripts:
 * - main: also follows a live run
 * - dom, format, scale: helpers
 * - view: zoom and cursor on one axis
 * - curves, curve_data: training
 * - step, schedule, memory, timeline, events: one step
 * - scatter, policy, plan: the plan and its alternatives
 * - samples, summary: text samples and the run's summary */
#pragma once

#include <jansson.h>

#include "base/base.h"

/* The page's data as one JSON document, gathered from the files of a run or from a plan file:
 *
 *   {"version", "ballast", "kind": "run" or "plan", "name", "directory", "model_name", "revision",
 *    "resume":    the shell command that resumes a run
 *    "model":     numbers and texts of the model's config.json, or null
 *    "options":   of run.json, or null
 *    "plan":      RUN_DIR/plan.json, else the plan in run.json; the plan file
 *    "measured":  RUN_DIR/timeline.json by timeline.h, or null
 *    "predicted": RUN_DIR/predicted.json, or null
 *    "metrics":   metrics_reader.h, or null
 *    "samples":   metrics_reader.h
 *    "compare":    another run's {"name", "folder", "step_tokens", "metrics"}, or null
 *    "end":       {"state", "message"} by train/run_state.h, if page_run_end was called}
 *
 * A run's name is that of its directory; "directory" is its path without links. A plan has no directory. Only run.json
 * or the plan file must exist. Existing files are checked: BAD_INPUT names file and field. */

/* The caller drops the document. */
enum status page_data_of_plan(const char *plan_path, json_t **out);
/* Sets "predicted" from an object of timeline_to_json. */
enum status page_data_predict(json_t *document, const json_t *timeline);

/* A run that may still be running: each metric is read once, however many documents are made. */
struct page_run;
/* compared: another run's directory, whose curves are also drawn; NULL: none. BAD_INPUT if that is no run. The run's
 * own directory need not exist yet. */
enum status page_run_open(const char *run_folder, const char *compared, struct page_run **out);
void page_run_close(struct page_run *run);
enum status page_run_data(struct page_run *run, json_t **out);
/* Sets "end": how the run ended, or that it is running. Not for a run of this process, which is about to take its
 * lock. */
enum status page_run_end(const char *run_folder, json_t *document);
/* {"revision", "metrics", "compare", "samples": their count}: the parts that change from step to step. The revision
 * changes if a file other than the metrics does, so clients should then fetch the whole document. */
enum status page_run_changes(struct page_run *run, json_t **out);

/* The document as text that is safe in a <script>: it has no "<", ">" or "&". mem_free. NULL if out of memory. */
char *page_text_of(const json_t *document);
/* The whole page, NUL-terminated; mem_free. NULL if out of memory. `bytes` may be NULL. */
char *page_make(const json_t *document, size_t *bytes);

/* The page before and after its data; src/report/page/make_page_source.cmake generates both from the sources. */
extern const unsigned char page_source_before[], page_source_after[];
extern const size_t page_source_before_bytes, page_source_after_bytes;

/* The numbers of a run in Prometheus' text format (version 0.0.4). */

/* Each known number of a run's document, with HELP and TYPE. mem_free; NULL if out of memory. */
char *prometheus_text(const json_t *document);
