/* SIGINT, SIGTERM and SIGHUP while training. The first asks for a stop, and stderr says so at once. A second SIGINT or
 * SIGTERM ends the process with STATUS_QUIT and says what is lost. A second SIGHUP asks for nothing new: shells and
 * terminals send several; so does one within a tenth of a second after the first, as timeout(1) sends two. */
#ifndef BALLAST_TRAIN_STOP_SIGNAL_H
#define BALLAST_TRAIN_STOP_SIGNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct stop_signal {
    struct sigaction interrupt, terminate, hang_up; /* what was set before */
};
/* From here on signals only set a flag. An ignored signal (nohup) stays ignored. `saves`: whether the run writes
 * checkpoints. */
void stop_signal_begin(struct stop_signal *saved, bool saves);
/* The signal that came since, 0 for none. */
int stop_signal_received(void);
/* Puts back what was set before. */
void stop_signal_end(const struct stop_signal *saved);

/* What the messages say: the step that is under way, counted from 1, and that of the newest checkpoint that is whole
 * (0: there is none). */
void stop_signal_tell_step(int64_t step);
void stop_signal_tell_saved(int64_t step);
/* The exit status that a signal which stopped the run stands for. */
enum status stop_signal_status(int number);

#endif
