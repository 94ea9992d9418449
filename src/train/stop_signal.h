/* SIGINT and SIGTERM while training: the first asks for a stop, the second ends the process at once. */
#ifndef BALLAST_TRAIN_STOP_SIGNAL_H
#define BALLAST_TRAIN_STOP_SIGNAL_H

#include <signal.h>

struct stop_signal {
    struct sigaction interrupt, terminate; /* what was set before */
};
/* From here on signals only set a flag. An ignored signal (nohup) stays ignored. */
void stop_signal_begin(struct stop_signal *saved);
/* The signal that came since, 0 for none. */
int stop_signal_received(void);
/* Puts back what was set before. */
void stop_signal_end(const struct stop_signal *saved);

#endif
