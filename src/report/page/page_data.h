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
 *    "end":       {"state", "message"} by run_end.h, where page_run_end was called}
 *
 * A run's name is that of its directory; "directory" is its path without links. A plan has no directory.
 * Only run.json or the plan file must be there. What is there is checked: BAD_INPUT names file and field. */
#pragma once

#include <jansson.h>

#include "base/base.h"

enum { PAGE_DATA_VERSION = 1, PAGE_REVISION_BYTES = 32 };

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
