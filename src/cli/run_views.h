/* Who watches a run: the console, and with --serve the page. */
#ifndef BALLAST_CLI_RUN_VIEWS_H
#define BALLAST_CLI_RUN_VIEWS_H

#include "cli/options.h"
#include "report/console/console.h"
#include "report/page/serve.h"

struct run_views {
    struct console *console;
    struct server *server; /* NULL: not asked for */
    struct console_account
        complete;               /* of a run that had all its steps before; no directory: there was something to do */
    struct train_events events; /* the console's, what tells of options without an effect, and signals that stop */
};
/* Before anything else is done, so that a port that is taken is told at once. The caller closes in any case. */
enum status run_views_open(const struct options *options, const char *run_folder, struct run_views *out);
/* Says that `train --continue` found a run with all its steps done. */
void run_views_report_complete(struct run_views *views, const char *run_folder, int64_t steps);
/* With --json, what the run came to on stdout: finished, stopped or failed; nothing where it did not begin. Returns
 * `status`, with its message as it is, or how the printing failed. */
enum status run_views_put_out(const struct options *options, const struct run_views *views, enum status status);
void run_views_close(struct run_views *views);

#endif
