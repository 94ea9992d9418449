/* SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 while the program trains: the `stop` of its train_events. The first asks
 * for a stop, and stderr says so at once. A second SIGINT or SIGTERM ends the process with STATUS_QUIT and says what is
 * lost. A second of the others asks for nothing new: shells and terminals send several SIGHUP, and schedulers SIGUSR1;
 * so does one within a tenth of a second after the first, as timeout(1) sends two. The last two count as SIGTERM: they
 * are what mpirun passes on to its ranks without ending them. */
#pragma once

#include "base/base.h"

/* As struct train_events has it; the payload is not used. The first call, before the first step, installs the handlers:
 * until then, while a model is loaded, a signal ends the process. An ignored signal (nohup) stays ignored. */
enum status stop_signal_poll(void *payload, int64_t step, int64_t saved_step);
/* For a rank of --ranks, before it joins its parent. Until the first step a signal then ends the rank with a report. */
void stop_signal_join(void);
/* Puts back what was set before the first call. */
void stop_signal_end(void);
