#include "cli/run_views.h"

#include "cli/option_effect.h"
#include "cli/stop_signal.h"

enum status run_views_open(const struct options *options, const char *run_folder, struct run_views *out) {
    *out = (struct run_views){.console = console_create(stderr, options_flag(options, OPT_QUIET))};
    if (!out->console) return STATUS_FAILED;
    out->events = *console_events(out->console);
    out->events.opened = option_effects_tell_data;
    out->events.opened_payload = options;
    out->events.stop = stop_signal_poll;
    if (!options_given(options, OPT_SERVE)) return STATUS_OK;
    TRY(server_open(options_text(options, OPT_SERVE), run_folder, options_text(options, OPT_BESIDE), &out->server));
    fprintf(stderr, "page: %s\n", server_url(out->server)); /* with --quiet too: it may be the only way to learn it */
    return STATUS_OK;
}

void run_views_close(struct run_views *views) {
    stop_signal_end();
    server_close(views->server);
    console_free(views->console);
    *views = (struct run_views){0};
}
