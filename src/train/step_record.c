#include "train/step_record.h"

#include "base/file.h"
#include "base/log.h"

enum { SETTLED_AFTER = 2 };

enum status step_record_open(const struct program *program, int64_t first, int64_t steps, struct step_record *out) {
    *out = (struct step_record){.step = first + SETTLED_AFTER < steps ? first + SETTLED_AFTER : steps - 1};
    out->settled = out->step > first ? out->step : -1;
    if (out->step > first) TRY(timeline_create(program, &out->timeline));
    size_t events = out->timeline.events.count;
    if (events > 0 && events <= STEP_RECORD_EVENTS_MAX) return STATUS_OK;
    if (events > 0)
        log_note("no step's timeline is recorded: it has %zu instructions, more than %d", events,
                 STEP_RECORD_EVENTS_MAX);
    step_record_close(out);
    out->step = -1;
    return STATUS_OK;
}

void step_record_close(struct step_record *record) { timeline_free(&record->timeline); }

void step_record_begin(struct step_record *record, struct runner *runner, int64_t step, bool wanted) {
    if ((step == record->step || wanted) && record->timeline.events.count > 0)
        runner_set_recorder(runner, &record->timeline);
}

enum status step_record_end(struct step_record *record, struct runner *runner, int64_t step, double seconds,
                            const char *run_folder) {
    runner_set_recorder(runner, NULL);
    if (step != record->step) return STATUS_OK;
    record->timeline.step = step + 1;
    record->timeline.wall_s = seconds;
    char *path = path_join(run_folder, "timeline.json");
    enum status status = path ? timeline_write(&record->timeline, path) : STATUS_FAILED;
    mem_free(path);
    record->step = -1;
    return status;
}
