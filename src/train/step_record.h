/* RUN_DIR/timeline.json: when each instruction of one settled step ran (search/sim/timeline.h). */
#ifndef BALLAST_TRAIN_STEP_RECORD_H
#define BALLAST_TRAIN_STEP_RECORD_H

#include "runtime/runner.h"

/* A step with more executions of instructions is not recorded: its file would take more memory than a run leaves for
 * such things. */
enum { STEP_RECORD_EVENTS_MAX = 1 << 16 };

struct step_record {
    struct timeline timeline;
    int64_t step;    /* whose timeline is written, from 0; -1: none */
    int64_t settled; /* the same where none is written: the step that a prediction is compared with; -1: none */
};

/* Of the steps `first` to `steps` - 1 the third, or the last if there are fewer; never the first, in which caches are
 * cold and pages are new. The caller calls step_record_close, also after a failure. */
enum status step_record_open(const struct program *program, int64_t first, int64_t steps, struct step_record *out);
void step_record_close(struct step_record *record);
/* Call these before and after step number `step`, which took `seconds`. The step is recorded where it is the one whose
 * timeline is written, or where `wanted`; only the former's file is written, in place of an older one. The timeline is
 * that of the last recorded step; it has no events where none can be recorded. */
void step_record_begin(struct step_record *record, struct runner *runner, int64_t step, bool wanted);
enum status step_record_end(struct step_record *record, struct runner *runner, int64_t step, double seconds,
                            const char *run_folder);

#endif
