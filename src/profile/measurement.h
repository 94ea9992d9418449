/* A time that was measured repeatedly, and how reliable it is. */
#pragma once

#include <sched.h>
#include <stdatomic.h>

#include "base/base.h"

struct measurement {
    double seconds; /* the median of the samples at most MEASUREMENT_NOISY_SPREAD above the lowest. Calls of a step
                     * differ too, and the lowest is rare; higher samples were disturbed. At most two thirds of the
                     * samples are dropped */
    double spread;  /* relative: the spread of the lowest third of all samples, or the share of time spent waiting for a
                       processor that another program had, if that is more */
};

/* One execution of the measured work. */
struct sample {
    double seconds;
    double waited_s; /* seconds that threads of this process waited for a processor, all threads together */
};

/* Timing a sample: begin, the work, end. waited_s is 0 where the system does not tell (schedstat). */
struct stopwatch {
    int64_t begin_ns, waited_ns;
};
struct stopwatch stopwatch_begin(void);
struct sample stopwatch_end(const struct stopwatch *stopwatch);

/* Puts the samples, at least one, into ascending order. */
struct measurement measurement_of(struct sample *samples, int count);
/* Whether more samples would add little: the two lowest are within 2% of each other, and there are three, or two of
 * more than 10 ms. Calls below a millisecond are never settled: they differ most and cost least. */
bool measurement_settled(const struct sample *samples, int count);
/* A time with a larger spread is noisy: it is measured again, and reported. On an idle machine calls differ by some
 * percent, while another program runs by half of their time and more; a fifth lies between, and is also the deviation
 * from its prediction at which a step is reported. */
#define MEASUREMENT_NOISY_SPREAD 0.2
/* Spread beyond that, and by more than the 50 us that a thread takes to wake up. */
bool measurement_noisy(const struct measurement *measurement);
/* Merges two measurements of one thing: the lower time, since other programs can only make it longer, and the lower
 * spread. */
struct measurement measurement_lower(const struct measurement *a, const struct measurement *b);

/* A budget of time for several measurements in turn. */
struct allowance {
    int64_t end_ns;
    int left; /* measurements to come */
};
/* An equal share of the remaining time, in seconds; 0 when none remains. Takes one measurement off `left`. */
double allowance_next(struct allowance *allowance);

/* Measurements that several threads make at once, as many as a node has ranks. Ranks of a node share memory and the
 * last cache, and often a core's two hardware threads: an operator takes longer concurrently with them than alone. */

enum { CONTENTION_MAX = 64 };

struct contention {
    int members;                     /* measurements at once: 0 and 1: one, alone */
    bool bound;                      /* each member has cores of its own: */
    cpu_set_t cores[CONTENTION_MAX]; /* by member; the first is the thread that measures */
};

/* One member's part of a measurement, called with the payload of contention_measure. Member 0 is the one whose times
 * count (`ended` NULL); what members 1, 2, … do meanwhile, in threads of their own, goes on until *ended. */
typedef enum status contention_work(void *payload, int member, const atomic_bool *ended);

static inline int contention_members(const struct contention *contention) {
    return contention->members > 1 ? contention->members : 1;
}

/* Whether the calling thread may run on the cores of every member: not where the launcher confined it to its own (a
 * cpuset). It stays on the cores that it had. */
bool contention_is_allowed(const struct contention *contention);

/* All begin together; returns when all have ended. The first failure, also where a thread could not be started or may
 * not run on its cores. */
enum status contention_measure(const struct contention *contention, contention_work *work, void *payload);
